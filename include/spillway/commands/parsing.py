"""Words of a command line, with a hint for the one that was nearly right."""

from __future__ import annotations

import argparse
import re
from collections.abc import Callable, Sequence
from contextlib import suppress
from datetime import timedelta
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn, TypeAlias

from spillway.commands.console import Console
from spillway.errors import UnknownName

if TYPE_CHECKING:
    from spillway.commands.installation import Installation

Command: TypeAlias = "Callable[[Installation, Console, argparse.Namespace], int]"
"""Does what the options say; gives the exit code."""

Subcommands: TypeAlias = "argparse._SubParsersAction[Parser]"

MOST = 10**15
"""No number of a command is higher: a database, a clock and a list still take it."""
_NUMBER = re.compile(r"-\.?[0-9]")


class WordsRefused(SystemExit):
    """Words that make no sense; the usage and the problem have been told."""

    def __init__(self, problem: str) -> None:
        super().__init__(2)
        self.problem = problem


class Parser(argparse.ArgumentParser):
    """Tells which of its words is close to one it does not know, and the usage of the command that got too many.

    What begins as a negative number does is a value, so that ``--since -7d`` is told what is wrong with it.
    """

    def __init__(self, *arguments: Any, **named: Any) -> None:
        super().__init__(*arguments, **named)
        self._negative_number_matcher = _NUMBER
        self.set_defaults(usage_error=self.error)  # that of the last command among the words counts

    def error(self, message: str) -> NoReturn:
        with suppress(SystemExit):
            super().error(message)
        raise WordsRefused(message)

    def parse_words(self, words: Sequence[str]) -> argparse.Namespace:
        """What the words say; raises WordsRefused."""
        options, unknown = self.parse_known_args(words)
        if unknown:
            options.usage_error(f"unrecognized arguments: {' '.join(unknown)}")
        for value in vars(options).values():
            if isinstance(value, str) and not value.isascii() and value != value.encode(errors="replace").decode():
                options.usage_error(f"expected UTF-8 text, got {value!r}")
        return options

    def _get_value(self, action: argparse.Action, text: str) -> Any:
        if isinstance(action.type, type) and issubclass(action.type, StrEnum):
            self._check_value(action, text)  # before the type refuses it, which knows no word that is near
        return super()._get_value(action, text)

    def _check_value(self, action: argparse.Action, value: Any) -> None:
        if action.choices is not None and value not in action.choices:
            kind = "command" if isinstance(action, argparse._SubParsersAction) else "choice"
            raise argparse.ArgumentError(action, str(UnknownName(kind, str(value), action.choices)))


def group(parser: Parser) -> Subcommands:
    """Let a command have commands of its own."""
    return parser.add_subparsers(metavar="COMMAND", required=True)


def command(
    commands: Subcommands,
    name: str,
    function: Command,
    text: str,
    *,
    json: bool = False,
    aliases: Sequence[str] = (),
) -> Parser:
    """One command of a group."""
    return carried_out(commands.add_parser(name, help=text, description=text, aliases=aliases), function, json=json)


def carried_out(parser: Parser, function: Command, *, json: bool = False) -> Parser:
    """The command by a function, with the options that every command has; ``json`` where a program reads its answer."""
    from spillway.config.directories import CONFIGURATION_VARIABLE, CONNECTIONS_VARIABLE

    parser.set_defaults(command=function)
    place = parser.add_argument_group("where the installation is declared")
    place.add_argument(
        "--config-dir",
        type=Path,
        metavar="DIR",
        help=f"with clusters.yaml, datasets.yaml and policy.yaml (default: ${CONFIGURATION_VARIABLE})",
    )
    place.add_argument(
        "--connections",
        type=Path,
        metavar="FILE",
        help=f"what `airflow connections export` writes, as JSON (default: ${CONNECTIONS_VARIABLE})",
    )
    if json:
        parser.add_argument("--json", action="store_true", help="print JSON for a program")
    return parser


def dry_run(parser: Parser) -> None:
    """Let the command show what it would do."""
    parser.add_argument("--dry-run", action="store_true", help="show what would be done and change nothing")


def whole(least: int, most: int = MOST) -> Callable[[str], int]:
    """A reader of whole numbers from ``least`` to ``most``."""

    def read(text: str) -> int:
        is_number = text.isascii() and text.isdecimal()
        if is_number and len(text) <= len(str(MOST)) and least <= int(text) <= most:
            return int(text)
        upper = f" to {most}" if most < MOST or (is_number and text.strip("0")) else ""
        raise argparse.ArgumentTypeError(f"expected a whole number from {least}{upper}, got '{text}'")

    return read


at_least_one = whole(1)


def lasting(text: str) -> timedelta:
    """A duration above 0 as the files have it, such as 12h or 7d."""
    from pydantic_core import PydanticCustomError

    from spillway.config import notation

    try:
        return notation.lasting(text)
    except PydanticCustomError as refusal:
        raise argparse.ArgumentTypeError(refusal.message()) from None


def days(text: str) -> int:
    """A number of days from 1, no longer than any duration of the files."""
    from spillway.config.notation import LONGEST

    return whole(1, LONGEST.days)(text)


def delete_up_to(parser: Any, text: str) -> None:
    """Let whoever knows that much is to go allow a mirroring to delete more than its guard does, by number."""
    parser.add_argument("--delete-up-to", type=_percent, metavar="PERCENT", help=text)


def _percent(text: str) -> float:
    """A share in (0, 1], given as a whole number of hundredths."""
    if not text.isascii() or not text.isdecimal() or len(text) > 3 or not 1 <= int(text) <= 100:
        raise argparse.ArgumentTypeError(f"expected a whole number of percent from 1 to 100, got '{text}'")
    return int(text) / 100


def seconds(text: str) -> float:
    """A number of seconds above 0, no longer than any duration of the files."""
    from spillway.config.notation import LONGEST

    try:
        number = float(text)
    except ValueError:
        number = 0.0
    if not 0 < number <= LONGEST.total_seconds():
        upper = f" and up to {LONGEST.total_seconds():.0f}" if number > 0 else ""
        raise argparse.ArgumentTypeError(f"expected a number of seconds above 0{upper}, got '{text}'")
    return number
