"""A memory limit by control group, where the machine lets this process make one."""

from __future__ import annotations

import contextlib
import os
import time
from dataclasses import dataclass
from pathlib import Path

_ROOT = Path("/sys/fs/cgroup")
_HIERARCHIES = ((_ROOT / "memory", "memory.limit_in_bytes"), (_ROOT, "memory.max"))
"""Of the first and of the second version of control groups, with the file that holds a limit."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryGroup:
    """One control group; ``directory`` is None where limits are not to be had and nothing is enforced."""

    directory: Path | None

    @property
    def process_files(self) -> list[str]:
        """Files that a process writes its id to in order to join."""
        return [str(self.directory / "cgroup.procs")] if self.directory else []

    def killed_for_memory(self) -> bool:
        """Whether the kernel killed a process of the group because of the limit."""
        if self.directory is None:
            return False
        for name in ("memory.oom_control", "memory.events"):
            with contextlib.suppress(OSError):
                counts = dict(line.split() for line in (self.directory / name).read_text().splitlines())
                return int(counts.get("oom_kill", 0)) > 0
        return False

    def remove(self) -> None:
        """Remove the group; its last processes may take a moment to leave."""
        if self.directory is not None:
            _remove(self.directory)


def memory_group(pod_uid: str, container: str, limit_bytes: int | None) -> MemoryGroup:
    """A group with the limit; one that limits nothing where there is no limit or no control over memory."""
    if limit_bytes is None:
        return MemoryGroup(directory=None)
    for hierarchy, file in _HIERARCHIES:
        directory = hierarchy / f"{_prefix(pod_uid)}{container}"
        with contextlib.suppress(OSError):
            if file == "memory.max":
                (hierarchy / "cgroup.subtree_control").write_text("+memory")
            elif not os.access(hierarchy / file, os.W_OK):
                continue
            directory.mkdir(exist_ok=True)
            (directory / file).write_text(str(limit_bytes))
            return MemoryGroup(directory=directory)
    return MemoryGroup(directory=None)


def remove_groups(pod_uid: str) -> None:
    """Remove the groups that an agent left behind which was killed."""
    for hierarchy, _ in _HIERARCHIES:
        for directory in hierarchy.glob(f"{_prefix(pod_uid)}*"):
            _remove(directory)


def _prefix(pod_uid: str) -> str:
    return f"spillway-{pod_uid}-"


def _remove(directory: Path) -> None:
    for _ in range(20):
        with contextlib.suppress(OSError):
            directory.rmdir()
            return
        time.sleep(0.005)
