"""``python -m spillway``: preflight, explain, sync, images, checkpoints, runs, ledger.

Exit code 0 when it is done, 1 with one message where it is not, 2 for words that make no sense, 130 after Ctrl-C.
"""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Sequence

from spillway.commands import checkpoints, explain, ledger, movement, preflight, runs
from spillway.commands.console import Console
from spillway.commands.installation import installation
from spillway.commands.parsing import Parser
from spillway.errors import SpillwayError

SUBJECTS = (preflight, explain, movement, checkpoints, runs, ledger)
INTERRUPTED = 130


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; gives its exit code."""
    options = parser().parse_args(arguments)
    console = Console()
    # Clients that try again say so on their own; what becomes of it is in the one message at the end.
    logging.getLogger("urllib3").setLevel(logging.ERROR)
    try:
        chosen = installation(config_dir=options.config_dir, connections=options.connections)
        return int(options.command(chosen, console, options))
    except SpillwayError as problem:
        console.complain(str(problem))
        return 1
    except BrokenPipeError:  # whoever read the answer has seen enough, as `| head` does
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except KeyboardInterrupt:
        console.complain("interrupted; what was begun is taken up by the same command")
        return INTERRUPTED


def parser() -> Parser:
    """The words of every command."""
    whole = Parser(prog="python -m spillway", description="Train where there is room: look, explain, move, run.")
    commands = whole.add_subparsers(metavar="COMMAND", required=True)
    for subject in SUBJECTS:
        subject.register(commands)
    return whole


if __name__ == "__main__":
    sys.exit(main())
