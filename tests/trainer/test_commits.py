"""How a session commits to a store that refuses some of its writes."""

import json

import pytest

from spillway.checkpoints.store import CheckpointStore
from spillway.errors import CheckpointConflict, TrainingFailed, Unreachable
from spillway.testing.checkpoints import WatchedStore, commit_step
from spillway.testing.training import TrainingSite
from spillway.trainer.contract import read_contract
from spillway.trainer.progress import LINE_PREFIX
from spillway.trainer.session import Checkpoint, Session
from spillway.trainer.stop import StopSignal


class Refusals:
    """A session whose store refuses the manifests of the given steps, as often as is said."""

    def __init__(self, site: TrainingSite) -> None:
        self._left: dict[int, int] = {}
        self.store = WatchedStore(site.bucket)
        self.store.before = self._refuse
        site.checkpoints.fence(1)
        contract = read_contract(site.environment())
        checkpoints = CheckpointStore(self.store, contract.run)
        self.session = Session(contract, StopSignal(), data=site.data, checkpoints=checkpoints)

    def refuse(self, step: int, *, times: int) -> None:
        self._left[step] = times

    def commit(self, step: int, *, last: bool = False) -> None:
        self.session.report(step, 1 / step)
        checkpoint = Checkpoint(parts={"weights.npy": f"{step}".encode()}, data_cursor={"next": step + 1})
        self.session.commit(checkpoint, last=last)

    def _refuse(self, key: str) -> None:
        for step, times in self._left.items():
            if f"/{step:012d}-" in key and times > 0:
                self._left[step] -= 1
                raise Unreachable(self.store.name, "the connection was reset")


@pytest.fixture
def refusals(site: TrainingSite) -> Refusals:
    return Refusals(site)


def test_failures_that_are_not_in_a_row_do_not_fail_the_job(refusals: Refusals, site: TrainingSite) -> None:
    for step in (1, 2, 4, 5):
        refusals.refuse(step, times=1)
    for step in range(1, 7):
        refusals.commit(step)
    assert [manifest.step for manifest in site.checkpoints.manifests()] == [3, 6]
    assert refusals.session.durable_step == 6
    assert [step for step, _ in site.losses()] == [1, 2, 3, 4, 5, 6]


def test_three_failures_in_a_row_fail_the_job(refusals: Refusals, capsys: pytest.CaptureFixture[str]) -> None:
    refusals.commit(1)
    for step in (2, 3, 4):
        refusals.refuse(step, times=1)
    refusals.commit(2)
    refusals.commit(3)
    with pytest.raises(TrainingFailed, match="the last one of step 4; the last durable step is 1"):
        refusals.commit(4)
    lines = [json.loads(line.removeprefix(LINE_PREFIX)) for line in capsys.readouterr().out.splitlines()]
    failed = [(facts["step"], facts["durable_step"]) for facts in lines if facts["event"] == "commit-failed"]
    assert failed == [(2, 1), (3, 1), (4, 1)]


def test_the_last_commit_is_tried_again_at_once(refusals: Refusals, site: TrainingSite) -> None:
    refusals.refuse(1, times=2)
    refusals.commit(1, last=True)
    assert [manifest.step for manifest in site.checkpoints.manifests()] == [1]


def test_the_last_commit_fails_the_job_when_it_fails_three_times(refusals: Refusals, site: TrainingSite) -> None:
    refusals.refuse(1, times=3)
    with pytest.raises(TrainingFailed, match="3 commits in a row failed"):
        refusals.commit(1, last=True)
    assert site.checkpoints.manifests() == ()


def test_a_step_with_another_content_is_not_tried_again(refusals: Refusals, site: TrainingSite) -> None:
    commit_step(site.checkpoints, 1)
    with pytest.raises(CheckpointConflict):
        refusals.commit(1)


def test_progress_that_cannot_be_written_is_no_reason_to_stop(
    refusals: Refusals, site: TrainingSite, capsys: pytest.CaptureFixture[str]
) -> None:
    def refuse_progress(key: str) -> None:
        if "/progress/" in key:
            raise Unreachable(refusals.store.name, "the connection was reset")

    refusals.store.before = refuse_progress
    refusals.commit(1)
    assert [manifest.step for manifest in site.checkpoints.manifests()] == [1]
    assert capsys.readouterr().out.count('"progress-not-written"') == 2
