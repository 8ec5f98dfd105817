"""The gaps of a declared cluster, its buckets and its registry."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Protocol, TypeVar, runtime_checkable

from spillway.clouds.base import ClusterClient, NodePoolScaler
from spillway.clouds.rights import Right
from spillway.errors import AccessDenied, Missing, PreconditionFailed, SpillwayError, Unreachable
from spillway.errors.counts import counted
from spillway.leases import clock_problem
from spillway.model import Cluster
from spillway.preflight.gaps import Gap
from spillway.preflight.nodes import node_gaps
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

    ``mirrored``: images are copied to its registry; ``synced``: datasets are copied to its store. ``scaler`` is None
    where no pool of it can be scaled.
    """

    cluster: Cluster
    client: ClusterClient | SpillwayError
    datasets: ObjectStore | SpillwayError
    checkpoints: ObjectStore | SpillwayError
    registry: ImageRegistry | SpillwayError
    mirrored: bool = False
    synced: bool = False
    scaler: NodePoolScaler | None = None


def preflight(sites: Sequence[SiteAccess]) -> tuple[Gap, ...]:
    """Every gap of every site, in the order of ``sites``; empty where runs can start everywhere."""
    if not sites:
        return ()
    with worker_threads(len(sites), "preflight") as pool:
        return tuple(gap for gaps in pool.map(lambda site: list(_site_gaps(site)), sites) for gap in gaps)


def _site_gaps(site: SiteAccess) -> Iterator[Gap]:
    cluster = site.cluster
    yield from _asked(site, "cluster", cluster.connection, lambda: _cluster_gaps(site))
    yield from _asked(site, "node pools", cluster.connection, lambda: _scaling_gaps(site))
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
        yield from node_gaps(client.describe())
        return
    lacking = client.missing_rights()
    yield from _right_gaps(cluster, lacking)
    if not any(right.everywhere and right.to_run for right in lacking or ()):  # else nodes and pods cannot be seen
        yield from node_gaps(client.describe())
    if all(right.resource != "namespaces" for right in lacking or ()):
        yield from _namespace_gaps(cluster, exists=client.namespace_exists())
    yield from _clock_gaps(cluster.name, client.clock_ahead)


def _scaling_gaps(site: SiteAccess) -> Iterator[Gap]:
    """Pools whose provider gives no answer, or does not bring what it was asked for."""
    cluster = site.cluster
    for name, found in site.scaler.pools(mark=False).items() if site.scaler else ():
        scaled_by = cluster.pool(name).scaled_by
        if isinstance(found, SpillwayError):
            connection = (scaled_by and scaled_by.connection) or cluster.connection
            yield Gap(cluster=cluster.name, part=f"pool {name}", problem=found.told, fix=remedy(found, connection))
        elif found.problem:
            yield Gap(
                cluster=cluster.name,
                part=f"pool {name}",
                problem=f"its provider does not bring {counted(found.wanted, 'node')} as asked: {found.problem}",
                fix="have its quota raised, or correct the node group",
            )


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
