"""A run that a thread carries on the sandbox, and what a test may know of it while it goes on."""

from __future__ import annotations

import threading
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime

from spillway.checkpoints.curve import loss_curve
from spillway.checkpoints.progress import read_progress
from spillway.checkpoints.store import CheckpointStore
from spillway.errors import SpillwayError
from spillway.model import Attempt, AttemptState, JobSpec, PodState
from spillway.runs.carrying import carry
from spillway.runs.engine import Step, Watching, advance, place_run, settled_attempts
from spillway.runs.services import Services
from spillway.testing.polling import eventually

POLL_SECONDS = 0.4
PATIENCE_SECONDS = 120.0


class NobodyCarries(SpillwayError):
    """What ends the thread: the process that carried the run is gone."""


@dataclass(slots=True)
class Carried:
    """One run and the thread that carries it."""

    services: Services
    run: str
    job: JobSpec
    said: list[str] = field(default_factory=list)
    last: Attempt | None = None
    problem: SpillwayError | None = None
    over: threading.Event = field(default_factory=threading.Event)
    thread: threading.Thread | None = None

    def start(self) -> Carried:
        """Carry it, in the same process, as the next owner would."""
        self.thread = threading.Thread(target=self._carry, name=self.run, daemon=True)
        self.thread.start()
        return self

    def _carry(self) -> None:
        services = replace(self.services, clock=self._now)
        try:
            self.last = carry(services, self.run, self.job, self.said.append, poll_seconds=POLL_SECONDS)
        except SpillwayError as problem:
            self.problem = problem

    def _now(self) -> datetime:
        if self.over.is_set():
            raise NobodyCarries
        return datetime.now(UTC)

    def stop(self) -> None:
        """End the thread as a crash of its process would, as soon as it looks at the clock."""
        self.over.set()
        if self.thread is not None:
            self.thread.join(PATIENCE_SECONDS)

    def place(self) -> Attempt:
        """The next attempt, reserved and no more."""
        placed = place_run(self.services, self.run, self.job, self.said.append)
        assert isinstance(placed, Attempt), placed
        return placed

    def advance(self, *, restart: bool = False) -> Step:
        """One call of ``advance``, without a thread; ``restart`` is somebody who asks for the run just now."""
        asked_after = settled_attempts(self.services, self.run) if restart else 0
        return advance(self.services, self.run, self.job, self.said.append, asked_after=asked_after)

    def launched(self) -> Attempt:
        """The next attempt, whose pod has done its first step and is watched by nobody."""
        step = self.advance()
        assert isinstance(step, Watching), step
        store = self.services.checkpoints(step.attempt)
        eventually(lambda: read_progress(store, self.run, step.attempt.number), seconds=PATIENCE_SECONDS)
        return step.attempt

    def result(self) -> Attempt:
        """The last attempt; raises what ended the run otherwise."""
        assert self.thread is not None
        self.thread.join(PATIENCE_SECONDS)
        assert not self.thread.is_alive(), self.story
        if self.problem is not None:
            raise self.problem
        assert self.last is not None
        return self.last

    @property
    def story(self) -> str:
        return "\n".join(self.said)

    @property
    def attempts(self) -> tuple[Attempt, ...]:
        return self.services.ledger.attempts(self.run)

    def pod(self, attempt: Attempt) -> PodState:
        """The attempt's pod as its cluster shows it."""
        return self.services.site(attempt.candidate.cluster).client.state(attempt.label)

    def checkpoints(self, site: str) -> CheckpointStore:
        return CheckpointStore(self.services.site(site).checkpoints, self.run)

    def committed(self, site: str) -> tuple[int, ...]:
        """The committed steps at a site, in the order of their commits."""
        head = self.checkpoints(site).head()
        return tuple(entry.step for entry in head.committed) if head else ()

    def losses(self, site: str) -> tuple[tuple[int, float], ...]:
        return loss_curve(self.checkpoints(site).manifests())

    def running(self, number: int, *, committed: int = 0) -> Attempt:
        """That attempt, once its pod runs, has done its first step and has committed at least so many steps."""
        attempt = eventually(lambda: self._running(number), seconds=PATIENCE_SECONDS, pause=POLL_SECONDS)
        assert attempt is not None
        site = self.services.store_site(attempt.job, attempt.candidate.cluster)
        store = self.services.checkpoints(attempt)
        eventually(lambda: read_progress(store, self.run, number), seconds=PATIENCE_SECONDS, pause=POLL_SECONDS)
        eventually(
            lambda: len(self._committed_by(number, site)) >= committed,
            seconds=PATIENCE_SECONDS,
            pause=POLL_SECONDS,
        )
        return attempt

    def _running(self, number: int) -> Attempt | None:
        assert self.thread is not None
        assert self.thread.is_alive(), f"{self.problem}\n{self.story}"
        found = [attempt for attempt in self.attempts if attempt.number == number]
        return found[0] if found and found[0].state is AttemptState.RUNNING else None

    def _committed_by(self, number: int, site: str) -> list[int]:
        head = self.checkpoints(site).head()
        return [entry.step for entry in head.committed if entry.attempt == number] if head else []
