"""Processes whose clock is wrong while that of everybody else is right."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from spillway.sandbox.settings import INCLUDE

_OFF = "SPILLWAY_TEST_CLOCK_OFF_SECONDS"
_SITE = f"""
import datetime, os, time

off, clock, clock_ns, plain = float(os.environ["{_OFF}"]), time.time, time.time_ns, datetime.datetime
time.time = lambda: clock() + off
time.time_ns = lambda: clock_ns() + int(off * 1e9)

class AnyDatetime(type):
    def __instancecheck__(cls, value):
        return isinstance(value, plain)

class WrongDatetime(plain, metaclass=AnyDatetime):
    @classmethod
    def now(cls, tz=None):
        return plain.fromtimestamp(time.time(), tz)

    @classmethod
    def utcnow(cls):
        return plain.fromtimestamp(time.time(), datetime.timezone.utc).replace(tzinfo=None)

datetime.datetime = WrongDatetime
"""


def run_with_clock_off(program: str, *arguments: str, seconds: float, folder: Path) -> subprocess.CompletedProcess[str]:
    """What a Python program did whose clock is so many seconds fast, or slow where they are fewer than none."""
    (folder / "sitecustomize.py").write_text(_SITE)
    environment = {**os.environ, _OFF: str(seconds), "PYTHONPATH": f"{folder}{os.pathsep}{INCLUDE}"}
    argv = [sys.executable, "-c", program, *arguments]
    return subprocess.run(argv, env=environment, capture_output=True, text=True, check=False, timeout=120)
