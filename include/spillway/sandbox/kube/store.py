"""Objects with one revision counter, the history that watches read, and a journal beneath."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from spillway.sandbox.kube.journal import Journal, Line
from spillway.sandbox.kube.resources import RESOURCES, Object, Resource, name_of, namespace_of
from spillway.sandbox.kube.selectors import Matcher
from spillway.sandbox.kube.status import expired, not_found

FIRST_REVISION = 1000
HISTORY = 20_000
_COMPACT_AT = 10_000

Key = tuple[str | None, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """One write. ``obj`` is the state after it (for DELETED: the last one), ``previous`` before it."""

    revision: int
    resource: Resource
    kind: str
    obj: Object
    previous: Object | None


class Store:
    """All objects of one cluster. Every write is in the journal before it is visible."""

    def __init__(self, journal: Journal) -> None:
        self._journal = journal
        self._tables: dict[tuple[str, str], dict[Key, Object]] = {key: {} for key in RESOURCES}
        self._history: deque[Change] = deque(maxlen=HISTORY)
        self._oldest = self.revision = FIRST_REVISION
        self._changed = asyncio.Event()
        for line in journal.read():
            self._load(line)

    def find(self, resource: Resource, namespace: str | None, name: str) -> Object | None:
        return self._tables[resource.key].get((namespace, name))

    def get(self, resource: Resource, namespace: str | None, name: str) -> Object:
        """The object; raises ApiError 404."""
        found = self.find(resource, namespace, name)
        if found is None:
            raise not_found(resource, name)
        return found

    def list(self, resource: Resource, namespace: str | None = None, *matchers: Matcher) -> list[Object]:
        """Objects in the order of namespace and name; of every namespace where ``namespace`` is None."""
        table = self._tables[resource.key]
        return [
            table[key]
            for key in sorted(table, key=lambda key: (key[0] or "", key[1]))
            if namespace in {None, key[0]} and all(matches(table[key]) for matches in matchers)
        ]

    def everything(self) -> Iterator[tuple[Resource, Object]]:
        """Each object with its resource, as of the call."""
        for key, table in self._tables.items():
            for obj in list(table.values()):
                yield RESOURCES[key], obj

    def put(self, resource: Resource, obj: Object) -> Object:
        """Store the object (which the caller must not change any more) under the next revision."""
        previous = self.find(resource, namespace_of(obj), name_of(obj))
        self._write(resource, "ADDED" if previous is None else "MODIFIED", obj, previous)
        return obj

    def remove(self, resource: Resource, obj: Object) -> Object:
        """Take the object out; gives its last state, stamped with the revision of the deletion."""
        last = {**obj, "metadata": dict(obj["metadata"])}
        self._write(resource, "DELETED", last, obj)
        return last

    def changes_after(self, revision: int) -> Sequence[Change]:
        """The changes since, oldest first; raises ApiError 410 where they are no longer all known."""
        if revision < self._oldest:
            raise expired(revision, self._oldest)
        recent = []
        for change in reversed(self._history):
            if change.revision <= revision:
                break
            recent.append(change)
        return recent[::-1]

    async def changed(self, timeout_seconds: float) -> None:
        """Return at the next write, or after the time."""
        event = self._changed
        try:
            await asyncio.wait_for(event.wait(), timeout_seconds)
        except TimeoutError:
            return

    def _write(self, resource: Resource, kind: str, obj: Object, previous: Object | None) -> None:
        revision = self.revision + 1
        obj["metadata"]["resourceVersion"] = str(revision)
        self._journal.append({"revision": revision, "resource": resource.key, "kind": kind, "object": obj})
        self._apply(Change(revision=revision, resource=resource, kind=kind, obj=obj, previous=previous))
        if self._journal.lines > _COMPACT_AT + 4 * sum(map(len, self._tables.values())):
            self._journal.replace(self._snapshot())
        self._changed.set()
        self._changed = asyncio.Event()

    def _apply(self, change: Change) -> None:
        table = self._tables[change.resource.key]
        key = namespace_of(change.obj), name_of(change.obj)
        if change.kind == "DELETED":
            del table[key]
        else:
            table[key] = change.obj
        if len(self._history) == HISTORY:
            self._oldest = self._history[0].revision
        self._history.append(change)
        self.revision = change.revision

    def _snapshot(self) -> Iterator[Line]:
        yield {"compacted": self.revision}
        for resource, obj in self.everything():
            yield {"resource": resource.key, "snapshot": obj}

    def _load(self, line: Line) -> None:
        if "compacted" in line:
            self._oldest = self.revision = line["compacted"]
            return
        resource = RESOURCES[tuple(line["resource"])]
        obj = line["snapshot"] if "snapshot" in line else line["object"]
        key = namespace_of(obj), name_of(obj)
        if "snapshot" in line:
            self._tables[resource.key][key] = obj
            return
        previous = self._tables[resource.key].get(key)
        self._apply(Change(revision=line["revision"], resource=resource, kind=line["kind"], obj=obj, previous=previous))
