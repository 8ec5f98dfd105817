"""Objects with one revision counter, the history that watches read, and a database beneath."""

from __future__ import annotations

import asyncio
import json
import sqlite3
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

from spillway.sandbox.kube.resources import RESOURCES, Object, Resource, name_of, namespace_of, resource_of
from spillway.sandbox.kube.selectors import Matcher
from spillway.sandbox.kube.status import expired, not_found

HISTORY = 20_000

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
    """All objects of one cluster. Every write is on disk before it is visible; the history is of this process."""

    def __init__(self, file: Path) -> None:
        file.touch(mode=0o600)  # secrets are in it
        self._database = sqlite3.connect(file, isolation_level=None)
        # A killed process loses nothing that way; only a power cut could.
        self._database.executescript("PRAGMA journal_mode = WAL; PRAGMA synchronous = OFF;")
        self._database.execute("CREATE TABLE IF NOT EXISTS objects (uid TEXT PRIMARY KEY, object TEXT NOT NULL)")
        (self.revision,) = self._database.execute("PRAGMA user_version").fetchone()
        self._tables: dict[tuple[str, str], dict[Key, Object]] = {key: {} for key in RESOURCES}
        for (text,) in self._database.execute("SELECT object FROM objects"):
            obj = json.loads(text)
            self._tables[resource_of(obj).key][namespace_of(obj), name_of(obj)] = obj
        self._history: deque[Change] = deque(maxlen=HISTORY)
        self._changed = asyncio.Event()

    def close(self) -> None:
        self._database.close()

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
        self._tables[resource.key][namespace_of(obj), name_of(obj)] = obj
        return obj

    def remove(self, resource: Resource, obj: Object) -> Object:
        """Take the object out; gives its last state, stamped with the revision of the deletion."""
        last = {**obj, "metadata": dict(obj["metadata"])}
        self._write(resource, "DELETED", last, obj)
        del self._tables[resource.key][namespace_of(obj), name_of(obj)]
        return last

    def changes_after(self, revision: int) -> Sequence[Change]:
        """The changes since, oldest first; raises ApiError 410 where they are not all known, or not yet any."""
        oldest = self.revision - len(self._history)
        if not oldest <= revision <= self.revision:
            raise expired(revision, oldest)
        return list(islice(reversed(self._history), self.revision - revision))[::-1]

    async def changed(self, timeout_seconds: float) -> None:
        """Return at the next write, or after the time."""
        event = self._changed
        try:
            await asyncio.wait_for(event.wait(), timeout_seconds)
        except TimeoutError:
            return

    def _write(self, resource: Resource, kind: str, obj: Object, previous: Object | None) -> None:
        """Have the change on disk and in the history; raises sqlite3.Error, and then nothing has changed."""
        revision, uid = self.revision + 1, obj["metadata"]["uid"]
        obj["metadata"]["resourceVersion"] = str(revision)
        with self._database:
            self._database.execute("BEGIN")
            if kind == "DELETED":
                self._database.execute("DELETE FROM objects WHERE uid = ?", (uid,))
            else:
                self._database.execute("REPLACE INTO objects VALUES (?, ?)", (uid, json.dumps(obj)))
            self._database.execute(f"PRAGMA user_version = {revision}")
        self.revision = revision
        self._history.append(Change(revision=revision, resource=resource, kind=kind, obj=obj, previous=previous))
        self._changed.set()
        self._changed = asyncio.Event()
