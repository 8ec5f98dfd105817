"""A memory limit by control group, where the machine lets this process make one."""

from __future__ import annotations

import contextlib
import os
import time
from pathlib import Path

_ROOT = Path("/sys/fs/cgroup")
_HIERARCHIES = ((_ROOT / "memory", "memory.limit_in_bytes"), (_ROOT, "memory.max"))
"""Of the first and of the second version of control groups, with the file that holds a limit."""


def memory_group(pod_uid: str, container: str, limit_bytes: int) -> Path | None:
    """A group with the limit, as a directory; None where there is no control over memory and nothing is enforced."""
    for hierarchy, file in _HIERARCHIES:
        directory = hierarchy / f"{_prefix(pod_uid)}{container}"
        with contextlib.suppress(OSError):
            if file == "memory.max":
                (hierarchy / "cgroup.subtree_control").write_text("+memory")
            elif not os.access(hierarchy / file, os.W_OK):
                continue
            directory.mkdir(exist_ok=True)
            (directory / file).write_text(str(limit_bytes))
            return directory
    return None


def killed_for_memory(group: Path) -> bool:
    """Whether the kernel killed a process of the group because of the limit."""
    for name in ("memory.oom_control", "memory.events"):
        with contextlib.suppress(OSError):
            counts = dict(line.split() for line in (group / name).read_text().splitlines())
            return int(counts.get("oom_kill", 0)) > 0
    return False


def remove_groups(pod_uid: str) -> None:
    """Remove the groups that an agent left behind which was killed."""
    for hierarchy, _ in _HIERARCHIES:
        for group in hierarchy.glob(f"{_prefix(pod_uid)}*"):
            remove_group(group)


def remove_group(group: Path) -> None:
    """Remove the group; its last processes may take a moment to leave."""
    for _ in range(20):
        with contextlib.suppress(OSError):
            group.rmdir()
            return
        time.sleep(0.005)


def _prefix(pod_uid: str) -> str:
    return f"spillway-{pod_uid}-"
