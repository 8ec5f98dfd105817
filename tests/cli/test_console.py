"""What a command shows on a terminal and on a pipe."""

from __future__ import annotations

import os
import pty
import subprocess
import sys
from pathlib import Path

INCLUDE = Path(__file__).resolve().parents[2] / "include"
SCRIPT = """
from spillway.commands.console import Console
with Console().working("moving things") as say:
    say("one [red] thing has moved")
"""


def show(stdout: int) -> None:
    environment = {"PYTHONPATH": str(INCLUDE), "TERM": "xterm", "PATH": os.environ["PATH"]}
    subprocess.run([sys.executable, "-c", SCRIPT], env=environment, stdout=stdout, check=True)


def test_a_terminal_shows_what_goes_on_and_every_line() -> None:
    controller, terminal = pty.openpty()
    show(terminal)
    os.close(terminal)
    seen = b""
    try:
        while chunk := os.read(controller, 4096):
            seen += chunk
    except OSError:  # the terminal's other end is closed
        pass
    os.close(controller)
    assert b"moving things" in seen and b"one [red] thing has moved" in seen


def test_a_pipe_gets_the_lines_alone() -> None:
    reader, writer = os.pipe()
    show(writer)
    os.close(writer)
    with os.fdopen(reader) as pipe:
        assert pipe.read() == "one [red] thing has moved\n"
