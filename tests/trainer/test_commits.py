"""How a session commits to a store that fails some of its writes: one that refuses, and one that does not answer."""

import json
import time
from typing import Any

import pytest

from spillway.checkpoints.layout import head_key
from spillway.checkpoints.progress import LINE_PREFIX
from spillway.checkpoints.store import CheckpointStore
from spillway.errors import AccessDenied, CheckpointConflict, Missing, SpillwayError, TrainingFailed, Unreachable
from spillway.testing.checkpoints import WatchedStore, commit_step
from spillway.testing.training import TrainingSite
from spillway.trainer.contract import read_contract
from spillway.trainer.session import Checkpoint, Session
from spillway.trainer.stop import StopSignal


class Failures:
    """A session whose store fails the manifests of the given steps, as often as is said."""

    def __init__(self, site: TrainingSite, **variables: Any) -> None:
        self._left: dict[int, tuple[int, SpillwayError]] = {}
        self.store = WatchedStore(site.bucket)
        self.store.before = self._fail
        site.checkpoints.fence(1)
        contract = read_contract(site.environment(**variables))
        checkpoints = CheckpointStore(self.store, contract.run)
        self.stop = StopSignal()
        self.session = Session(contract, self.stop, data=site.data, checkpoints=checkpoints)

    def refuse(self, step: int, *, times: int = 1) -> None:
        denied = AccessDenied(self.store.name, "403", fix="check what its identity may do")
        self._left[step] = (times, denied)

    def silence(self, step: int, *, times: int = 1) -> None:
        self._left[step] = (times, Unreachable(self.store.name, "the connection was reset"))

    def commit(self, step: int, *, last: bool = False) -> None:
        self.begin(step, last=last)
        self.session.settle()

    def begin(self, step: int, *, last: bool = False) -> None:
        self.session.report(step, 1 / step)
        checkpoint = Checkpoint(parts={"weights.npy": f"{step}".encode()}, data_cursor={"next": step + 1})
        self.session.commit(checkpoint, last=last)

    def _fail(self, key: str) -> None:
        for step, (times, problem) in self._left.items():
            if f"/{step:012d}-" in key and times > 0:
                self._left[step] = (times - 1, problem)
                raise problem


@pytest.fixture
def failures(site: TrainingSite) -> Failures:
    return Failures(site)


def test_failures_that_are_not_in_a_row_do_not_fail_the_job(failures: Failures, site: TrainingSite) -> None:
    for step in (1, 2, 4, 5):
        failures.refuse(step)
    for step in range(1, 7):
        failures.commit(step)
    assert [manifest.step for manifest in site.checkpoints.manifests()] == [3, 6]
    assert failures.session.durable_step == 6
    assert [step for step, _ in site.losses()] == [1, 2, 3, 4, 5, 6]


def test_three_refused_commits_in_a_row_fail_the_job(failures: Failures, capsys: pytest.CaptureFixture[str]) -> None:
    failures.commit(1)
    for step in (2, 3, 4):
        failures.refuse(step)
    failures.commit(2)
    failures.commit(3)
    with pytest.raises(TrainingFailed, match="the last one of step 4; the last durable step is 1"):
        failures.commit(4)
    lines = [json.loads(line.removeprefix(LINE_PREFIX)) for line in capsys.readouterr().out.splitlines()]
    failed = [(facts["step"], facts["durable_step"]) for facts in lines if facts["event"] == "commit-failed"]
    assert failed == [(2, 1), (3, 1), (4, 1)]


def test_failures_that_a_later_commit_made_up_for_do_not_fail_the_job(failures: Failures, site: TrainingSite) -> None:
    for step in (1, 2, 3, 5, 6):
        failures.refuse(step)
    for step in (1, 2, 3):
        failures.begin(step)
    failures.commit(4)
    failures.commit(5)
    failures.commit(6)
    assert [manifest.step for manifest in site.checkpoints.manifests()] == [4]
    assert [step for step, _ in site.losses()] == [1, 2, 3, 4]


def test_the_last_commit_is_tried_again_at_once(failures: Failures, site: TrainingSite) -> None:
    failures.refuse(1, times=2)
    failures.commit(1, last=True)
    assert [manifest.step for manifest in site.checkpoints.manifests()] == [1]


def test_the_last_commit_fails_the_job_when_it_is_refused_three_times(failures: Failures, site: TrainingSite) -> None:
    failures.refuse(1, times=3)
    with pytest.raises(TrainingFailed, match="3 commits in a row failed"):
        failures.commit(1, last=True)
    assert site.checkpoints.manifests() == ()


def test_a_step_with_another_content_is_not_tried_again(failures: Failures, site: TrainingSite) -> None:
    commit_step(site.checkpoints, 1)
    with pytest.raises(CheckpointConflict):
        failures.commit(1)


def test_progress_that_cannot_be_written_is_no_reason_to_stop(
    failures: Failures, site: TrainingSite, capsys: pytest.CaptureFixture[str]
) -> None:
    def refuse_progress(key: str) -> None:
        if "/progress/" in key:
            raise Unreachable(failures.store.name, "the connection was reset")

    failures.store.before = refuse_progress
    failures.commit(1)
    assert [manifest.step for manifest in site.checkpoints.manifests()] == [1]
    assert capsys.readouterr().out.count('"progress-not-written"') == 2


# -- a store that does not answer -------------------------------------------------------------------------------------

WITHOUT_PATIENCE = {"SPILLWAY_STORE_PATIENCE_SECONDS": "0"}
PATIENT = {"SPILLWAY_STORE_PATIENCE_SECONDS": "3600"}


def test_a_silent_store_does_not_fail_the_job_while_there_is_patience(site: TrainingSite) -> None:
    failures = Failures(site, **PATIENT)
    for step in range(1, 9):
        failures.silence(step)
        failures.commit(step)
    failures.commit(9)
    assert [manifest.step for manifest in site.checkpoints.manifests()] == [9]
    assert [step for step, _ in site.losses()] == list(range(1, 10))


def test_a_store_that_stays_silent_is_given_up_with_what_is_durable(site: TrainingSite) -> None:
    failures = Failures(site, **WITHOUT_PATIENCE)
    failures.commit(1)
    for step in (2, 3, 4):
        failures.silence(step)
    failures.commit(2)
    failures.commit(3)
    with pytest.raises(Unreachable, match=r"no commit succeeded for .* s, the last durable step is 1: .* reset"):
        failures.commit(4)


def test_the_step_after_an_outage_is_committed_without_waiting_for_the_next_one_that_is_due(site: TrainingSite) -> None:
    failures = Failures(site, **PATIENT)
    assert [step for step in range(1, 21) if failures.session.commit_due(step)] == [10, 20]
    failures.silence(10)
    failures.commit(10)
    deadline = time.monotonic() + 60
    while not failures.session.commit_due(11):
        assert time.monotonic() < deadline
        time.sleep(0.05)
    failures.commit(11)
    assert failures.session.durable_step == 11
    assert not failures.session.commit_due(12)


def test_the_last_commit_waits_for_a_silent_store(site: TrainingSite) -> None:
    failures = Failures(site, **PATIENT)
    failures.silence(1, times=3)
    failures.commit(1, last=True)
    assert failures.session.durable_step == 1


def test_after_the_stop_signal_a_silent_store_is_given_up_with_the_grace(site: TrainingSite) -> None:
    failures = Failures(site, **PATIENT, SPILLWAY_GRACE_SECONDS="1")
    failures.silence(1, times=1000)
    failures.stop.requested_at = time.monotonic()
    with pytest.raises(Unreachable, match="the last durable step is none"):
        failures.commit(1, last=True)


def test_a_store_that_is_silent_at_the_start_is_waited_for(site: TrainingSite) -> None:
    failures = Failures(site, **PATIENT)
    silent = iter([True, True, False])
    failures.store.unreadable = lambda key: next(silent, False)
    failures.session.begin()


def test_a_store_that_stays_silent_at_the_start_is_given_up(site: TrainingSite) -> None:
    failures = Failures(site, **WITHOUT_PATIENCE)
    failures.store.unreadable = lambda key: True
    with pytest.raises(Unreachable, match="the connection was reset"):
        failures.session.begin()


def test_a_refusal_at_the_start_is_not_waited_for(site: TrainingSite) -> None:
    failures = Failures(site, **PATIENT)
    site.bucket.delete([head_key(site.run)])
    with pytest.raises(Missing):
        failures.session.begin()
