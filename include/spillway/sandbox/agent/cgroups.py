"""A memory limit by control group, where the machine lets this process make one."""

from __future__ import annotations

import contextlib
import os
import time
from dataclasses import dataclass
from pathlib import Path

_ROOT = Path("/sys/fs/cgroup")
_PARENT = "spillway"


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
        if self.directory is None:
            return
        for _ in range(20):
            with contextlib.suppress(OSError):
                self.directory.rmdir()
                return
            time.sleep(0.005)


def memory_group(name: str, limit_bytes: int | None) -> MemoryGroup:
    """A group with the limit; one that limits nothing where there is no limit or no control over memory."""
    if limit_bytes is None:
        return MemoryGroup(directory=None)
    for hierarchy, file in ((_ROOT / "memory", "memory.limit_in_bytes"), (_ROOT, "memory.max")):
        directory = hierarchy / f"{_PARENT}-{name}"
        with contextlib.suppress(OSError):
            if file == "memory.max":
                (hierarchy / "cgroup.subtree_control").write_text("+memory")
            elif not os.access(hierarchy / "memory.limit_in_bytes", os.W_OK):
                continue
            directory.mkdir(exist_ok=True)
            (directory / file).write_text(str(limit_bytes))
            return MemoryGroup(directory=directory)
    return MemoryGroup(directory=None)
