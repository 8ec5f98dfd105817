"""One small supervisor: starts every process in stages, restarts the dead with back-off, ends the whole group.

Each process runs in a group of its own and carries ``SPILLWAY_SANDBOX=<state directory>`` in its environment, so that
whatever a crash leaves behind (the supervisor's own death included) is found again through /proc and swept: nothing
outlives ``down``, and a new ``up`` begins clean. A process whose name has a file in ``held/`` stays down until the file
is gone: that is how a drill takes a node or a site away. Processes may also come and go while it runs, as machines do.

What the supervisor cannot write, or a process that it cannot start, is no reason to end the others: it is told in the
log once, tried again, and told once more when it is over. A supervisor whose pid file is gone, with its state directory
as a rule, could be found by nobody and ends.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import logging
import os
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import IO

from spillway.errors import SandboxError
from spillway.sandbox.process import ProcessSpec

log = logging.getLogger(__name__)

MARK = "SPILLWAY_SANDBOX"
HELD = "held"
FIRST_BACK_OFF_SECONDS = 0.5
LONGEST_BACK_OFF_SECONDS = 30.0
STEADY_SECONDS = 60.0
TICK_SECONDS = 0.2


@dataclass(slots=True)
class _Child:
    spec: ProcessSpec
    process: subprocess.Popen[bytes] | None = None
    ready: bool = False
    ending: bool = False
    may_go: bool = False
    starts: int = 0
    started_at: float = 0.0
    next_start_at: float = 0.0
    back_off_seconds: float = FIRST_BACK_OFF_SECONDS

    @property
    def alive(self) -> bool:
        return self.process is not None and self.process.poll() is None

    def back_off(self, now: float) -> None:
        """Put the next start off, each time for longer."""
        self.process, self.ready = None, False
        self.next_start_at = now + self.back_off_seconds
        self.back_off_seconds = min(2 * self.back_off_seconds, LONGEST_BACK_OFF_SECONDS)


@dataclass(slots=True)
class Supervisor:
    """Runs the processes of ``specs`` until told to stop; ``status.json`` says how each one is.

    ``passing`` gives those that run beside them now; one that it no longer gives is killed.
    """

    state: Path
    specs: Sequence[ProcessSpec]
    passing: Callable[[], Sequence[ProcessSpec]] = tuple
    stopping: bool = False
    _children: list[_Child] = field(default_factory=list)
    _failing: set[str] = field(default_factory=set)
    """What fails now and has been told."""

    def run(self) -> None:
        """Block until TERM or INT; then end every group and return."""
        lock = _lock(self.state)
        logging.basicConfig(format="%(asctime)s %(message)s")
        logging.raiseExceptions = False  # what a full disk does not take now is written with the next line
        sweep(self.state)
        self._children = [_Child(spec) for spec in self.specs]
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, lambda *_: setattr(self, "stopping", True))
        (self.state / "status.json").unlink(missing_ok=True)  # of a supervisor that was killed
        pid_file = self.state / "supervisor.pid"
        pid_file.write_text(str(os.getpid()))
        try:
            while not self.stopping and pid_file.exists():
                self._tick(time.monotonic())
                time.sleep(TICK_SECONDS)
        finally:
            self._end_all()
            sweep(self.state)
            pid_file.unlink(missing_ok=True)
            (self.state / "status.json").unlink(missing_ok=True)
            lock.close()

    def _tick(self, now: float) -> None:
        self._done("reading what comes and goes", self._come_and_go)
        open_stage = min((c.spec.stage for c in self._children if not c.ready and not self._held(c)), default=None)
        for child in self._children:
            if child.alive:
                self._look_after(child, now)
            elif not self._held(child) and (open_stage is None or child.spec.stage <= open_stage):
                self._start_when_due(child, now)
            elif self._held(child):
                _put_aside(child)
        self._done("writing status.json", self._write_status)

    def _come_and_go(self) -> None:
        wanted = {spec.name: spec for spec in self.passing()}
        for child in [child for child in self._children if child.may_go and child.spec.name not in wanted]:
            _kill_group(child.process, signal.SIGKILL)
            if child.process is not None:
                child.process.wait()
            self._children.remove(child)
        known = {child.spec.name for child in self._children}
        self._children += [_Child(spec, may_go=True) for name, spec in wanted.items() if name not in known]

    def _look_after(self, child: _Child, now: float) -> None:
        if self._held(child):
            _kill_group(child.process, signal.SIGKILL)
            return
        if not child.ready:
            child.ready = child.spec.ready()
        if now - child.started_at > STEADY_SECONDS:
            child.back_off_seconds = FIRST_BACK_OFF_SECONDS

    def _start_when_due(self, child: _Child, now: float) -> None:
        if child.process is not None:
            _kill_group(child.process, signal.SIGKILL)
            child.back_off(now)
        if now < child.next_start_at:
            return
        child.starts, child.started_at = child.starts + 1, now
        if not self._done(f"starting {child.spec.name}", partial(_start, child, self.state)):
            child.back_off(now)

    def _held(self, child: _Child) -> bool:
        return (self.state / HELD / child.spec.name).exists()

    def _done(self, what: str, action: Callable[[], None]) -> bool:
        """Whether the action could be done; logged when that begins to fail and when it works again."""
        try:
            action()
        except (OSError, SandboxError) as problem:
            if what not in self._failing:
                self._failing.add(what)
                log.warning("%s fails and is tried again: %s", what, problem)
            return False
        if what in self._failing:
            self._failing.remove(what)
            log.warning("%s works again", what)
        return True

    def _state(self, child: _Child) -> str:
        if child.ending:
            return "ending"
        return "held" if self._held(child) else "ready" if child.ready and child.alive else "starting"

    def _write_status(self) -> None:
        status = {
            child.spec.name: {
                "state": self._state(child),
                "pid": child.process.pid if child.process is not None and child.alive else None,
                "starts": child.starts,
            }
            for child in self._children
        }
        unfinished = self.state / "status.json.partial"
        unfinished.write_text(json.dumps(status))
        unfinished.replace(self.state / "status.json")

    def _end_all(self) -> None:
        for stage in sorted({child.spec.stage for child in self._children}, reverse=True):
            group = [child for child in self._children if child.spec.stage == stage and child.process is not None]
            for child in group:
                child.ending = True
                _kill_group(child.process, signal.SIGTERM)
            self._done("writing status.json", self._write_status)
            for child in group:
                assert child.process is not None
                with contextlib.suppress(subprocess.TimeoutExpired):
                    child.process.wait(child.spec.stop_grace.total_seconds())
                _kill_group(child.process, signal.SIGKILL)
                child.process.wait()


def _put_aside(child: _Child) -> None:
    """A process that a drill took has not failed: it starts without delay when it is given back."""
    _kill_group(child.process, signal.SIGKILL)
    child.process, child.ready = None, False
    child.next_start_at, child.back_off_seconds = 0.0, FIRST_BACK_OFF_SECONDS


def _start(child: _Child, state: Path) -> None:
    spec = child.spec
    spec.working_directory.mkdir(parents=True, exist_ok=True)
    (state / "logs").mkdir(exist_ok=True)
    for leftover in spec.cleanup:
        leftover.unlink(missing_ok=True)
    with (state / "logs" / f"{spec.name}.log").open("ab") as log_file:
        child.process = subprocess.Popen(
            spec.argv,
            env=dict(spec.environment) | {MARK: str(state)},
            cwd=spec.working_directory,
            stdin=subprocess.DEVNULL,
            stdout=log_file,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )


def _kill_group(process: subprocess.Popen[bytes] | None, number: signal.Signals) -> None:
    if process is not None:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, number)


def _lock(state: Path) -> IO[str]:
    """Hold the state directory for the length of the process; a second supervisor is refused."""
    state.mkdir(parents=True, exist_ok=True)
    file = (state / "supervisor.lock").open("w")
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as taken:
        file.close()
        raise SandboxError(f"a sandbox is already running on {state}; stop it first: make down") from taken
    return file


def hold(state: Path, names: Iterable[str]) -> None:
    """Have the processes killed and kept down."""
    (state / HELD).mkdir(exist_ok=True)
    for name in names:
        (state / HELD / name).touch()


def held_processes(state: Path) -> frozenset[str]:
    """The names of the processes that are kept down."""
    folder = state / HELD
    return frozenset(file.name for file in folder.iterdir()) if folder.is_dir() else frozenset()


def release_all(state: Path) -> None:
    """Let every process that is kept down start again."""
    shutil.rmtree(state / HELD, ignore_errors=True)


def marked_processes(state: Path) -> Iterator[int]:
    """The pids, other than this one, whose environment names the state directory."""
    mark = f"{MARK}={state}".encode()
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal() and int(entry.name) != os.getpid():
            with contextlib.suppress(OSError):
                if mark in (entry / "environ").read_bytes().split(b"\0"):
                    yield int(entry.name)


def sweep(state: Path) -> int:
    """Kill what an earlier run left behind; gives how many processes there were."""
    found: set[int] = set()
    for _ in range(50):
        alive = set(marked_processes(state))
        if not alive:
            break
        found |= alive
        for pid in alive:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        time.sleep(0.1)
    return len(found)


def supervisor_pid(state: Path) -> int | None:
    """The pid of the living supervisor of the state directory; a number that another process has by now is not it."""
    try:
        pid = int((state / "supervisor.pid").read_text())
        descriptors = list(Path(f"/proc/{pid}/fd").iterdir())
    except (OSError, ValueError):
        return None
    lock = (state / "supervisor.lock").resolve()
    for descriptor in descriptors:
        with contextlib.suppress(OSError):
            if descriptor.readlink() == lock:
                return pid
    return None


def read_status(state: Path) -> dict[str, dict[str, object]] | None:
    """How each process is, or None where no supervisor runs."""
    if supervisor_pid(state) is None:
        return None
    try:
        status: dict[str, dict[str, object]] = json.loads((state / "status.json").read_text())
    except (OSError, ValueError):
        return None
    return status
