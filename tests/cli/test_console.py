"""What a command shows on a terminal and on a pipe."""

from __future__ import annotations

import os
import pty
import subprocess
import sys
from pathlib import Path

from spillway.testing.command_line import StartSpillway

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


def test_what_the_encoding_of_the_output_cannot_express_is_escaped() -> None:
    environment = {"PYTHONPATH": str(INCLUDE), "PYTHONIOENCODING": "ascii"}
    argv = [sys.executable, "-c", "from spillway.commands.console import Console; Console().say('Größe')"]
    done = subprocess.run(argv, env=environment, capture_output=True, check=True)
    assert done.stdout == b"Gr\\xf6\\xdfe\n"


def test_what_a_terminal_would_obey_or_turn_round_is_shown_escaped() -> None:
    program = (
        "from spillway.commands.console import Console, printable\n"
        "Console().say('a\\x1b[2Jb \\u202egnp.exe\\nGröße\\t😀')\n"
        "Console().complain('\\x9b1m\\r' + printable('two\\nlines'))\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program],
        env={"PYTHONPATH": str(INCLUDE), "PYTHONIOENCODING": "utf-8"},
        capture_output=True,
        text=True,
        encoding="utf-8",
        check=True,
    )
    assert done.stdout == "a\\x1b[2Jb \\u202egnp.exe\nGröße\t😀\n"
    assert done.stderr == "spillway: \\x9b1m\\rtwo\\nlines\n"


FULL = """
import os
from spillway.commands.console import Console, OutputLost
console = Console()
with console.working("training") as say:
    say("step 1")
    say("step 2")
before = os.dup(1)
with open({elsewhere!r}, "wb") as file:  # somebody has freed some space
    os.dup2(file.fileno(), 1)
    console.tell("step 3")
os.dup2(before, 1)
try:
    console.say("the answer")
except OutputLost as problem:
    console.complain(str(problem))
"""


def test_on_a_full_disk_work_goes_on_without_its_lines_and_an_answer_is_missed(tmp_path: Path) -> None:
    argv = [sys.executable, "-c", FULL.format(elsewhere=str(tmp_path / "elsewhere"))]
    with Path("/dev/full").open("wb") as full:
        done = subprocess.run(
            argv, env={"PYTHONPATH": str(INCLUDE)}, stdout=full, stderr=subprocess.PIPE, text=True, check=False
        )
        nobody = subprocess.run(argv, env={"PYTHONPATH": str(INCLUDE)}, stdout=full, stderr=full, check=False)
    assert done.stderr == (
        "spillway: the output cannot be written: No space left on device; its lines are dropped until it can be\n"
        "spillway: the output cannot be written: No space left on device; send it elsewhere and run it again\n"
    )
    assert (tmp_path / "elsewhere").read_text() == "step 3\n"
    assert (done.returncode, nobody.returncode) == (0, 0)


CLOSED = """
import os
before = os.listdir("/proc/self/fd")
from spillway.commands.console import Console
try:
    Console().say("one")
except BrokenPipeError:
    Console().say("tidied up")
    assert os.listdir("/proc/self/fd") == before
    raise SystemExit(1)
"""


def test_a_pipe_that_its_reader_has_closed_ends_the_command_once_and_quietly() -> None:
    reader, writer = os.pipe()
    os.close(reader)
    argv = [sys.executable, "-c", CLOSED]
    done = subprocess.run(
        argv, env={"PYTHONPATH": str(INCLUDE)}, stdout=writer, stderr=subprocess.PIPE, text=True, check=False
    )
    os.close(writer)
    assert (done.returncode, done.stderr) == (1, "")


def test_a_pipe_gets_the_lines_alone() -> None:
    reader, writer = os.pipe()
    show(writer)
    os.close(writer)
    with os.fdopen(reader) as pipe:
        assert pipe.read() == "one [red] thing has moved\n"


def test_a_command_whose_reader_has_closed_the_pipe_ends_without_a_traceback(start_spillway: StartSpillway) -> None:
    process = start_spillway("explain", "quick")
    assert process.stdout is not None and process.stderr is not None
    process.stdout.close()  # as `| true` does
    assert (process.stderr.read(), process.wait(60)) == ("", 1)


def test_a_command_that_is_started_without_its_standard_streams_opens_no_file_in_their_place() -> None:
    program = (
        "import os, sys\n"
        "from spillway.commands.console import Console, open_closed_streams\n"
        "open_closed_streams()\n"
        "Console().say('an answer')\n"
        "Console().complain('a problem')\n"
        "assert os.open('/dev/null', os.O_RDONLY) > 2\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program],
        env={"PYTHONPATH": str(INCLUDE)},
        preexec_fn=lambda: os.closerange(0, 3),
        check=False,
    )
    assert done.returncode == 0
