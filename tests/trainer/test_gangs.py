"""The pods of a gang: the first one commits, the others train along."""

from __future__ import annotations

import threading
import time
from datetime import timedelta

import pytest

from spillway.checkpoints.layout import progress_key
from spillway.checkpoints.progress import read_progress
from spillway.checkpoints.store import CheckpointStore
from spillway.errors import TrainingFailed
from spillway.model import ExitCode
from spillway.testing.checkpoints import WatchedStore
from spillway.testing.polling import eventually
from spillway.testing.training import Train, TrainingSite
from spillway.trainer import progress, reporting
from spillway.trainer.contract import read_contract
from spillway.trainer.loop import train as train_program
from spillway.trainer.session import Checkpoint, Session
from spillway.trainer.stop import StopSignal


@pytest.fixture
def fast(monkeypatch: pytest.MonkeyPatch) -> None:
    """A long time is a short one."""
    monkeypatch.setattr(reporting, "BUSY_PERIOD", timedelta(seconds=0.01))
    monkeypatch.setattr(progress, "LINE_PERIOD", timedelta(0))


SECOND = {"JOB_COMPLETION_INDEX": "1"}


def committed(site: TrainingSite) -> list[int]:
    return [manifest.step for manifest in site.checkpoints.manifests()]


def second_pod(site: TrainingSite) -> Session:
    site.checkpoints.fence(1)
    return Session(
        read_contract(site.environment(**SECOND)), StopSignal(), data=site.data, checkpoints=site.checkpoints
    )


def test_of_a_gang_the_first_pod_commits_and_the_others_finish_without(site: TrainingSite, train: Train) -> None:
    second = train(site, **SECOND)
    assert (second.exit_code, second.steps[-1]) == (ExitCode.SUCCEEDED, 30)
    assert committed(site) == []
    assert site.bucket.head(progress_key(site.run, 1)) is None
    assert train(site, JOB_COMPLETION_INDEX="0").exit_code == ExitCode.SUCCEEDED
    assert committed(site) == [10, 20, 30]


def test_pods_that_compute_other_bytes_are_no_conflict(site: TrainingSite, train: Train) -> None:
    beginning = site.checkpoints.resume_point()
    train(site)
    second = train(site, resume=beginning, SPILLWAY_SEED="8", **SECOND)
    assert (second.exit_code, second.stderr) == (ExitCode.SUCCEEDED, "")
    assert committed(site) == [10, 20, 30]


def test_a_run_that_was_at_its_end_is_finished_for_every_pod(site: TrainingSite, train: Train) -> None:
    train(site)
    assert train(site, attempt=2, **SECOND).exit_code == ExitCode.SUCCEEDED


def test_a_stop_ends_the_other_pods_without_a_commit(site: TrainingSite) -> None:
    class Stopped:
        """It is stopped while it computes its first step."""

        def step(self) -> float:
            session.stop.requested_at = time.monotonic()
            return 0.5

        def checkpoint(self) -> Checkpoint:
            raise AssertionError("only the first pod commits")

        def summary(self) -> dict[str, float]:
            return {}

    session = second_pod(site)
    session.begin()
    assert train_program(session, Stopped()) is ExitCode.PREEMPTED
    assert (session.last_step, session.durable_step) == (1, None)


def test_a_commit_of_another_pod_than_the_first_is_refused(site: TrainingSite) -> None:
    session = second_pod(site)
    session.report(10, 0.5)
    assert not session.commit_due(10)
    with pytest.raises(TrainingFailed, match="rank 1 was to commit step 10; rank 0 commits the whole state"):
        session.commit(Checkpoint(parts={"shard": b"1"}, data_cursor={}), last=True)
    assert list(site.bucket.list(f"{site.run}/parts/")) == []


def test_what_ranks_took_to_send_is_part_of_what_a_commit_takes(site: TrainingSite) -> None:
    second = second_pod(site)
    sent = second.send(1, {"1.shard": b"of the second"})
    first = Session(
        read_contract(site.environment(SPILLWAY_GRACE_SECONDS="100")),
        StopSignal(),
        data=site.data,
        checkpoints=site.checkpoints,
    )
    first.report(1, 0.5)
    parts = {"0.shard": b"of the first", **{part.name: part for part in sent}}
    first.commit(Checkpoint(parts=parts, data_cursor={}, world_size=2, sent_seconds=240.0), last=True)
    told = read_progress(site.bucket, site.run, 1)
    assert told is not None
    assert told.slowest_commit_seconds is not None
    assert told.slowest_commit_seconds >= 240
    assert first.commit_fits()
    first.stop.requested_at = time.monotonic()
    assert not first.commit_fits()


@pytest.mark.usefixtures("fast")
def test_a_rank_that_sends_for_long_says_all_the_while_that_it_is_alive(
    site: TrainingSite, capsys: pytest.CaptureFixture[str]
) -> None:
    store, release = WatchedStore(site.bucket), threading.Event()

    def hold(key: str) -> None:
        if "/parts/" in key:
            assert release.wait(60)

    store.before = hold
    site.checkpoints.fence(1)
    contract = read_contract(site.environment())
    session = Session(contract, StopSignal(), data=site.data, checkpoints=CheckpointStore(store, contract.run))
    session.report(1, 0.5)
    sending = threading.Thread(target=session.send, args=(1, {"0.shard": b"0"}), daemon=True)
    sending.start()
    said = list[str]()
    eventually(
        lambda: said.append(capsys.readouterr().out) or "".join(said).count('"alive", "doing": "commit"') > 2,
        seconds=60,
    )
    assert sending.is_alive()
    release.set()
    sending.join(60)
    eventually(lambda: not any(thread.name == "busy" for thread in threading.enumerate()), seconds=60)
