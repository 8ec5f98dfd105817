"""Which kind of isolation this machine allows, found by starting something in it."""

from __future__ import annotations

import json
import logging
import os
import subprocess
import sys
import tempfile
from pathlib import Path

from spillway.sandbox.agent.container import LAUNCHER

log = logging.getLogger(__name__)

_TRIAL_SECONDS = 20


def best_isolation(root: Path) -> str:
    """``root`` (namespaces and overlay), ``user`` (the same within a user namespace) or, at last, ``plain``.

    A plain container is a process of the host with the image's paths put before the host's: it sees the host's files,
    masks and volumes are not possible, and what it starts may outlive a killed agent until the next one sweeps.
    """
    candidates = ("root", "user") if os.geteuid() == 0 else ("user",)
    for isolation in candidates:
        problem = _try(isolation, root)
        if problem is None:
            return isolation
        log.warning("isolation %r is not possible here: %s", isolation, problem)
    log.warning("containers run as plain processes: they see this host's files, and pods with volumes are refused")
    return "plain"


def _try(isolation: str, root: Path) -> str | None:
    """Why a container can't be started that way, or None."""
    with tempfile.TemporaryDirectory(dir=root, ignore_cleanup_errors=True) as scratch:
        directory = Path(scratch)
        image, failure = directory / "image", directory / "failure"
        for path in (image, directory / "scratch"):
            path.mkdir()
        trial = {
            "agent_pid": os.getpid(),
            "failure_file": str(failure),
            "cgroup_files": [],
            "isolation": isolation,
            "scratch": str(directory / "scratch"),
            "image_root": str(image),
            "masks": [],
            "mounts": [],
            "working_directory": "/",
            "argv": ["true"],
            "environment": {},
        }
        try:
            done = subprocess.run(
                [sys.executable, "-I", "-S", str(LAUNCHER)],
                input=json.dumps(trial).encode(),
                capture_output=True,
                timeout=_TRIAL_SECONDS,
                check=False,
            )
        except subprocess.TimeoutExpired:
            return f"no answer within {_TRIAL_SECONDS} s"
        if done.returncode == 0:
            return None
        return failure.read_text() if failure.exists() else done.stderr.decode(errors="replace")[-300:]
