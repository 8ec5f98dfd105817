"""File systems of a size of their own, for what a full disk does."""

from __future__ import annotations

import contextlib
import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest


@contextmanager
def small_disk(folder: Path, options: str) -> Iterator[Path]:
    """A tmpfs with these mount options at ``folder``; the test is skipped where this user may not mount one."""
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", options, "tmpfs", str(folder)]
    done = subprocess.run(mount, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        pytest.skip(f"a file system of its own needs the right to mount one: {done.stderr.strip()}")
    try:
        yield folder
    finally:
        subprocess.run(["umount", "--lazy", str(folder)], check=True)


@contextmanager
def read_only(disk: Path, wanted: bool = True) -> Iterator[None]:
    """The file system at ``disk`` cannot be written for the length of the block; or, inside of that, can."""
    _remount(disk, read_only=wanted)
    try:
        yield
    finally:
        _remount(disk, read_only=not wanted)


def _remount(disk: Path, *, read_only: bool) -> None:
    subprocess.run(["mount", "-o", f"remount,{'ro' if read_only else 'rw'}", str(disk)], check=True)


@contextmanager
def filled(folder: Path, *, left_bytes: int = 0) -> Iterator[None]:
    """No more than this is left on the disk of ``folder`` for the length of the block."""
    file = folder / "filler"
    descriptor = os.open(file, os.O_WRONLY | os.O_CREAT)
    try:
        for size in (1 << 16, 1 << 12, 1):
            with contextlib.suppress(OSError):
                while True:
                    os.write(descriptor, b"x" * size)
        os.truncate(descriptor, os.fstat(descriptor).st_size - left_bytes)
        yield
    finally:
        os.close(descriptor)
        file.unlink()
