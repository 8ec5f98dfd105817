"""What stands between the declared clusters and a first run, each gap with what to do about it.

Asking leaves nothing behind: the object written to try the store is deleted again, the upload to a registry given up.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Protocol, TypeVar, runtime_checkable

from spillway.clouds.base import ClusterClient
from spillway.clouds.rights import Right
from spillway.errors import AccessDenied, Missing, PreconditionFailed, SpillwayError, Unreachable
from spillway.leases import clock_problem
from spillway.model import Cluster, ClusterState, NodePool, NodeState, SiteKind
from spillway.registries.base import ImageRegistry
from spillway.stores.base import ObjectStore
from spillway.threads import worker_threads

T = TypeVar("T")

PROBE_PREFIX = ".spillway-preflight/"
PROBE_REPOSITORY = "spillway/preflight"
_SLOW_SYNC = "of two syncs of a dataset the slower one could put an older version in the place of a newer one"
_LOST_POD = "a lost pod that comes back could overwrite the checkpoints of its successor"
_PROBE = b"written by spillway preflight; may be deleted"


@runtime_checkable
class RealCluster(Protocol):
    """What a real API can be asked beyond running pods."""

    def missing_rights(self) -> tuple[Right, ...] | None:
        """What the Connection's identity lacks; None where the API does not answer such questions."""

    def namespace_exists(self) -> bool: ...

    @property
    def clock_ahead(self) -> timedelta | None:
        """How far the API's clock was ahead of the one here at its last answer; None where it did not say."""


@runtime_checkable
class RegistryToPushTo(Protocol):
    """A registry that can be asked for the right to push."""

    def try_push(self, repository: str) -> None:
        """Begin an upload and give it up; raises AccessDenied, and Missing where the repository must be made first."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SiteAccess:
    """A declared cluster and the clients made for it; an error where none could be made.

    ``mirrored``: images are copied to its registry; ``synced``: datasets are copied to its store.
    """

    cluster: Cluster
    client: ClusterClient | SpillwayError
    datasets: ObjectStore | SpillwayError
    checkpoints: ObjectStore | SpillwayError
    registry: ImageRegistry | SpillwayError
    mirrored: bool = False
    synced: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Gap:
    """One thing that would stop or endanger runs on a cluster, and its remedy; unless ``checked``, it is not known.

    Whether a pool of a cloud is empty by mistake or because nobody needs it now is not known.
    """

    cluster: str
    part: str
    problem: str
    fix: str
    checked: bool = True


def preflight(sites: Sequence[SiteAccess]) -> tuple[Gap, ...]:
    """Every gap of every site, in the order of ``sites``; empty where runs can start everywhere."""
    if not sites:
        return ()
    with worker_threads(len(sites), "preflight") as pool:
        return tuple(gap for gaps in pool.map(lambda site: list(_site_gaps(site)), sites) for gap in gaps)


def merged(gaps: Iterable[Gap]) -> tuple[Gap, ...]:
    """The gaps, one where several parts of a cluster have the same problem: two buckets without their Connection."""
    found: dict[tuple[str, str, str], Gap] = {}
    for gap in gaps:
        same = (gap.cluster, gap.problem, gap.fix)
        found[same] = replace(gap, part=f"{found[same].part}, {gap.part}") if same in found else gap
    return tuple(found.values())


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


def _site_gaps(site: SiteAccess) -> Iterator[Gap]:
    cluster = site.cluster
    yield from _asked(site, "cluster", cluster.connection, lambda: _cluster_gaps(site))
    store = cluster.object_store
    yield from _asked(site, f"bucket {store.dataset_bucket}", store.connection, lambda: _dataset_gaps(site))
    bucket, tries = store.checkpoint_bucket, _writing_gaps(site, site.checkpoints, store.checkpoint_bucket, _LOST_POD)
    yield from _asked(site, f"bucket {bucket}", store.connection, lambda: tries)
    yield from _asked(site, "registry", cluster.registry.connection, lambda: _registry_gaps(site))


def _asked(site: SiteAccess, part: str, connection: str, gaps: Callable[[], Iterable[Gap]]) -> Iterator[Gap]:
    """The gaps, and what stopped the asking as one more of them."""
    try:
        yield from gaps()
    except SpillwayError as problem:
        yield Gap(cluster=site.cluster.name, part=part, problem=problem.told, fix=remedy(problem, connection))


def remedy(problem: SpillwayError, connection: str) -> str:
    """What to do about an endpoint that a Connection leads to."""
    if isinstance(problem, AccessDenied):
        named = f"Connection '{connection}'"
        return problem.fix if named in problem.fix else f"{problem.fix} (its {named})"
    if isinstance(problem, Unreachable):
        return f"check that the address in Connection '{connection}' is right and reachable from here, then ask again"
    if isinstance(problem, Missing) and problem.kind == "bucket":
        return f"create the bucket, or correct its name in clusters.yaml (Connection '{connection}' was accepted)"
    if isinstance(problem, Missing) and problem.kind.lower() == "connection":
        return f"create Connection '{connection}', or correct its name in clusters.yaml"
    return problem.fix or f"correct Connection '{connection}' or the block of this cluster in clusters.yaml"


def _usable(client: T | SpillwayError) -> T:
    if isinstance(client, SpillwayError):
        raise client
    return client


def _cluster_gaps(site: SiteAccess) -> Iterator[Gap]:
    client, cluster = _usable(site.client), site.cluster
    if not isinstance(client, RealCluster):
        yield from _node_gaps(client.describe())
        return
    lacking = client.missing_rights()
    yield from _right_gaps(cluster, lacking)
    if not any(right.everywhere for right in lacking or ()):  # else nodes and pods cannot be seen
        yield from _node_gaps(client.describe())
    if all(right.resource != "namespaces" for right in lacking or ()):
        yield from _namespace_gaps(cluster, exists=client.namespace_exists())
    yield from _clock_gaps(cluster.name, client.clock_ahead)


def _right_gaps(cluster: Cluster, lacking: Iterable[Right] | None) -> Iterator[Gap]:
    if lacking is None:
        yield Gap(
            cluster=cluster.name,
            part="rights",
            problem="not checked: its API does not answer a SelfSubjectAccessReview",
            fix="compare the identity's roles with those in docs/clusters.md",
            checked=False,
        )
    for right in lacking or ():
        where = "at cluster scope" if right.everywhere else f"in namespace '{cluster.namespace}'"
        role = "a ClusterRole" if right.everywhere else f"a Role of namespace '{cluster.namespace}'"
        verbs = ", ".join(right.verbs)
        rule = f'{{apiGroups: ["{right.group}"], resources: [{right.resource}], verbs: [{verbs}]}}'
        yield Gap(
            cluster=cluster.name,
            part="rights",
            problem=f"the identity of Connection '{cluster.connection}' may not {verbs} {right.resource} {where}",
            fix=f"bind it to {role} with {rule}; docs/clusters.md has the whole manifest",
        )


def _namespace_gaps(cluster: Cluster, *, exists: bool) -> Iterator[Gap]:
    if not exists:
        yield Gap(
            cluster=cluster.name,
            part="namespace",
            problem=f"namespace '{cluster.namespace}' does not exist",
            fix=f"kubectl create namespace {cluster.namespace}, or correct it in clusters.yaml",
        )


def _clock_gaps(cluster: str, ahead: timedelta | None) -> Iterator[Gap]:
    if ahead is None:
        problem = "its API does not say what time it is, so its clock could not be compared with the one here"
        fix = "let the proxy before it pass the header Date on, or compare the two by hand"
    elif problem := clock_problem(ahead):
        fix = "synchronise both with NTP: losses and leases are judged by comparing them"
    else:
        return
    yield Gap(cluster=cluster, part="clock", problem=problem, fix=fix)


def _node_gaps(state: ClusterState) -> Iterator[Gap]:
    name = state.cluster.name
    for_gpus = {pool.name for pool in state.cluster.pools if pool.gpus_per_node}
    with_gpus = [node for node in state.nodes if node.pool in for_gpus]
    if with_gpus and not any(node.allocatable_gpus for node in with_gpus):
        yield Gap(
            cluster=name,
            part="nodes",
            problem=f"none of the {len(with_gpus)} nodes in its pools with GPUs has one to give",
            fix="install the NVIDIA device plugin, or look at the one on its nodes",
        )
    for pool in state.cluster.pools:
        members = [node for node in state.nodes if node.pool == pool.name]
        selector = ", ".join(f"{key}={value}" for key, value in pool.node_selector.items()) or "every node"
        taken = _taken_nodes(state, pool, without_any=not members)
        if taken:
            first, *more = taken
            yield Gap(
                cluster=name,
                part=f"pool {pool.name}",
                problem=f"its selector ({selector}) matches node {first.name} too, which pool {first.pool} has"
                + (f", and {len(more)} more" if more else ""),
                fix="select each pool's nodes by a label of their own: of pools that match a node the one with most "
                "labels in its selector has it, and of equally many the first in clusters.yaml",
            )
        elif not members:
            may_scale = state.cluster.kind is SiteKind.CLOUD
            fix = "label its nodes or correct node_selector in clusters.yaml"
            yield Gap(
                cluster=name,
                part=f"pool {pool.name}",
                problem=f"no node matches its selector ({selector})",
                fix=f"{fix}; nothing, if it scales from zero" if may_scale else fix,
                checked=not may_scale,
            )
        odd = [node for node in members if node.allocatable_gpus not in {0, pool.devices_per_node}]
        for node in odd:
            yield Gap(
                cluster=name,
                part=f"pool {pool.name}",
                problem=f"node {node.name} has {node.allocatable_gpus} {pool.gpu_resource}, "
                f"declared are {pool.devices_per_node}",
                fix="correct gpus_per_node or gpu_share in clusters.yaml, or look at the node's device plugin",
            )


def _taken_nodes(state: ClusterState, pool: NodePool, *, without_any: bool) -> list[NodeState]:
    """The nodes that an equally specific pool has, and where the pool is ``without_any`` those of more specific ones.

    A pool that gets what more specific ones leave is meant so, as long as they leave it any.
    """
    labels: dict[str | None, int] = {other.name: len(other.node_selector) for other in state.cluster.pools}
    matched = [node for node in state.nodes if pool.name in node.also_matches]
    return [node for node in matched if without_any or labels[node.pool] == labels[pool.name]]


def _dataset_gaps(site: SiteAccess) -> Iterable[Gap]:
    if site.synced:
        return _writing_gaps(site, site.datasets, site.cluster.object_store.dataset_bucket, _SLOW_SYNC)
    _usable(site.datasets).head(PROBE_PREFIX + "absent")
    return ()


def _writing_gaps(site: SiteAccess, client: ObjectStore | SpillwayError, bucket: str, danger: str) -> Iterator[Gap]:
    """Really writes: some stores accept a condition and ignore it."""
    store = _usable(client)
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
                    part=f"bucket {bucket}",
                    problem=f"{store.name} ignores the condition {condition} of a write",
                    fix=f"use a store with conditional writes: without them {danger}",
                )
    finally:
        refused = store.delete([key])
    for reason in refused.values():
        yield Gap(
            cluster=site.cluster.name,
            part=f"bucket {bucket}",
            problem=f"{store.name} does not let '{key}' be deleted: {reason}",
            fix="grant the right to delete, or remove it by hand",
        )


def _refused(write: Callable[[], object]) -> bool:
    try:
        write()
    except PreconditionFailed:
        return True
    return False


def _registry_gaps(site: SiteAccess) -> Iterator[Gap]:
    registry, reference = _usable(site.registry), site.cluster.registry
    registry.tags(PROBE_REPOSITORY)
    if not site.mirrored or not isinstance(registry, RegistryToPushTo):
        return
    try:
        registry.try_push(PROBE_REPOSITORY)
    except AccessDenied as problem:
        yield Gap(
            cluster=site.cluster.name,
            part="registry",
            problem=str(problem),
            fix=f"let the identity of Connection '{reference.connection}' push to every repository"
            + (f" below '{reference.prefix}'" if reference.prefix else ""),
        )
    except Missing as problem:
        yield Gap(
            cluster=site.cluster.name,
            part="registry",
            problem=f"not checked whether images can be pushed: {problem}",
            fix="make a repository for each image, and let the identity of Connection "
            f"'{reference.connection}' push to it",
            checked=False,
        )
