"""All clusters at one moment, read at the same time and within one deadline."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Mapping
from datetime import datetime, timedelta

from spillway.clouds.base import ClusterClient
from spillway.errors import SpillwayError
from spillway.model import Cluster, ClusterState, Snapshot

_log = logging.getLogger(__name__)


def observe(
    clients: Mapping[str, ClusterClient | SpillwayError],
    *,
    now: datetime,
    deadline: timedelta,
    declared: Mapping[str, Cluster] | None = None,
    datasets_present: frozenset[tuple[str, str]] = frozenset(),
) -> Snapshot:
    """The Snapshot of every cluster in ``clients``: its state, or why it could not be read.

    Args:
        clients: by cluster name; an error where no client could be made.
        now: the moment that the snapshot says it was taken at.
        deadline: for all clusters together; one that is late counts as unreachable, never as empty.
        declared: the facts of clusters without a client, so that they stay candidates.
    """
    answers: dict[str, ClusterState | str] = {
        name: str(client) for name, client in clients.items() if isinstance(client, SpillwayError)
    }
    readers = {
        name: threading.Thread(target=_read, args=(name, client, answers), name=f"observe-{name}", daemon=True)
        for name, client in clients.items()
        if not isinstance(client, SpillwayError)
    }
    over_at = time.monotonic() + deadline.total_seconds()
    for reader in readers.values():
        reader.start()
    for reader in readers.values():
        reader.join(max(0.0, over_at - time.monotonic()))
    seen = dict(answers)  # a late reader may still write to its own
    late = f"no complete answer within {deadline.total_seconds():.0f} s"
    return Snapshot(
        taken_at=now,
        clusters=tuple(state for name in sorted(clients) if isinstance(state := seen.get(name), ClusterState)),
        unreachable={
            name: cause for name in sorted(clients) if not isinstance(cause := seen.get(name, late), ClusterState)
        },
        unreachable_clusters=_silent(clients, seen, declared or {}),
        datasets_present=datasets_present,
    )


def _read(name: str, client: ClusterClient, answers: dict[str, ClusterState | str]) -> None:
    try:
        answers[name] = client.describe()
    except SpillwayError as problem:
        answers[name] = str(problem)
    except Exception as problem:  # a fault in reading one cluster must not hide the others
        _log.exception("reading cluster %s failed", name)
        answers[name] = f"reading it failed: {type(problem).__name__}: {problem}"


def _silent(
    clients: Mapping[str, ClusterClient | SpillwayError],
    seen: Mapping[str, ClusterState | str],
    declared: Mapping[str, Cluster],
) -> tuple[Cluster, ...]:
    """The declared facts of the clusters that gave no state, as far as they are known."""
    silent = [name for name in sorted(clients) if not isinstance(seen.get(name), ClusterState)]
    known = {name: client.cluster for name, client in clients.items() if not isinstance(client, SpillwayError)}
    return tuple(facts for name in silent if (facts := known.get(name) or declared.get(name)) is not None)
