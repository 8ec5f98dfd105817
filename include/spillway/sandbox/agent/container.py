"""One container: its launcher process, its log, its state as the pod's status tells it."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import sys
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from spillway.sandbox.agent.cgroups import killed_for_memory, memory_group, remove_group, remove_groups
from spillway.sandbox.agent.logs import LogWriter, last_text
from spillway.sandbox.kube.quantities import stamp

LAUNCHER = Path(__file__).with_name("launcher.py")
_START_FAILED = 128
_LINE_BYTES = 1 << 18
_MESSAGE_BYTES = 4096
_TOOLS_PATH = "/usr/sbin:/usr/bin:/sbin:/bin"


@dataclass(frozen=True, slots=True, kw_only=True)
class Start:
    """All that a container is started from, as the launcher reads it."""

    image_digest: str
    image_root: str
    argv: list[str]
    environment: Mapping[str, str] = field(repr=False)
    working_directory: str
    mounts: list[dict[str, Any]]
    masks: list[str]
    isolation: str
    memory_limit_bytes: int | None


class Container:
    """A container of a pod, started at most once.

    ``directory`` is the pod's, named by its uid; it holds the container's files, also after its end.
    """

    def __init__(self, spec: Mapping[str, Any], directory: Path) -> None:
        self.spec, self.name = spec, str(spec["name"])
        self.image_id = ""
        self._directory = directory
        self._process: asyncio.subprocess.Process | None = None
        self.state: dict[str, Any] = {"waiting": {"reason": "ContainerCreating"}}
        self._memory: Path | None = None

    @property
    def log_file(self) -> Path:
        return self._directory / f"{self.name}.log"

    @property
    def running(self) -> bool:
        return "running" in self.state

    @property
    def exit_code(self) -> int | None:
        code: int | None = self.state.get("terminated", {}).get("exitCode")
        return code

    def status(self) -> dict[str, Any]:
        return {
            "name": self.name,
            "image": self.spec["image"],
            "imageID": self.image_id,
            "containerID": f"process://{self._process.pid}" if self._process else "",
            "ready": self.running,
            "started": self.running,
            "restartCount": 0,
            "state": self.state,
        }

    def set_waiting(self, reason: str, message: str) -> None:
        """Say why it does not run yet."""
        self.state = {"waiting": {"reason": reason, "message": message}}

    async def start(self, start: Start) -> None:
        """Start it; it counts as running when its launcher does."""
        for suffix in ("termination", "failure"):
            self._file(suffix).write_bytes(b"")
        scratch = self._file("scratch")
        scratch.mkdir(exist_ok=True)
        if start.memory_limit_bytes is not None:
            self._memory = memory_group(self._directory.name, self.name, start.memory_limit_bytes)
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-I",
            "-S",
            str(LAUNCHER),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            env={"PATH": _TOOLS_PATH},
            cwd="/",
            start_new_session=True,
            limit=_LINE_BYTES,
        )
        self._process = process
        self._file("pid").write_text(f"{process.pid} {start_ticks(process.pid)}")
        assert process.stdin is not None
        process.stdin.write(json.dumps(self._launch(start, scratch)).encode())
        process.stdin.close()
        self.image_id = start.image_digest
        self.state = {"running": {"startedAt": stamp(datetime.now(UTC))}}

    def _launch(self, start: Start, scratch: Path) -> dict[str, Any]:
        message = {"source": str(self._file("termination")), "target": self.spec["terminationMessagePath"]}
        return {
            **asdict(start),
            "agent_pid": os.getpid(),
            "failure_file": str(self._file("failure")),
            "cgroup_files": [str(self._memory / "cgroup.procs")] if self._memory else [],
            "scratch": str(scratch),
            "mounts": [*start.mounts, {**message, "read_only": False}],
        }

    async def wait(self) -> int:
        """Its exit code, when it and every process of it are gone and its last line is in the log."""
        process = self._process
        assert process is not None and process.stdout is not None and process.stderr is not None
        writer = LogWriter(self.log_file)
        copies = asyncio.gather(writer.copy(process.stdout, "stdout"), writer.copy(process.stderr, "stderr"))
        code = await process.wait()
        self._signal_group(signal.SIGKILL)
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(copies, 5)
        writer.close()
        code = code if code >= 0 else 128 - code
        out_of_memory = False
        if self._memory:
            out_of_memory = code == 128 + signal.SIGKILL and killed_for_memory(self._memory)
            await asyncio.to_thread(remove_group, self._memory)
        self._finish(code, out_of_memory=out_of_memory)
        return code

    def _finish(self, code: int, *, out_of_memory: bool) -> None:
        started = self.state.get("running", {}).get("startedAt")
        failure = self._file("failure").read_text(errors="replace")
        reason = "OOMKilled" if out_of_memory else "Completed" if code == 0 else "Error"
        message = self._file("termination").read_bytes()[:_MESSAGE_BYTES].decode(errors="replace")
        if code == _START_FAILED and failure:
            reason, message = "StartError", failure
        elif code and not message and self.spec.get("terminationMessagePolicy") == "FallbackToLogsOnError":
            message = last_text(self.log_file, lines=80, limit_bytes=2048)
        ended = {"exitCode": code, "reason": reason, "startedAt": started, "finishedAt": stamp(datetime.now(UTC))}
        self.state = {"terminated": {**ended, **({"message": message} if message else {})}}
        for suffix in ("pid", "failure"):
            self._file(suffix).unlink(missing_ok=True)
        with contextlib.suppress(OSError):
            self._file("scratch").rmdir()

    def terminate(self) -> None:
        """SIGTERM to the container's PID 1."""
        if self.running and self._process:
            with contextlib.suppress(ProcessLookupError):
                self._process.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        """SIGKILL: the launcher dies, and with it, by the kernel, PID 1 and all of the container."""
        if self.running:
            self._signal_group(signal.SIGKILL)

    def _signal_group(self, number: signal.Signals) -> None:
        if self._process:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(self._process.pid, number)

    def _file(self, suffix: str) -> Path:
        return self._directory / f"{self.name}.{suffix}"


def start_ticks(pid: int) -> str:
    """When the process started, in clock ticks after boot: with the pid it names a process for ever; empty if gone."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[19]
    except OSError:
        return ""


def was_started(pod_directory: Path) -> bool:
    """Whether an agent started a container of the pod, which may never have been reported."""
    return any(pod_directory.glob("*.termination"))


def sweep(pods_directory: Path) -> int:
    """End the containers that an earlier agent left behind, and their limits; gives how many were still alive."""
    alive = 0
    for file in pods_directory.glob("*/*.pid"):
        pid, _, ticks = file.read_text().partition(" ")
        if pid and ticks and start_ticks(int(pid)) == ticks:
            alive += 1
            os.killpg(int(pid), signal.SIGKILL)
        file.unlink()
    for directory in pods_directory.iterdir():
        remove_groups(directory.name)
    return alive
