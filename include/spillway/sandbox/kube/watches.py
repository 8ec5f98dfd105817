"""A watch: what changed since a revision, as a stream of JSON lines that never skips or repeats a change."""

from __future__ import annotations

import json
import time
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass

from spillway.sandbox.kube.resources import Object, Resource, namespace_of
from spillway.sandbox.kube.selectors import Matcher
from spillway.sandbox.kube.status import ApiError
from spillway.sandbox.kube.store import Change, Store

_POLL_SECONDS = 2.0


@dataclass(frozen=True, slots=True, kw_only=True)
class WatchRequest:
    """What a client watches.

    ``since`` is None where it wants the present objects first; ``marks_initial`` where it wants to be told that it has
    them all, as ``kubectl wait`` does. ``shown`` turns an object into its answer.
    """

    resource: Resource
    namespace: str | None
    matchers: tuple[Matcher, ...]
    since: int | None
    marks_initial: bool
    timeout_seconds: float
    shown: Callable[[Object], Object]

    def matches(self, obj: Object | None) -> bool:
        if obj is None or self.namespace not in {None, namespace_of(obj)}:
            return False
        return all(matches(obj) for matches in self.matchers)


async def watch(store: Store, request: WatchRequest) -> AsyncIterator[bytes]:
    """Lines to send; an empty one now and then lets the caller see that its client is gone."""
    ends = time.monotonic() + request.timeout_seconds
    revision = store.revision if request.since is None else request.since
    if request.since is None or request.marks_initial:
        revision = store.revision
        for obj in store.list(request.resource, request.namespace, *request.matchers):
            yield _line("ADDED", request.shown(obj))
    if request.marks_initial:
        yield _initial_end(request.resource, revision)
    while time.monotonic() < ends:
        try:
            changes = store.changes_after(revision)
        except ApiError as problem:
            yield _line("ERROR", problem.body())
            return
        for change in changes:
            revision = change.revision
            if line := _event(request, change):
                yield line
        if store.revision == revision:
            await store.changed(min(_POLL_SECONDS, max(ends - time.monotonic(), 0.01)))
        yield b""


def _event(request: WatchRequest, change: Change) -> bytes | None:
    """A change as the client's selector sees it: an object that leaves the selection is deleted for it."""
    if change.resource is not request.resource:
        return None
    was = request.matches(change.previous)
    if change.kind != "DELETED" and request.matches(change.obj):
        return _line("MODIFIED" if was else "ADDED", request.shown(change.obj))
    if not was or change.previous is None:
        return None
    last = {**change.previous, "metadata": {**change.previous["metadata"], "resourceVersion": str(change.revision)}}
    return _line("DELETED", request.shown(last))


def _initial_end(resource: Resource, revision: int) -> bytes:
    annotations = {"k8s.io/initial-events-end": "true"}
    metadata = {"resourceVersion": str(revision), "creationTimestamp": None, "annotations": annotations}
    return _line("BOOKMARK", {"kind": resource.kind, "apiVersion": resource.group_version, "metadata": metadata})


def _line(kind: str, obj: Object) -> bytes:
    return json.dumps({"type": kind, "object": obj}).encode() + b"\n"
