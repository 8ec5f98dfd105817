"""What a command shows: plain lines on a pipe, the same lines above a moving one on a terminal."""

from __future__ import annotations

import io
import json
import os
import re
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, TextIO

from spillway.errors import SpillwayError

Show = Callable[[str], None]


def _line(text: str) -> None:
    print(text, flush=True)


def printable(text: str) -> str:
    """The text with whatever a terminal would obey, hide or turn round shown escaped: names may hold anything."""
    if text.isprintable():
        return text
    return "".join(sign if sign.isprintable() else sign.encode("unicode_escape").decode() for sign in text)


def _printable_lines(text: str) -> str:
    """The same for an answer, whose lines and tabs are its own."""
    return text if text.isprintable() else re.sub(r"[^\n\t]+", lambda part: printable(part[0]), text)


@contextmanager
def _writing(stream: TextIO) -> Iterator[None]:
    """Let go of what the stream could not write, which would be tried again, at the latest when the process ends."""
    try:
        yield
    except OSError as problem:
        descriptor = stream.fileno()
        kept = os.dup(descriptor)
        with Path(os.devnull).open("wb") as nowhere:
            os.dup2(nowhere.fileno(), descriptor)
        stream.flush()
        closed = isinstance(problem, BrokenPipeError)
        if not closed:
            os.dup2(kept, descriptor)
        os.close(kept)
        if closed:
            raise
        raise OutputLost(problem) from problem


class OutputLost(SpillwayError):
    """An answer did not reach whoever asked: the output, or the file that was named for it, cannot be written."""

    def __init__(self, problem: OSError, what: str = "the output") -> None:
        super().__init__(f"{what} cannot be written: {problem.strerror}; send it elsewhere and run it again")
        self.reason = problem.strerror


def check_place(file: Path) -> None:
    """Find out whether the file can be written before work is done for it; it is as it was then.

    Raises:
        OutputLost: it cannot.
    """
    was_there = file.exists()
    try:
        file.open("ab").close()
        if not was_there:
            file.unlink()
    except OSError as problem:
        raise OutputLost(problem, str(file)) from problem


def open_closed_streams() -> None:
    """Let standard streams that the process was started without lead nowhere.

    Otherwise the next file that is opened, as a database, would take the number of such a stream.
    """
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        if getattr(sys, name) is None:
            opened = os.open(os.devnull, os.O_RDWR)
            if opened != number:  # a file has its number already
                os.dup2(opened, number)
                os.close(opened)
            setattr(sys, name, os.fdopen(number, "w" if number else "r"))


class Console:
    """Answers go to standard output, whole lines each; problems to standard error.

    What an output's encoding cannot express, or a terminal would obey, is shown escaped. A pipe that its reader has
    closed, as ``| head`` does, is a BrokenPipeError once, to end the command; what is said while that tidies up goes
    nowhere.
    """

    def __init__(self, *, json: bool = False) -> None:
        """With ``json`` a program reads the answer, and gets one also where the command fails before it has any."""
        self._owes_json = json
        if isinstance(sys.stdout, io.TextIOWrapper):
            sys.stdout.reconfigure(errors="backslashreplace")
        self._dropped = False
        self.cut_off = ""
        """What was under way when the command was told to end, and how far; behind a word like `interrupted`."""

    def say(self, text: str) -> None:
        """An answer: a line, or several.

        Raises:
            OutputLost: it cannot be written, as where the disk of the output is full.
        """
        with _writing(sys.stdout):
            _line(_printable_lines(text))

    def tell(self, text: str, show: Show = _line) -> None:
        """A line of work that goes on; dropped where it cannot be written, for no run should die of a full log disk.

        Args:
            show: writes it to standard output.
        """
        try:
            with _writing(sys.stdout):
                show(_printable_lines(text))
        except OutputLost as lost:
            if not self._dropped:
                self._dropped = True
                self.complain(f"the output cannot be written: {lost.reason}; its lines are dropped until it can be")

    def complain(self, text: str) -> None:
        """One problem, for a person; where even that cannot be written there is nobody left to tell."""
        with suppress(OutputLost, BrokenPipeError), _writing(sys.stderr):
            print(f"spillway: {_printable_lines(text)}", file=sys.stderr, flush=True)

    def data(self, value: Any) -> None:
        """Plain data as JSON."""
        self._owes_json = False
        self.say(json.dumps(value, indent=1))

    def no_answer(self, kind: str, message: str, *, fix: str = "", retry_helps: bool = False) -> None:
        """Tell a program that the command ended without what was asked for, and why; nothing where none listens.

        Args:
            kind: the class of the error.
            fix: what to do, where that is known apart from the message.
            retry_helps: whether the same command may succeed later without anybody changing anything.
        """
        if self._owes_json:
            error = {"kind": kind, "message": message, "fix": fix or None, "retry_helps": retry_helps}
            with suppress(OutputLost, BrokenPipeError):
                self.data({"error": error})

    def table(self, header: Sequence[str], rows: Sequence[Sequence[object]]) -> None:
        """Aligned columns; what is unknown is shown as a dash."""
        cells = [list(header), *(["-" if cell is None else str(cell) for cell in row] for row in rows)]
        widths = [max(len(row[column]) for row in cells) for column in range(len(header))]
        for row in cells:
            self.say("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip())

    @property
    def pace_seconds(self) -> float:
        """How often the state of a work is worth showing: a moving line may move, a log should not fill up."""
        return 0.2 if sys.stdout.isatty() else 30.0

    @contextmanager
    def working(self, text: str) -> Iterator[Show]:
        """Show that something is going on; gives ``say`` for the lines in between."""
        with self.following(text) as (say, _):
            yield say

    @contextmanager
    def following(self, text: str, so_far: Callable[[], str] = str) -> Iterator[tuple[Show, Show]]:
        """As ``working``; gives also ``show`` for how far it is, on a terminal in place of what it showed last.

        Args:
            so_far: how far it is at that moment, for whoever ends it; empty where nobody knows.
        """
        try:
            with self._shown(text) as shows:
                yield shows
        except KeyboardInterrupt:
            self.cut_off = ": ".join(filter(None, (f" in {text}", so_far())))
            raise

    @contextmanager
    def counting(self, text: str) -> Iterator[Show]:
        """Gives ``show`` for a work without lines of its own; on a pipe each state is told with what it is of."""
        with self.following(text) as (_, show):
            yield show if sys.stdout.isatty() else lambda state: show(f"{text}: {state}")

    @contextmanager
    def _shown(self, text: str) -> Iterator[tuple[Show, Show]]:
        if not sys.stdout.isatty():
            yield self.tell, self.tell
            return
        from rich.console import Console as Terminal

        terminal = Terminal(markup=False, highlight=False, soft_wrap=True)
        with terminal.status(text) as status:
            yield (
                lambda line: self.tell(line, terminal.print),
                lambda state: self.tell(f"{text}: {state}", status.update),
            )
