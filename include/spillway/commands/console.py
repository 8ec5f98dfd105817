"""What a command shows: plain lines on a pipe, the same lines above a moving one on a terminal."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any


class Console:
    """Answers go to standard output, whole lines each; problems to standard error."""

    def say(self, text: str) -> None:
        """A line, or several."""
        print(text, flush=True)

    def complain(self, text: str) -> None:
        """One problem, for a person."""
        print(f"spillway: {text}", file=sys.stderr, flush=True)

    def data(self, value: Any) -> None:
        """Plain data as JSON."""
        self.say(json.dumps(value, indent=1))

    def table(self, header: Sequence[str], rows: Sequence[Sequence[object]]) -> None:
        """Aligned columns; what is unknown is shown as a dash."""
        cells = [list(header), *(["-" if cell is None else str(cell) for cell in row] for row in rows)]
        widths = [max(len(row[column]) for row in cells) for column in range(len(header))]
        for row in cells:
            self.say("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip())

    @contextmanager
    def working(self, text: str) -> Iterator[Callable[[str], None]]:
        """Show that something is going on; gives ``say`` for the lines in between."""
        if not sys.stdout.isatty():
            yield self.say
            return
        from rich.console import Console as Terminal

        terminal = Terminal(markup=False, highlight=False, soft_wrap=True)
        with terminal.status(text):
            yield terminal.print
