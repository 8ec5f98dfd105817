"""All clusters at one moment, read at the same time and within one deadline."""

from __future__ import annotations

import dataclasses
import logging
import threading
import time
from collections.abc import Callable, Mapping
from datetime import datetime, timedelta
from functools import partial
from typing import Generic, TypeVar

from spillway.clouds.base import ClusterClient
from spillway.errors import ConfigError, Missing, SpillwayError
from spillway.model import Cluster, DatasetFacts, DatasetUse, Snapshot, Tier
from spillway.stores.base import ObjectStore
from spillway.sync.manifest import verified_copies

T = TypeVar("T")

_log = logging.getLogger(__name__)


def observe(
    clients: Mapping[str, ClusterClient | SpillwayError],
    *,
    now: datetime,
    deadline: timedelta,
    declared: Mapping[str, Cluster] | None = None,
    stores: Mapping[str, ObjectStore] | None = None,
    datasets: Mapping[str, DatasetFacts] | None = None,
) -> Snapshot:
    """The Snapshot of every cluster in ``clients``: its state, or why it could not be read.

    Args:
        clients: by cluster name; an error where no client could be made.
        now: the moment that the snapshot says it was taken at.
        deadline: for everything together; a cluster that is late counts as unreachable, never as empty.
        declared: the facts of clusters without a client, so that they stay candidates.
        stores: the dataset stores, by cluster name; of one that is late or fails no copy is known.
        datasets: those that are declared, by name. At home they need no verified copy; copies tell their size.
    """
    over_at = time.monotonic() + deadline.total_seconds()
    describing = Asked(
        "cluster",
        {name: client.describe for name, client in clients.items() if not isinstance(client, SpillwayError)},
    )
    listing = Asked("datasets of", {name: partial(verified_copies, store) for name, store in (stores or {}).items()})
    seen, copies = describing.answers(over_at), listing.answers(over_at)
    late = f"no complete answer within {deadline.total_seconds():.0f} s"
    problems = {name: str(client) for name, client in clients.items() if isinstance(client, SpillwayError)}
    for name in listing.names - copies.keys():
        _log.info("which datasets are whole at %s is not known: %s", name, listing.problems.get(name, late))
    known = dict(declared or {})
    known |= {n: client.cluster for n, client in clients.items() if not isinstance(client, SpillwayError)}
    causes = problems | {name: describing.problems.get(name, late) for name in describing.names - seen.keys()}
    return Snapshot(
        taken_at=now,
        clusters=tuple(seen[name] for name in sorted(seen)),
        unreachable={name: causes[name] for name in sorted(causes)},
        misconfigured=frozenset(n for n, client in clients.items() if isinstance(client, ConfigError | Missing)),
        unreachable_clusters=tuple(known[name] for name in sorted(causes) if name in known),
        datasets_present=frozenset(
            [
                *((dataset, facts.home) for dataset, facts in (datasets or {}).items()),
                *((dataset, name) for name, sizes in copies.items() for dataset in sizes),
            ]
        ),
        datasets={dataset: _counted(dataset, facts, copies, known) for dataset, facts in (datasets or {}).items()},
    )


def _counted(
    dataset: str,
    facts: DatasetFacts,
    copies: Mapping[str, Mapping[str, int]],
    clusters: Mapping[str, Cluster],
) -> DatasetFacts:
    """With the size of its largest copy, where it has any: a site without core data has its public part only."""
    public = DatasetUse(name=dataset, part=Tier.PUBLIC)
    sizes = [sizes[dataset] for sizes in copies.values() if dataset in sizes]
    parts = [
        sizes[record]
        for name, sizes in copies.items()
        if name in clusters and (record := public.record_at(clusters[name])) in sizes
    ]
    return dataclasses.replace(
        facts,
        size_bytes=max(sizes, default=facts.size_bytes),
        public_bytes=max(parts, default=facts.public_bytes),
    )


class Asked(Generic[T]):
    """Questions, asked at the same time, and what has come back: an answer or a problem by name; nothing yet if late.

    A thread that is late is left behind: it ends when its client's own time-outs do.
    """

    def __init__(self, what: str, questions: Mapping[str, Callable[[], T]]) -> None:
        self.names = questions.keys()
        self.problems: dict[str, str] = {}
        self._what = what
        self._answers: dict[str, T] = {}
        self._threads = [
            threading.Thread(target=self._ask, args=asked, name=f"observe-{asked[0]}", daemon=True)
            for asked in questions.items()
        ]
        for thread in self._threads:
            thread.start()

    def answers(self, over_at: float) -> dict[str, T]:
        """What was answered by that moment of the monotonic clock."""
        for thread in self._threads:
            thread.join(max(0.0, over_at - time.monotonic()))
        return dict(self._answers)  # a late thread may still write to its own

    def _ask(self, name: str, question: Callable[[], T]) -> None:
        try:
            self._answers[name] = question()
        except SpillwayError as problem:
            self.problems[name] = str(problem)
        except Exception as problem:  # a fault in reading one cluster must not hide the others
            _log.exception("reading %s %s failed", self._what, name)
            self.problems[name] = f"reading it failed: {type(problem).__name__}: {problem}"
