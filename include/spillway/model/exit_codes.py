"""The exit codes of the trainer: what it says of its end, and what the platform reads from it."""

from __future__ import annotations

from enum import IntEnum


class ExitCode(IntEnum):
    """The numbers are those of ``sysexits.h`` where it has a fitting one."""

    SUCCEEDED = 0
    FAILED = 1
    """The program or its configuration is at fault, or its store refused three commits in a row."""
    BAD_INPUT = 65
    """The data set or the checkpoint to resume from cannot be used."""
    STORE_UNREACHABLE = 74
    """The site's store was silent, or its data set changed, for longer than it is waited for.

    The steps since the last commit are lost.
    """
    PREEMPTED = 75
    """The stop signal came; of what was trained so far, that is committed which fitted into the grace."""
    FENCED = 76
    """A newer attempt owns the run; nothing was committed."""
