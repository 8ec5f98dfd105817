"""Files of a report, in a folder that others read while they are written."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from spillway.errors import ConfigError

Writer = Callable[[Path], Any]
"""Writes one file at the path that it is given."""


def write_files(folder: Path, contents: Mapping[str, Writer]) -> tuple[Path, ...]:
    """Write files by their names into a folder; each is replaced at once, so that nobody reads half of one.

    Raises:
        ConfigError: the folder cannot be written.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for name, write in contents.items():
            draft = folder / f".{name}.{os.getpid()}"
            try:
                write(draft)
                draft.replace(folder / name)
            finally:
                draft.unlink(missing_ok=True)
    except OSError as problem:
        why = problem.strerror or problem
        raise ConfigError(str(folder), "", f"the report cannot be written there: {why}") from problem
    return tuple(folder / name for name in contents)
