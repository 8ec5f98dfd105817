"""Where the draft of a sync that many workers share lies, and how its copies are cut into shares."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from datetime import timedelta
from itertools import chain, count
from urllib.parse import quote

from spillway.stores.base import OWN_PREFIX, ObjectStore
from spillway.sync.rows import Row, planned_object

OBJECT_BYTES = 256 * 1024
"""What an object costs beside its bytes, as bytes."""

_LEFT_OVER_AFTER = timedelta(days=2)


def draft_folder(dataset: str, draft: str) -> str:
    """The prefix of the draft's objects."""
    return f"{_drafts(dataset)}{quote(draft, safe='')}/"


def _drafts(dataset: str) -> str:
    return f"{OWN_PREFIX}drafts/{quote(dataset, safe='')}/"


def remove_old_drafts(store: ObjectStore, dataset: str) -> None:
    """Delete what no worker comes back for; the time is that of the store's own clock."""
    dated = {entry.key: entry.modified_at for entry in store.list(_drafts(dataset)) if entry.modified_at is not None}
    newest = max(dated.values(), default=None)
    old = [key for key, at in dated.items() if newest is not None and newest - at > _LEFT_OVER_AFTER]
    if old:
        store.delete(old)


class WeighedRows:
    """Rows of copies, counted while somebody goes through them."""

    def __init__(self, rows: Iterable[Row]) -> None:
        self._rows = rows
        self.objects = self.size_bytes = 0

    def __iter__(self) -> Iterator[Row]:
        for row in self._rows:
            self.objects += 1
            self.size_bytes += planned_object(row).size_bytes
            yield row


def ranges(copies: Iterable[Row], weight: float) -> Iterator[Iterator[Row]]:
    """The rows cut into ranges of keys that weigh about so much each; each range is to be read before the next."""
    rows, passed = iter(copies), 0

    def up_to(end: float, first: Row) -> Iterator[Row]:
        nonlocal passed
        for row in chain([first], rows):
            yield row
            passed += planned_object(row).size_bytes + OBJECT_BYTES
            if passed >= end:
                return

    for number in count(1):
        first = next(rows, None)
        if first is None:
            return
        yield up_to(number * weight, first)
