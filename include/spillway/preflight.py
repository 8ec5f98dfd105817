"""What stands between the declared clusters and a first run, each gap with what to do about it.

Asking leaves nothing behind: the object written to try the store is deleted again.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Protocol, TypeVar, runtime_checkable

from spillway.clouds.base import ClusterClient
from spillway.errors import AccessDenied, Missing, PreconditionFailed, SpillwayError, Unreachable
from spillway.model import Cluster, ClusterState
from spillway.registries.base import ImageRegistry
from spillway.stores.base import ObjectStore

T = TypeVar("T")

CLOCK_TOLERANCE = timedelta(seconds=5)
PROBE_PREFIX = ".spillway-preflight/"
_PROBE = b"written by spillway preflight; may be deleted"


@runtime_checkable
class NamespaceAndClock(Protocol):
    """What a real API can be asked beyond running pods."""

    def namespace_exists(self) -> bool: ...

    def server_time(self) -> datetime | None:
        """The API's clock, to the second; None where it does not say."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SiteAccess:
    """A declared cluster and the clients made for it; an error where none could be made."""

    cluster: Cluster
    client: ClusterClient | SpillwayError
    datasets: ObjectStore | SpillwayError
    checkpoints: ObjectStore | SpillwayError
    registry: ImageRegistry | SpillwayError


@dataclass(frozen=True, slots=True, kw_only=True)
class Gap:
    """One thing that would stop or endanger runs on a cluster, and its remedy."""

    cluster: str
    part: str
    problem: str
    fix: str


def preflight(
    sites: Sequence[SiteAccess], *, clock: Callable[[], datetime] = lambda: datetime.now(UTC)
) -> tuple[Gap, ...]:
    """Every gap of every site, in the order of ``sites``; empty where runs can start everywhere."""
    if not sites:
        return ()
    with ThreadPoolExecutor(len(sites), thread_name_prefix="preflight") as pool:
        return tuple(gap for gaps in pool.map(lambda site: list(_site_gaps(site, clock)), sites) for gap in gaps)


def gap_table(gaps: Sequence[Gap]) -> str:
    """The gaps as text, a line each, columns aligned."""
    if not gaps:
        return "no gaps: runs can start on every declared cluster"
    rows = [
        ("CLUSTER", "PART", "PROBLEM -> WHAT TO DO"),
        *((g.cluster, g.part, f"{g.problem} -> {g.fix}") for g in gaps),
    ]
    widths = [max(len(row[column]) for row in rows) for column in range(2)]
    return "\n".join(f"{name:<{widths[0]}}  {part:<{widths[1]}}  {text}" for name, part, text in rows)


def _site_gaps(site: SiteAccess, clock: Callable[[], datetime]) -> Iterator[Gap]:
    cluster = site.cluster
    yield from _asked(site, "cluster", cluster.connection, lambda: _cluster_gaps(site, clock))
    store = cluster.object_store
    yield from _asked(site, f"bucket {store.dataset_bucket}", store.connection, lambda: _dataset_gaps(site))
    yield from _asked(site, f"bucket {store.checkpoint_bucket}", store.connection, lambda: _checkpoint_gaps(site))
    yield from _asked(site, "registry", cluster.registry.connection, lambda: _registry_gaps(site))


def _asked(site: SiteAccess, part: str, connection: str, gaps: Callable[[], Iterable[Gap]]) -> Iterator[Gap]:
    """The gaps, and what stopped the asking as one more of them."""
    try:
        yield from gaps()
    except SpillwayError as problem:
        yield Gap(cluster=site.cluster.name, part=part, problem=str(problem), fix=remedy(problem, connection))


def remedy(problem: SpillwayError, connection: str) -> str:
    """What to do about an endpoint that a Connection leads to."""
    if isinstance(problem, AccessDenied):
        return f"correct the credentials of Connection '{connection}', or grant them access"
    if isinstance(problem, Unreachable):
        return f"check that the address in Connection '{connection}' is right and reachable from here, then ask again"
    if isinstance(problem, Missing) and problem.kind == "bucket":
        return f"create the bucket, or correct its name in clusters.yaml (Connection '{connection}' was accepted)"
    if isinstance(problem, Missing) and problem.kind.lower() == "connection":
        return f"create Connection '{connection}', or correct its name in clusters.yaml"
    return f"correct Connection '{connection}' or the block of this cluster in clusters.yaml"


def _usable(client: T | SpillwayError) -> T:
    if isinstance(client, SpillwayError):
        raise client
    return client


def _cluster_gaps(site: SiteAccess, clock: Callable[[], datetime]) -> Iterator[Gap]:
    client, cluster = _usable(site.client), site.cluster
    state = client.describe()
    yield from _node_gaps(state)
    if not isinstance(client, NamespaceAndClock):
        return
    if not client.namespace_exists():
        yield Gap(
            cluster=cluster.name,
            part="namespace",
            problem=f"namespace '{cluster.namespace}' does not exist",
            fix=f"kubectl create namespace {cluster.namespace}, or correct it in clusters.yaml",
        )
    yield from _clock_gaps(cluster.name, ours=clock(), theirs=client.server_time())


def _clock_gaps(cluster: str, *, ours: datetime, theirs: datetime | None) -> Iterator[Gap]:
    if theirs is None:
        problem = "its API does not say what time it is, so its clock could not be compared with the one here"
        fix = "let the proxy before it pass the header Date on, or compare the two by hand"
    elif abs(ours - theirs) > CLOCK_TOLERANCE:
        skew, most = abs(ours - theirs).total_seconds(), CLOCK_TOLERANCE.total_seconds()
        problem = f"its clock and the one here differ by {skew:.0f} s, more than {most:.0f} s"
        fix = "synchronise both with NTP: losses and leases are judged by comparing them"
    else:
        return
    yield Gap(cluster=cluster, part="clock", problem=problem, fix=fix)


def _node_gaps(state: ClusterState) -> Iterator[Gap]:
    name = state.cluster.name
    if not any(node.allocatable_gpus for node in state.nodes):
        yield Gap(
            cluster=name,
            part="nodes",
            problem=f"none of its {len(state.nodes)} nodes has a GPU to give",
            fix="install the NVIDIA device plugin, or add GPU nodes; a pool that scales from zero may have none now",
        )
    for pool in state.cluster.pools:
        members = [node for node in state.nodes if node.pool == pool.name]
        selector = ", ".join(f"{key}={value}" for key, value in pool.node_selector.items()) or "every node"
        if not members:
            yield Gap(
                cluster=name,
                part=f"pool {pool.name}",
                problem=f"no node matches its selector ({selector})",
                fix="label its nodes or correct node_selector in clusters.yaml; a pool that scales from zero is right",
            )
        odd = [node for node in members if node.allocatable_gpus not in {0, pool.gpus_per_node}]
        for node in odd:
            yield Gap(
                cluster=name,
                part=f"pool {pool.name}",
                problem=f"node {node.name} has {node.allocatable_gpus} GPUs, declared are {pool.gpus_per_node}",
                fix="correct gpus_per_node in clusters.yaml, or look at the node's device plugin",
            )


def _dataset_gaps(site: SiteAccess) -> Iterable[Gap]:
    _usable(site.datasets).head(PROBE_PREFIX + "absent")
    return ()


def _checkpoint_gaps(site: SiteAccess) -> Iterator[Gap]:
    """Really writes: some stores accept a condition and ignore it, and then an old pod could overwrite a new one."""
    store = _usable(site.checkpoints)
    key = f"{PROBE_PREFIX}{uuid.uuid4()}"
    store.put(key, _PROBE, size_bytes=len(_PROBE), if_absent=True)
    try:
        for condition, write in (
            ("If-None-Match", lambda: store.put(key, _PROBE, size_bytes=len(_PROBE), if_absent=True)),
            ("If-Match", lambda: store.put(key, _PROBE, size_bytes=len(_PROBE), if_match="0" * 32)),
        ):
            if not _refused(write):
                yield Gap(
                    cluster=site.cluster.name,
                    part=f"bucket {site.cluster.object_store.checkpoint_bucket}",
                    problem=f"{store.name} ignores the condition {condition} of a write",
                    fix="use a store with conditional writes: without them a lost pod that comes back could overwrite "
                    "the checkpoints of its successor",
                )
    finally:
        refused = store.delete([key])
    for reason in refused.values():
        yield Gap(
            cluster=site.cluster.name,
            part=f"bucket {site.cluster.object_store.checkpoint_bucket}",
            problem=f"{store.name} does not let '{key}' be deleted: {reason}",
            fix="grant the right to delete, or remove it by hand",
        )


def _refused(write: Callable[[], object]) -> bool:
    try:
        write()
    except PreconditionFailed:
        return True
    return False


def _registry_gaps(site: SiteAccess) -> Iterable[Gap]:
    _usable(site.registry).tags("spillway/preflight")
    return ()
