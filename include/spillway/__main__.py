"""``python -m spillway``: preflight, explain, sync, images, checkpoints, cache, runs, scale, history, ledger and so on.

Exit code 0 when it is done, 1 with one message where it is not, 2 for words that make no sense, 130 after Ctrl-C, 143
after SIGTERM.
"""

from __future__ import annotations

import os
import signal

if __name__ == "__main__" and signal.getsignal(signal.SIGINT) is not signal.SIG_IGN:
    # Nothing is under way while the rest is imported, and there is nobody yet to catch a KeyboardInterrupt.
    signal.signal(signal.SIGINT, lambda number, frame: os._exit(128 + number))

import logging
import sys
from collections.abc import Sequence
from importlib import import_module

from spillway.commands.console import Console, open_closed_streams
from spillway.commands.ending import end, end_on_signals, exit_code
from spillway.commands.parsing import Parser, WordsRefused
from spillway.errors import SpillwayError

COMMANDS = {
    "preflight": "name every gap and what to do; exit 1 if there is one",
    "explain": "show where a job would run now and why, or decide a run's placements again from their stored inputs",
    "sync": "make a dataset whole at a site: only what is new or changed moves",
    "images": "mirror images by digest to other sites' registries",
    "checkpoints": "the committed steps of a run: ls, verify, replicate, restore, prune",
    "cache": "what other sites keep, encrypted, of core data: ls, purge",
    "runs": "list, show, start, cancel, migrate, sweep",
    "shadow": "what another policy would have decided in place of the one in force, from stored decisions",
    "scale": "node pools that come and go: plan, apply, add, shrink, withdraw, orders, changes",
    "transfers": "what was moved between sites or refused, newest last",
    "history": "jobs as they were: export as a trace, import another scheduler's, make-up",
    "sample": "write down every half minute what clusters and queue are like, until it is ended",
    "demand": "GPUs, what they do, who waits for them, and how old each figure is",
    "costs": "what a month cost, budgets, and how to spend less: report, budgets, correct",
    "ledger": "the database of runs, decisions and costs: upgrade",
}
"""Each command is in the module of ``spillway.commands`` that has its name."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; gives its exit code."""
    words = sys.argv[1:] if arguments is None else arguments
    console = Console(json="--json" in words)
    # Clients that try again say so on their own; what becomes of it is in the one message at the end.
    logging.getLogger("urllib3").setLevel(logging.ERROR)
    try:
        options = parser(words).parse_words(words)
        from spillway.commands.installation import installation

        chosen = installation(config_dir=options.config_dir, connections=options.connections)
        return int(options.command(chosen, console, options))
    except WordsRefused as refusal:
        console.no_answer("WordsRefused", refusal.problem, fix="the command with --help tells its words")
        raise
    except SpillwayError as problem:
        console.complain(str(problem))
        console.no_answer(type(problem).__name__, problem.told, fix=problem.fix, retry_helps=problem.retry_helps)
        return 1
    except ModuleNotFoundError as missing:
        package = (missing.name or __package__).partition(".")[0]
        if package == __package__:
            raise
        told = f"the package '{package}' is not installed for {sys.executable}"
        fix = "take the python of the virtual environment (. .venv/bin/activate; make setup makes it)"
        console.complain(f"{told}; {fix}")
        console.no_answer("ModuleNotFoundError", told, fix=fix)
        return 1
    except BrokenPipeError:  # whoever read the answer has seen enough
        return 1
    except KeyboardInterrupt as ending:
        told, fix = f"interrupted{console.cut_off}", "what is done stays, the same command goes on from there"
        console.complain(f"{told}; {fix}")
        console.no_answer("Interrupted", told, fix=fix, retry_helps=True)
        return exit_code(ending)


def parser(arguments: Sequence[str]) -> Parser:
    """The names of all commands, and the words of the one that the arguments begin with: only its module is loaded."""
    chosen = next((word for word in arguments if not word.startswith("-")), None)
    whole = Parser(prog="python -m spillway", description="Train where there is room: look, explain, move, run.")
    commands = whole.add_subparsers(metavar="COMMAND", required=True)
    for name, text in COMMANDS.items():
        words = commands.add_parser(name, help=text, description=text)
        if name == chosen:
            import_module(f"spillway.commands.{name}").register(words)
    return whole


if __name__ == "__main__":
    open_closed_streams()
    end_on_signals()
    code = main()
    end(code) if code > 128 else sys.exit(code)
