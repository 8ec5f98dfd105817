"""Commits beside training: what a step waits for, and what becomes of a commit that is on its way at the end."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import pytest

from spillway.checkpoints.store import CheckpointStore
from spillway.errors import Fenced, Unreachable
from spillway.model import ExitCode
from spillway.testing.checkpoints import WatchedStore
from spillway.testing.polling import eventually
from spillway.testing.training import Train, TrainingSite
from spillway.trainer import committing
from spillway.trainer.contract import read_contract
from spillway.trainer.loop import train as train_program
from spillway.trainer.session import Checkpoint, Session
from spillway.trainer.stop import StopSignal


class Counting:
    """A program whose state is the number of its step."""

    def __init__(self) -> None:
        self.steps = 0

    def step(self) -> float:
        self.steps += 1
        return 1 / self.steps

    def checkpoint(self) -> Checkpoint:
        return Checkpoint(
            parts={"state": f"{self.steps}".encode()},
            data_cursor={"next": self.steps + 1},
            metrics={"accuracy": self.steps / 100},
        )

    def summary(self) -> dict[str, float]:
        return {}


class Held:
    """A session whose store holds every part until it is released."""

    def __init__(self, site: TrainingSite, **variables: str) -> None:
        self.store = WatchedStore(site.bucket)
        self.held, self.release = threading.Event(), threading.Event()
        self.store.before = self._hold
        site.checkpoints.fence(1)
        contract = read_contract(site.environment(**variables))
        self.stop, self.program = StopSignal(), Counting()
        self.session = Session(
            contract, self.stop, data=site.data, checkpoints=CheckpointStore(self.store, contract.run)
        )

    def _hold(self, key: str) -> None:
        if "/parts/" in key:
            self.held.set()
            assert self.release.wait(60)

    def step(self, *, last: bool = False) -> bool:
        """One step as the loop does it; gives whether a commit was begun."""
        self.session.report(self.program.steps + 1, self.program.step())
        due = self.session.commit_due(self.program.steps)
        if due:
            self.session.commit(self.program.checkpoint(), last=last)
        return due


class Descheduled(threading.Condition):
    """The thread that commits is kept from going on after it has released the lock, until it may."""

    def __init__(self) -> None:
        super().__init__()
        self.released, self.go_on = threading.Event(), threading.Event()
        self.threads: list[threading.Thread] = []

    def __exit__(self, *raised: Any) -> None:
        super().__exit__(*raised)
        if threading.current_thread().name == "commit":
            self.threads.append(threading.current_thread())
            self.released.set()
            assert self.go_on.wait(60)


@pytest.fixture
def without_room(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every snapshot is too large to wait in memory."""
    monkeypatch.setattr(committing, "WAITING_BYTES", 0)


@pytest.fixture
def held(site: TrainingSite) -> Iterator[Held]:
    found = Held(site, SPILLWAY_CHECKPOINT_EVERY="2", SPILLWAY_GRACE_SECONDS="2")
    yield found
    found.release.set()
    with suppress(Fenced):
        found.session.settle()


def committed(site: TrainingSite) -> list[int]:
    return [manifest.step for manifest in site.checkpoints.manifests()]


def test_training_goes_on_while_small_snapshots_wait_for_their_turn(held: Held, site: TrainingSite) -> None:
    assert [held.step() for _ in range(5)] == [False, True, False, True, False]
    assert held.held.wait(60)
    assert held.session.durable_step is None
    held.release.set()
    held.session.settle()
    assert committed(site) == [2, 4]
    assert [manifest.metrics["loss"][0][0] for manifest in site.checkpoints.manifests()] == [1, 3]


def test_whoever_waits_for_the_last_commit_says_that_the_process_is_alive(
    held: Held, capsys: pytest.CaptureFixture[str]
) -> None:
    held.step()
    held.step()
    assert held.held.wait(60)
    capsys.readouterr()
    waiting = threading.Thread(target=held.session.settle, daemon=True)
    waiting.start()
    said = list[str]()
    eventually(
        lambda: said.append(capsys.readouterr().out) or '"alive", "doing": "commit"' in "".join(said), seconds=60
    )
    assert waiting.is_alive()
    held.release.set()
    waiting.join(60)


@pytest.mark.usefixtures("without_room")
def test_of_large_snapshots_there_is_one_at_a_time_and_training_goes_on(held: Held, site: TrainingSite) -> None:
    assert [held.step() for _ in range(5)] == [False, True, False, False, False]
    held.release.set()
    held.session.settle()
    assert committed(site) == [2]


@pytest.mark.usefixtures("without_room")
def test_a_step_that_was_due_meanwhile_is_made_up_for_by_the_next_one(held: Held, site: TrainingSite) -> None:
    for _ in range(4):
        held.step()
    held.release.set()
    held.session.settle()
    assert held.step()
    held.session.settle()
    assert committed(site) == [2, 5]
    assert [step for step, _ in site.losses()] == [1, 2, 3, 4, 5]


def test_a_commit_that_begins_just_when_another_has_ended_is_done_once(held: Held, site: TrainingSite) -> None:
    def claims() -> int:
        return sum("/claims/" in key for key in held.store.writes)

    held.session._committer._changed = changed = Descheduled()
    held.release.set()
    held.step()
    held.step()
    assert changed.released.wait(60)
    held.release.clear()
    held.held.clear()
    held.step()
    held.step()
    assert held.held.wait(60)
    changed.go_on.set()
    while changed.threads[0].is_alive() and claims() == 2:
        time.sleep(0.01)
    assert claims() == 2
    held.release.set()
    held.session.settle()
    assert committed(site) == [2, 4]


def test_a_step_has_the_metrics_of_its_program(held: Held, site: TrainingSite) -> None:
    held.release.set()
    held.step()
    held.step()
    held.session.settle()
    assert site.checkpoints.manifests()[0].metrics == {"accuracy": 0.02, "loss": [[1, 1.0], [2, 0.5]]}


def test_a_fence_is_told_at_the_next_step(held: Held, site: TrainingSite) -> None:
    held.step()
    held.step()
    assert held.held.wait(60)
    site.checkpoints.fence(2)
    held.release.set()
    deadline = time.monotonic() + 60
    with pytest.raises(Fenced):
        while time.monotonic() < deadline:
            held.step()
    assert committed(site) == []


def test_the_end_waits_for_the_commit_that_is_on_its_way(site: TrainingSite) -> None:
    held = Held(site, SPILLWAY_CHECKPOINT_EVERY="2", SPILLWAY_STEPS="3")
    threading.Timer(0.3, held.release.set).start()
    assert train_program(held.session, held.program) is ExitCode.SUCCEEDED
    assert committed(site) == [2, 3]


class Waits(threading.Condition):
    """Keeps how long it was to wait at most, each time."""

    def __init__(self) -> None:
        super().__init__()
        self.seconds: list[float | None] = []

    def wait(self, timeout: float | None = None) -> bool:
        self.seconds.append(timeout)
        return super().wait(timeout)


def test_after_the_stop_signal_a_commit_that_hangs_is_given_up_within_the_grace(held: Held) -> None:
    held.session._committer._changed = waits = Waits()
    held.step()
    held.step()
    assert held.held.wait(60)
    held.stop.requested_at = time.monotonic() - 1.2  # of 2 s, of which 0.5 s are kept to say how it ended
    with pytest.raises(Unreachable, match="the commit of step 2 did not end within the grace; the last durable"):
        held.session.settle()
    assert all(seconds is not None and seconds <= 0.31 for seconds in waits.seconds)
    held.stop.requested_at = None


def test_a_last_commit_that_does_not_fit_into_the_grace_is_left_out(
    site: TrainingSite, capsys: pytest.CaptureFixture[str]
) -> None:
    held = Held(site, SPILLWAY_CHECKPOINT_EVERY="2", SPILLWAY_GRACE_SECONDS="1")
    held.step()
    held.step()
    assert held.held.wait(60)
    threading.Timer(1.0, held.release.set).start()
    held.session.settle()
    held.step()
    held.stop.requested_at = time.monotonic()
    assert train_program(held.session, held.program) is ExitCode.PREEMPTED
    assert committed(site) == [2]
    assert '"last-commit-left-out", "step": 3' in capsys.readouterr().out


def test_a_checkpoint_beyond_the_last_step_is_recognised(site: TrainingSite, train: Train) -> None:
    assert train(site).exit_code == ExitCode.SUCCEEDED
    ended = train(site, attempt=2, SPILLWAY_STEPS="20")
    assert ended.exit_code == ExitCode.FAILED
    assert "SPILLWAY_STEPS: expected at least 30, the step of the run's checkpoint, got 20" in ended.stderr
