"""A site with the digits data set, and the trainer as the process that a container would run there."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from spillway.checkpoints.curve import loss_curve
from spillway.checkpoints.progress import LINE_PREFIX
from spillway.checkpoints.store import CheckpointStore, ResumePoint
from spillway.sandbox.sample_data import digits_shards
from spillway.stores.base import ObjectStore
from spillway.stores.local import LocalStore

RUN = "digits-1"
PREFIX = "digits/"
DEADLINE_SECONDS = 60


@dataclass(frozen=True, slots=True, kw_only=True)
class Finished:
    """A trainer that ended: its exit code, the events of its log, and what it wrote for people."""

    exit_code: int
    events: tuple[Mapping[str, Any], ...]
    stderr: str

    def named(self, event: str) -> list[Mapping[str, Any]]:
        return [facts for facts in self.events if facts["event"] == event]

    @property
    def steps(self) -> list[int]:
        return [facts["step"] for facts in self.named("step")]


class Train(Protocol):
    """Runs an attempt to its end, from the newest valid step."""

    def __call__(
        self, site: TrainingSite, *, program: str = "digits", attempt: int = 1, fence: bool = True, **changes: Any
    ) -> Finished: ...


def load_digits(store: ObjectStore) -> None:
    """Put the digits data set into a bucket, as four objects under ``PREFIX``."""
    for name, body in digits_shards(4).items():
        store.put(PREFIX + name, body, size_bytes=len(body))


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingSite:
    """Two buckets, the variables that a pod there is given, and a run."""

    data: ObjectStore
    bucket: ObjectStore
    variables: Mapping[str, str]
    run: str = RUN

    @property
    def checkpoints(self) -> CheckpointStore:
        return CheckpointStore(self.bucket, self.run)

    def losses(self) -> tuple[tuple[int, float], ...]:
        return loss_curve(self.checkpoints.manifests())

    def environment(self, *, attempt: int = 1, **changes: Any) -> dict[str, str]:
        """The whole environment of a container. Defaults: 30 steps, a commit every 10.

        ``resume`` is the resume point that the platform chose; the newest valid step without it.
        """
        resume: ResumePoint = changes.pop("resume") if "resume" in changes else self.checkpoints.resume_point()
        given = {
            "SPILLWAY_RUN": self.run,
            "SPILLWAY_ATTEMPT": str(attempt),
            "SPILLWAY_RESUME_MANIFEST": resume.manifest_key or "",
            "SPILLWAY_RESUMED_FROM_STEP": str(resume.step or ""),
            "SPILLWAY_DATASET_PREFIX": PREFIX,
            "SPILLWAY_GRACE_SECONDS": "30",
            "SPILLWAY_STEPS": "30",
            "SPILLWAY_CHECKPOINT_EVERY": "10",
            "PYTHONPATH": os.pathsep.join(path for path in sys.path if path),
            "PATH": os.environ["PATH"],
        }
        return {**given, **self.variables, **changes}

    def train(self, *, attempt: int = 1, **changes: Any) -> Finished:
        """Run an attempt to its end in a process of its own, from the newest valid step, as the platform does."""
        with self.training(attempt=attempt, **changes) as process:
            return finish(process)

    @contextmanager
    def training(self, *, attempt: int = 1, **changes: Any) -> Iterator[subprocess.Popen[str]]:
        """A started attempt; killed at the end of the block if it still runs."""
        self.checkpoints.fence(attempt)
        process = subprocess.Popen(
            [sys.executable, "-m", "spillway.trainer", "digits"],
            env=self.environment(attempt=attempt, **changes),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        try:
            yield process
        finally:
            process.kill()
            process.communicate()


def finish(process: subprocess.Popen[str], *, seen: Sequence[str] = ()) -> Finished:
    """Wait for the end; ``seen`` are lines that were read of its output before."""
    stdout, stderr = process.communicate(timeout=DEADLINE_SECONDS)
    return finished(process.returncode, [*seen, *stdout.splitlines()], stderr)


def finished(exit_code: int, lines: Iterable[str], stderr: str) -> Finished:
    """The ending that these lines of output tell of."""
    events = (json.loads(line.removeprefix(LINE_PREFIX)) for line in lines if line.startswith(LINE_PREFIX))
    return Finished(exit_code=exit_code, events=tuple(events), stderr=stderr)


def read_until(process: subprocess.Popen[str], wanted: Callable[[Mapping[str, Any]], bool]) -> list[str]:
    """The output's lines up to the first event that is wanted; AssertionError where it ends before."""
    assert process.stdout is not None
    seen = []
    for line in process.stdout:
        seen.append(line.rstrip("\n"))
        if line.startswith(LINE_PREFIX) and wanted(json.loads(line.removeprefix(LINE_PREFIX))):
            return seen
    raise AssertionError(f"the trainer ended before: {seen} {process.stderr and process.stderr.read()}")


def stop_at_step(process: subprocess.Popen[str], step: int) -> Finished:
    """Send the stop signal to the process itself, after the step; then wait for its end."""
    seen = read_until(process, lambda facts: facts["event"] == "step" and facts["step"] == step)
    process.send_signal(signal.SIGTERM)
    return finish(process, seen=seen)


def handles_stop_signal(process: subprocess.Popen[str]) -> None:
    """Return as soon as the process has a handler of its own for the stop signal."""
    deadline = time.monotonic() + DEADLINE_SECONDS
    while time.monotonic() < deadline:
        status = Path(f"/proc/{process.pid}/status").read_text()
        caught = next(line.split()[1] for line in status.splitlines() if line.startswith("SigCgt:"))
        if int(caught, 16) & 1 << (signal.SIGTERM - 1):
            return
        time.sleep(0.01)
    raise AssertionError("the process has no handler for the stop signal")


def folder_site(folder: Path) -> TrainingSite:
    """A site whose buckets are folders."""
    for bucket in ("data", "checkpoints"):
        (folder / bucket).mkdir()
    variables = {
        "SPILLWAY_STORE_ENDPOINT": folder.as_uri(),
        "SPILLWAY_STORE_REGION": "here",
        "SPILLWAY_STORE_ACCESS_KEY": "none",
        "SPILLWAY_STORE_SECRET_KEY": "none",
        "SPILLWAY_DATASET_BUCKET": "data",
        "SPILLWAY_CHECKPOINT_BUCKET": "checkpoints",
    }
    data, checkpoints = LocalStore(folder / "data"), LocalStore(folder / "checkpoints")
    load_digits(data)
    return TrainingSite(data=data, bucket=checkpoints, variables=variables)
