"""``preflight``: every gap between what is declared and a first run."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator
from typing import TypeVar

from spillway.codec import encode
from spillway.commands.console import Console
from spillway.commands.installation import Installation
from spillway.commands.parsing import Subcommands, command
from spillway.errors import ConfigError, SpillwayError
from spillway.ledger import open_ledger
from spillway.model import Cluster
from spillway.preflight import Gap, SiteAccess, gap_table, preflight, remedy
from spillway.runs.local import LEDGER_CONNECTION, open_cluster
from spillway.runs.sites import Connect, bucket, registry

T = TypeVar("T")

NO_CLUSTER = "-"


def register(commands: Subcommands) -> None:
    """Add the command."""
    command(commands, "preflight", _preflight, "name every gap and what to do; exit 1 if there is one", json=True)


def _preflight(installation: Installation, console: Console, options: argparse.Namespace) -> int:
    declared, connect = installation.configuration(), installation.connect()
    with console.working("asking every cluster, store and registry"):
        gaps = (
            *_ledger_gaps(installation),
            *preflight([site_access(cluster, connect) for cluster in declared.clusters.values()]),
            *(gap for cluster in declared.clusters.values() for gap in _pod_store_gaps(cluster, connect)),
        )
    if options.json:
        console.data(encode(gaps))
    else:
        console.say(gap_table(gaps))
    return 1 if gaps else 0


def site_access(cluster: Cluster, connect: Connect) -> SiteAccess:
    """The cluster's clients, each made on its own, so that one missing Connection hides nothing else."""
    store = cluster.object_store
    return SiteAccess(
        cluster=cluster,
        client=_tried(lambda: open_cluster(cluster, connect(cluster.connection))),
        datasets=_tried(lambda: bucket(connect(store.connection), store.dataset_bucket, cluster.name)),
        checkpoints=_tried(lambda: bucket(connect(store.connection), store.checkpoint_bucket, cluster.name)),
        registry=_tried(lambda: registry(connect(cluster.registry.connection), cluster)),
    )


def _tried(make: Callable[[], T]) -> T | SpillwayError:
    try:
        return make()
    except SpillwayError as problem:
        return problem


def _ledger_gaps(installation: Installation) -> Iterator[Gap]:
    try:
        open_ledger(installation.ledger_url())
    except ConfigError as problem:
        yield Gap(
            cluster=NO_CLUSTER,
            part="ledger",
            problem=str(problem),
            fix=f"python -m spillway ledger upgrade, or correct Connection '{LEDGER_CONNECTION}'",
        )
    except SpillwayError as problem:
        yield Gap(cluster=NO_CLUSTER, part="ledger", problem=str(problem), fix=remedy(problem, LEDGER_CONNECTION))


def _pod_store_gaps(cluster: Cluster, connect: Connect) -> Iterator[Gap]:
    """Whether the identity that pods get reads both buckets; writing is left to the pods."""
    store = cluster.object_store
    for name in (store.dataset_bucket, store.checkpoint_bucket):
        try:
            bucket(connect(store.pod_connection), name, cluster.name).head("spillway-preflight")
        except SpillwayError as problem:
            yield Gap(
                cluster=cluster.name,
                part=f"bucket {name} (pods)",
                problem=str(problem),
                fix=remedy(problem, store.pod_connection),
            )
