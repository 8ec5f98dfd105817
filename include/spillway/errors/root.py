"""The root of every error, and what is wrong with a declaration."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


class SpillwayError(Exception):
    """The root; its text is meant for a person."""

    retry_helps: bool = False
    fix: str = ""

    @property
    def told(self) -> str:
        """The text without ``fix``, for whoever tells what to do beside it."""
        return str(self).removesuffix(f"; {self.fix}")

    def __reduce__(self) -> tuple[object, ...]:
        """Whole, with its fields, when it travels from one process of a gang to another."""
        return _rebuilt, (type(self), self.args, self.__dict__)


def _rebuilt(kind: type[SpillwayError], args: tuple[object, ...], fields: dict[str, object]) -> SpillwayError:
    error = kind.__new__(kind, *args)
    error.__dict__.update(fields)
    return error


class ConfigError(SpillwayError):
    """A declared file is wrong: ``clusters.yaml: clusters[2].pools[0].max_nodes: expected an integer, got 'eight'``."""

    def __init__(self, file: str, path: str, problem: str) -> None:
        super().__init__(f"{file}: {path}: {problem}" if path else f"{file}: {problem}")
        self.file, self.path, self.problem = file, path, problem


class UnknownName(SpillwayError):
    """A name that no configuration declares; says which names exist and which one is close."""

    def __init__(self, kind: str, name: str, known: Iterable[str]) -> None:
        self.kind, self.name, self.known = kind, name, tuple(sorted(known))
        lowered = {one.lower(): one for one in self.known}
        close = difflib.get_close_matches(name.lower(), lowered, n=1)
        hint = f". Did you mean '{lowered[close[0]]}'?" if close else ""
        super().__init__(f"unknown {kind} '{name}'; known: {', '.join(self.known) or 'none'}{hint}")
