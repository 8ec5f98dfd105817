"""What a trainer tells of itself between two checkpoints."""

from __future__ import annotations

import threading
from datetime import datetime

import pytest

from spillway.checkpoints.progress import Progress, read_progress
from spillway.checkpoints.store import CheckpointStore
from spillway.stores.base import ObjectStore
from spillway.testing.checkpoints import WatchedStore
from spillway.testing.polling import eventually
from spillway.testing.training import RUN, TrainingSite
from spillway.trainer import reporting
from spillway.trainer.contract import read_contract
from spillway.trainer.reporting import PROGRESS_PERIOD
from spillway.trainer.session import Session
from spillway.trainer.stop import StopSignal

PERIOD = PROGRESS_PERIOD.total_seconds()


class Clock:
    """The clock of the reporter, in seconds."""

    def __init__(self) -> None:
        self.seconds = 1000.0

    def monotonic(self) -> float:
        return self.seconds


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(reporting, "time", clock)
    return clock


def session_of(site: TrainingSite, store: ObjectStore | None = None, **variables: str) -> Session:
    """A session that has begun; it commits nothing here."""
    site.checkpoints.fence(1)
    contract = read_contract(site.environment(SPILLWAY_STEPS="1000", **variables))
    checkpoints = site.checkpoints if store is None else CheckpointStore(store, contract.run)
    return Session(contract, StopSignal(), data=site.data, checkpoints=checkpoints)


def progress_of(site: TrainingSite, step: int) -> Progress:
    """The attempt's progress, once it tells of the step."""
    found = eventually(lambda: (p := read_progress(site.bucket, RUN, 1)) and p.step == step and p, seconds=60)
    assert isinstance(found, Progress)
    return found


def written(session: Session) -> None:
    """Return when no write is on its way."""
    writer = session._reporter._writer
    assert writer is not None
    writer.join(60)


def test_progress_is_on_the_store_while_no_step_is_committed(site: TrainingSite, clock: Clock) -> None:
    session = session_of(site)
    session.report(1, 0.5)
    assert progress_of(site, 1).step_seconds is None
    for step in range(2, 35):
        clock.seconds += 1.0 if step % 10 else 7.0
        session.report(step, 1 / step)
        written(session)
    told = progress_of(site, 30)
    assert (told.first_step, told.total_steps, told.loss, told.durable_step) == (1, 1000, 1 / 30, None)
    assert told.step_seconds == 1.0
    assert told.began_at is not None
    assert datetime.fromisoformat(told.began_at) < datetime.fromisoformat(told.at)


def test_the_time_of_a_step_is_unknown_at_first_and_no_slow_step_spoils_it(site: TrainingSite, clock: Clock) -> None:
    session = session_of(site)
    seen = []
    for step, pause in enumerate([0.0, 60.0, 2.0, 2.0, 2.0, 90.0, 2.0], start=1):
        clock.seconds += pause
        session.report(step, 0.5)
        seen.append(session._reporter.step_seconds)
    assert seen == [None] * 5 + [2.0, 2.0]
    written(session)


def test_a_step_does_not_wait_for_a_store_that_is_stuck(site: TrainingSite, clock: Clock) -> None:
    store, asked, free = WatchedStore(site.bucket), threading.Event(), threading.Event()

    def hold(key: str) -> None:
        asked.set()
        assert free.wait(60)

    store.before = hold
    session = session_of(site, store)
    session.report(1, 0.5)
    assert asked.wait(60)
    for step in range(2, 6):
        clock.seconds += 2 * PERIOD
        session.report(step, 0.5)
    assert read_progress(site.bucket, RUN, 1) is None
    free.set()
    written(session)
    clock.seconds += 2 * PERIOD
    session.report(6, 0.5)
    assert progress_of(site, 6).step == 6


def test_a_program_that_is_busy_with_something_else_says_so_now_and_then(
    site: TrainingSite, clock: Clock, capsys: pytest.CaptureFixture[str]
) -> None:
    session = session_of(site)
    session.report(1, 0.5)
    before = progress_of(site, 1).at
    capsys.readouterr()
    for _ in range(100):
        clock.seconds += 1.0
        session.alive("evaluating")
        written(session)
    assert (
        capsys.readouterr()
        .out.splitlines()
        .count('spillway-progress {"event": "alive", "doing": "evaluating", "step": 1}')
        == 10
    )
    assert progress_of(site, 1).at > before


def test_of_a_gang_only_the_pod_that_commits_writes_progress(site: TrainingSite, clock: Clock) -> None:
    session = session_of(site, JOB_COMPLETION_INDEX="1")
    for step in range(1, 4):
        clock.seconds += PERIOD
        session.report(step, 0.5)
    assert session._reporter._writer is None
    assert session.last_step == 3
