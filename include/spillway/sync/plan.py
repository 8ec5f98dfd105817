"""What a sync will do to each object, decided before anything is done."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple

from spillway.errors import DeletesRefused
from spillway.model import ObjectInfo, SyncedObject
from spillway.sync.compare import Comparison

KEY_MAX_BYTES = 1024
_UTF8_MAX_BYTES = 4

Compare = Callable[[ObjectInfo, ObjectInfo, SyncedObject | None], Comparison]


class Action(StrEnum):
    """What is withheld stays at its source and is named nowhere."""

    COPY = "copy"
    KEEP = "keep"
    DELETE = "delete"
    REFUSE = "refuse"
    WITHHOLD = "withhold"


class Match(NamedTuple):
    """One key and what each side has there; None where it has nothing.

    ``synced`` is what the last verified sync of this very source knew.
    """

    key: str
    source: ObjectInfo | None = None
    destination: ObjectInfo | None = None
    synced: SyncedObject | None = None


class PlannedObject(NamedTuple):
    """One object's action and why; a side that does not have the object is None.

    ``sure`` is False for a copy that more facts than the listings give may show to be needless.
    """

    key: str
    action: Action
    reason: str
    source: ObjectInfo | None
    destination: ObjectInfo | None
    synced: SyncedObject | None = None
    sure: bool = True

    @property
    def size_bytes(self) -> int:
        """What a copy moves, or what lies at the destination where the source has nothing."""
        known = self.source or self.destination
        return known.size_bytes if known else 0


@dataclass(slots=True)
class Sides:
    """How many objects each side has and how many are to be deleted, for ``guard_deletes``."""

    source: int = 0
    destination: int = 0
    deletes: int = 0

    def count(self, planned: PlannedObject) -> None:
        """One more object of the plan."""
        self.source += planned.source is not None
        self.destination += planned.destination is not None
        self.deletes += planned.action is Action.DELETE


def plan_object(match: Match, compare: Compare, *, delete: bool) -> PlannedObject:
    """The action for one object; nothing may be done before every object has one and the deletes are judged.

    Args:
        delete: remove from the destination what the source no longer has; otherwise it is kept.
    """
    key, source, destination, synced = match
    sure = True
    if source is None:
        action = Action.DELETE if delete else Action.KEEP
        reason = "the source no longer has it" if delete else "only at the destination; deleting is off"
    elif len(key) * _UTF8_MAX_BYTES > KEY_MAX_BYTES and len(key.encode()) > KEY_MAX_BYTES:
        action, reason = Action.REFUSE, f"its key is longer than the {KEY_MAX_BYTES} bytes of an object store"
    elif destination is None:
        action, reason = Action.COPY, "not at the destination"
    else:
        equal, reason = compare(source, destination, synced)
        action, sure = Action.KEEP if equal else Action.COPY, equal is not None
    return PlannedObject(key, action, reason, source, destination, synced, sure)


def guard_deletes(deletes: int, *, at_source: int, at_destination: int, share_max: float, things: str) -> None:
    """Return when what a mirroring wants to delete at its destination is no more than anybody means.

    Args:
        share_max: the part of what is at the destination, in [0, 1], that one mirroring may delete.
        things: what they are, for the message: ``objects``, ``tags``.
    Raises:
        DeletesRefused: the source is empty, or more would be deleted than the guard allows.
    """
    if deletes == 0:
        return
    if at_source == 0:
        raise DeletesRefused(
            f"the source lists no {things} and the destination has {at_destination}: a source that is missing or not "
            "mounted looks like an empty one; nothing was deleted. Check the source, or delete the copy by hand"
        )
    share = deletes / at_destination
    if share > share_max:
        raise DeletesRefused(
            f"this would delete {deletes} of {at_destination} {things} ({share:.0%}), the guard allows "
            f"{share_max:.0%}; nothing was deleted. Check the source, or allow it for once on the command line: "
            f"--delete-up-to {-(-100 * deletes // at_destination)}"
        )
