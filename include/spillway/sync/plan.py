"""What a sync will do to each object, decided before anything is done."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum

from spillway.errors import DeletesRefused
from spillway.model import ObjectInfo
from spillway.sync.compare import Comparison, SyncedObject, SyncManifest

DELETE_SHARE_MAX = 0.2
KEY_MAX_BYTES = 1024

Compare = Callable[[ObjectInfo, ObjectInfo, SyncedObject | None], Comparison]


class Action(StrEnum):
    COPY = "copy"
    KEEP = "keep"
    DELETE = "delete"
    REFUSE = "refuse"


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedObject:
    """One object's action and why; a side that does not have the object is None."""

    key: str
    action: Action
    reason: str
    source: ObjectInfo | None
    destination: ObjectInfo | None

    @property
    def size_bytes(self) -> int:
        """What a copy moves, or what lies at the destination where the source has nothing."""
        known = self.source or self.destination
        return known.size_bytes if known else 0


@dataclass(frozen=True, slots=True, kw_only=True)
class SyncPlan:
    """Every object of either side once, ordered by key."""

    objects: tuple[PlannedObject, ...]

    def of(self, action: Action) -> tuple[PlannedObject, ...]:
        return tuple(planned for planned in self.objects if planned.action is action)

    @property
    def changes_nothing(self) -> bool:
        return all(planned.action is Action.KEEP for planned in self.objects)


def plan_sync(
    source: Iterable[ObjectInfo],
    destination: Iterable[ObjectInfo],
    compare: Compare,
    *,
    delete: bool,
    previous: SyncManifest | None,
    delete_share_max: float = DELETE_SHARE_MAX,
) -> SyncPlan:
    """One action for each object of either side; the listings may come in any order.

    Args:
        delete: remove from the destination what the source no longer has; otherwise it is kept.
        previous: what the last verified sync of this very source knew.
        delete_share_max: the part of the destination's objects, in [0, 1], that one sync may delete.
    Raises:
        DeletesRefused: the source is empty, or more would be deleted than the guard allows.
    """
    here, there = _by_key(destination), _by_key(source)
    synced = previous.objects if previous else {}
    planned = tuple(
        _decide(key, there.get(key), here.get(key), compare, synced.get(key), delete=delete)
        for key in sorted(here.keys() | there.keys())
    )
    plan = SyncPlan(objects=planned)
    _guard_deletes(len(plan.of(Action.DELETE)), len(there), len(here), delete_share_max)
    return plan


def _by_key(objects: Iterable[ObjectInfo]) -> Mapping[str, ObjectInfo]:
    return {entry.key: entry for entry in objects}


def _decide(
    key: str,
    source: ObjectInfo | None,
    destination: ObjectInfo | None,
    compare: Compare,
    synced: SyncedObject | None,
    *,
    delete: bool,
) -> PlannedObject:
    def act(action: Action, reason: str) -> PlannedObject:
        return PlannedObject(key=key, action=action, reason=reason, source=source, destination=destination)

    if source is None:
        if delete:
            return act(Action.DELETE, "the source no longer has it")
        return act(Action.KEEP, "only at the destination; deleting is off")
    if len(key.encode()) > KEY_MAX_BYTES:
        return act(Action.REFUSE, f"its key is longer than the {KEY_MAX_BYTES} bytes of an object store")
    if destination is None:
        return act(Action.COPY, "not at the destination")
    comparison = compare(source, destination, synced)
    return act(Action.KEEP if comparison.equal else Action.COPY, comparison.reason)


def _guard_deletes(deletes: int, at_source: int, at_destination: int, share_max: float) -> None:
    if deletes == 0:
        return
    if at_source == 0:
        raise DeletesRefused(
            f"the source lists no objects and the destination has {at_destination}: a source that is missing or not "
            "mounted looks like an empty one; nothing was deleted. Check the source, or delete the copy by hand"
        )
    if deletes > share_max * at_destination:
        raise DeletesRefused(
            f"this sync would delete {deletes} of {at_destination} objects ({deletes / at_destination:.0%}), the guard "
            f"allows {share_max:.0%}; nothing was deleted. Check the source, or allow a larger share for this sync"
        )
