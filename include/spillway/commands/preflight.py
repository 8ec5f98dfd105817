"""``preflight``: every gap between what is declared and a first run."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator, Sequence
from typing import TypeVar

from spillway.codec import encode
from spillway.commands.cache_rights import cache_gaps
from spillway.commands.console import Console
from spillway.commands.core_data import core_data_gaps
from spillway.commands.installation import Installation
from spillway.commands.parsing import Parser, carried_out
from spillway.commands.remote_checkpoints import checkpoint_gaps
from spillway.config import Configuration, load_image_uses
from spillway.errors import ConfigError, SpillwayError
from spillway.model import Cluster, ImageUse
from spillway.preflight import Gap, SiteAccess, gap_table, merged, preflight, remedy
from spillway.runs.local import LEDGER_CONNECTION, open_cluster
from spillway.runs.residency import movable_tier, unclear_tier
from spillway.runs.sampling import open_prometheus
from spillway.runs.scalers import open_scaler
from spillway.runs.services import Connect
from spillway.runs.sites import bucket, registry
from spillway.stores.base import ObjectStore

T = TypeVar("T")

NO_CLUSTER = "-"


def register(parser: Parser) -> None:
    """Add the words of the command."""
    carried_out(parser, _preflight, json=True)


def _preflight(installation: Installation, console: Console, options: argparse.Namespace) -> int:
    declared, connect = installation.configuration(), installation.connect()
    clusters = declared.clusters.values()
    uses = _tried(lambda: load_image_uses(installation.jobs_directory, declared.datasets))
    with console.working("asking every cluster, store and registry"):
        found = (
            *_ledger_gaps(installation),
            *_job_gaps(uses),
            *_money_gaps(declared, connect),
            *preflight([site_access(cluster, connect, declared) for cluster in clusters]),
            *(gap for cluster in clusters for gap in _pod_store_gaps(cluster, connect)),
            *(gap for cluster in clusters for gap in prometheus_gaps(cluster, connect)),
            *core_data_gaps(declared, connect),
            *cache_gaps(declared, connect),
            *checkpoint_gaps(declared, () if isinstance(uses, SpillwayError) else uses, connect),
        )
    gaps = merged(found)
    if options.json:
        console.data(encode(gaps))
    else:
        console.say(gap_table(gaps))
    return 1 if any(gap.checked for gap in gaps) else 0


def site_access(cluster: Cluster, connect: Connect, declared: Configuration) -> SiteAccess:
    """The cluster's clients, each made on its own, so that one missing Connection hides nothing else."""
    elsewhere = (dataset for dataset in declared.datasets.values() if dataset.home != cluster.name)
    store = cluster.object_store
    client = _tried(lambda: open_cluster(cluster, connect(cluster.connection)))
    return SiteAccess(
        cluster=cluster,
        client=client,
        datasets=_tried(lambda: bucket(connect(store.connection), store.dataset_bucket, cluster.name)),
        checkpoints=_tried(lambda: bucket(connect(store.connection), store.checkpoint_bucket, cluster.name)),
        registry=_tried(lambda: registry(connect(cluster.registry.connection), cluster)),
        mirrored=cluster.name != declared.image_home,
        scaler=None if isinstance(client, SpillwayError) else open_scaler(cluster, client, connect),
        synced=any(cluster.may_hold(movable_tier(dataset, cluster)) for dataset in elsewhere),
    )


def _tried(make: Callable[[], T]) -> T | SpillwayError:
    try:
        return make()
    except SpillwayError as problem:
        return problem


def _ledger_gaps(installation: Installation) -> Iterator[Gap]:
    from spillway.ledger import open_ledger

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
        yield Gap(cluster=NO_CLUSTER, part="ledger", problem=problem.told, fix=remedy(problem, LEDGER_CONNECTION))


def _job_gaps(uses: Sequence[ImageUse] | SpillwayError) -> Iterator[Gap]:
    """The job files of which nobody knows whether their data may leave."""
    if isinstance(uses, SpillwayError):
        fix = "correct it: until then the image of every job counts as core"
        yield Gap(cluster=NO_CLUSTER, part="job files", problem=str(uses), fix=fix)
        return
    for use in uses:
        if use.unclear_in is not None:
            part, (why, fix) = f"job file {use.unclear_in}", unclear_tier(use)
            seen = f"{why}, and so does the image {use.image} for every job"
            yield Gap(cluster=NO_CLUSTER, part=part, problem=seen, fix=fix, checked=False)


def _money_gaps(declared: Configuration, connect: Connect) -> Iterator[Gap]:
    """Departments whose share of the cloud is of no use to them, and notices that would reach nobody."""
    allowed = declared.policy.cloud_access or {}
    for department, share in declared.policy.quotas.items():
        if share.cloud and department not in allowed:
            yield Gap(
                cluster=NO_CLUSTER,
                part="cloud access",
                problem=f"'{department}' has a share of the cloud and may not use it",
                fix="add it to placement.cloud_access in policy.yaml, or set its cloud share to 0",
            )
    for target in declared.notices:
        conn_id = target.apprise or target.connection
        try:
            connect(conn_id)
        except SpillwayError as problem:
            fix = f"create Connection '{conn_id}', or correct its name in budgets.yaml"
            yield Gap(cluster=NO_CLUSTER, part=f"notices to {target.name}", problem=problem.told, fix=fix)


def _pod_store_gaps(cluster: Cluster, connect: Connect) -> Iterator[Gap]:
    """Whether the identities that pods get reach both buckets; writing is left to the pods.

    The one for public parts only lists: what it may read has a prefix, and reading that is tried where there is some.
    """
    store = cluster.object_store
    identities: dict[str, tuple[str | None, Callable[[ObjectStore], object]]] = {
        "pods": (store.pod_connection, lambda known: known.head("spillway-preflight")),
        "pods of public parts": (store.public_pod_connection, lambda known: list(known.list("spillway-preflight"))),
    }
    for who, (conn_id, ask) in identities.items():
        for name in (store.dataset_bucket, store.checkpoint_bucket):
            if conn_id is None:
                continue
            try:
                ask(bucket(connect(conn_id), name, cluster.name))
            except SpillwayError as problem:
                part, fix = f"bucket {name} ({who})", remedy(problem, conn_id)
                yield Gap(cluster=cluster.name, part=part, problem=problem.told, fix=fix)


def prometheus_gaps(cluster: Cluster, connect: Connect) -> Iterator[Gap]:
    """What keeps it unknown what GPUs do; runs start without."""
    source = cluster.prometheus
    if source is None:
        return
    try:
        told = open_prometheus(cluster, connect).devices(source)
    except SpillwayError as problem:
        fix = remedy(problem, source.connection)
        yield Gap(cluster=cluster.name, part="prometheus", problem=problem.told, fix=fix, checked=False)
        return
    if not told:
        seen = f"it has no fresh figure of DCGM's exporter with a label '{source.node_label}'"
        fix = "let it scrape the exporter, or correct node_label and labels in clusters.yaml"
        yield Gap(cluster=cluster.name, part="prometheus", problem=seen, fix=fix, checked=False)
