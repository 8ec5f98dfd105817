"""What filters and scorers look things up in: a snapshot and policy, indexed once for all jobs that are decided on."""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable, Mapping
from dataclasses import dataclass, field, replace
from datetime import timedelta
from decimal import Decimal
from typing import Any, TypeVar

from spillway.deadlines import RESTART, time_left
from spillway.lines import transfer
from spillway.model import (
    Billing,
    Candidate,
    Cluster,
    DatasetUse,
    JobSpec,
    NodePool,
    NodeState,
    PlacementPolicy,
    SiteKind,
    Snapshot,
    TransferEstimate,
)
from spillway.offpeak import cheaper_from, off_peak_price
from spillway.placement.capacity import ClusterUse, PoolCapacity
from spillway.pricing import hourly_price, price_is_stale, price_of_run
from spillway.quota import DepartmentGpus, department_gpus, gpus_in_use

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class Context:
    """``prices`` has the candidates with a price that can be believed, ``dearest`` the highest of each cluster, of a
    GPU and, where the second is True, of a core of a pool without any; ``uses`` the clusters that can be seen and
    ``capacities`` their pools now; ``offers`` the candidates of each pool, by cluster.
    """

    snapshot: Snapshot
    policy: PlacementPolicy
    clusters: Mapping[str, Cluster]
    offers: tuple[tuple[tuple[Candidate, ...], ...], ...]
    pools: Mapping[tuple[str, str], NodePool]
    pool_nodes: Mapping[tuple[str, str], tuple[NodeState, ...]]
    prices: Mapping[Candidate, Decimal]
    dearest: Mapping[tuple[str, bool], Decimal]
    uses: Mapping[str, ClusterUse]
    capacities: Mapping[tuple[str, str], PoolCapacity]
    quotas: Mapping[SiteKind, DepartmentGpus]
    used: Mapping[SiteKind, Mapping[str, Decimal]]
    found: dict[Hashable, Any] = field(default_factory=dict, compare=False, repr=False)
    """What was worked out once and holds for every job that is decided on from the same facts."""
    found_for_job: dict[Hashable, Any] = field(default_factory=dict, compare=False, repr=False)
    """What was worked out once for the job of this snapshot: from its schedule, and from those that come before it."""

    def once(self, key: Hashable, work_out: Callable[[], T]) -> T:
        """What ``work_out`` gives for the key, which names all that it depends on beside the facts."""
        return _once(self.found, key, work_out)

    def once_for_job(self, key: Hashable, work_out: Callable[[], T]) -> T:
        """The same for what depends on the snapshot's job, too."""
        return _once(self.found_for_job, key, work_out)

    def deciding(self, snapshot: Snapshot) -> Context:
        """The same facts for another job.

        Args:
            snapshot: this one's, with what is known of the other job: its schedule, its budgets, who asks for it and
                where to, who comes before it, why its image counts as core.
        """
        return replace(self, snapshot=snapshot, found_for_job={})

    def after(self, snapshot: Snapshot, changed: Collection[str]) -> Context:
        """The facts of another moment.

        Args:
            snapshot: this one's, where pods and reservations of the clusters that are named in ``changed`` are others.
        """
        uses = {
            s.cluster.name: ClusterUse(s, snapshot.reservations) for s in snapshot.clusters if s.cluster.name in changed
        }
        return replace(
            self,
            snapshot=snapshot,
            uses={**self.uses, **uses},
            capacities={**self.capacities, **_capacities(uses)},
            used=_used(snapshot, self.clusters),
            found={},
            found_for_job={},
        )

    @property
    def candidates(self) -> tuple[Candidate, ...]:
        return tuple(candidate for cluster in self.offers for pool in cluster for candidate in pool)

    def nodes(self, candidate: Candidate) -> tuple[NodeState, ...]:
        """The nodes of the candidate's pool that can be seen."""
        return self.pool_nodes.get((candidate.cluster, candidate.pool), ())

    def transfer(self, use: DatasetUse, cluster: str) -> TransferEstimate | None:
        """What bringing there takes that is read of a dataset; nothing where it is verified to be there already.

        None where nobody looked, or its home is not declared.
        """
        facts, seen = self.snapshot.datasets.get(use.name), self.snapshot
        if facts is None or facts.home not in self.clusters:
            return None
        home, target = self.clusters[facts.home], self.clusters[cluster]

        def worked_out() -> TransferEstimate:
            return transfer(0 if seen.has(use, target) else facts.size_of(use), home, target, seen.link_rates)

        return self.once(("transfer", use, cluster), worked_out)

    def cluster(self, candidate: Candidate) -> Cluster:
        return self.clusters[candidate.cluster]

    def pool(self, candidate: Candidate) -> NodePool:
        return self.pools[candidate.cluster, candidate.pool]

    def bringing(self, job: JobSpec, cluster: str) -> timedelta:
        """How long the job's data takes to get there; what nobody knows of takes as long as a restart."""

        def worked_out() -> timedelta:
            parts = [part for use in job.datasets if (part := self.transfer(use, cluster)) is not None]
            return sum((RESTART if part.duration is None else part.duration for part in parts), timedelta())

        return self.once(("bringing", job.datasets, cluster), worked_out)

    def occupied(self, job: JobSpec, candidate: Candidate) -> timedelta | None:
        """How long the job would have its place: while its data is brought, and for what it has left to train."""
        trains = time_left(job, self.snapshot.schedule)
        return None if trains is None else self.bringing(job, candidate.cluster) + trains

    def price(self, job: JobSpec, candidate: Candidate) -> Decimal | None:
        """That of an hour of the job there if it begins now; None where no price can be believed."""
        usual, pool = self.prices.get(candidate), self.pool(candidate)
        if usual is None or pool.off_peak is None:
            return usual
        now, lasting = self.snapshot.taken_at, self.occupied(job, candidate)
        key = ("price", candidate, lasting)
        return self.once(key, lambda: price_of_run(pool, candidate.billing, now, lasting))

    def lowest_price(self, job: JobSpec, candidate: Candidate, now_costs: Decimal) -> Decimal:
        """That of an hour of the job there if it begins at the cheapest time of the day."""
        pool, now = self.pool(candidate), self.snapshot.taken_at
        cheaper = off_peak_price(pool, candidate.billing)
        if cheaper is None or cheaper_from(pool, candidate.billing, now, self.occupied(job, candidate)) is None:
            return now_costs
        return min(cheaper, now_costs)


def _once(found: dict[Hashable, Any], key: Hashable, work_out: Callable[[], T]) -> T:
    if key not in found:
        found[key] = work_out()
    known: T = found[key]
    return known


def offers(snapshot: Snapshot) -> tuple[tuple[tuple[Candidate, ...], ...], ...]:
    """Every way to run on a declared pool, those of unreachable clusters included, in the order of their names.

    A pool that declares no price has one candidate, so that the table shows why it is never chosen.
    """

    def of_pool(cluster: Cluster, pool: NodePool) -> tuple[Candidate, ...]:
        billings = sorted(pool.prices_per_hour) or [_usual_billing(cluster)]
        return tuple(Candidate(cluster=cluster.name, pool=pool.name, billing=billing) for billing in billings)

    return tuple(
        tuple(of_pool(cluster, pool) for pool in sorted(cluster.pools, key=lambda pool: pool.name))
        for cluster in snapshot.declared
        if cluster.pools
    )


def index(snapshot: Snapshot, policy: PlacementPolicy) -> Context:
    """The context of a decision."""
    clusters = {cluster.name: cluster for cluster in snapshot.declared}
    uses = {state.cluster.name: ClusterUse(state, snapshot.reservations) for state in snapshot.clusters}
    every = offers(snapshot)
    pools = {(cluster.name, pool.name): pool for cluster in clusters.values() for pool in cluster.pools}
    prices = {
        candidate: price
        for of_cluster in every
        for of_pool in of_cluster
        for candidate in of_pool
        if (price := _believed(candidate, pools, snapshot, policy)) is not None
    }
    return Context(
        snapshot=snapshot,
        policy=policy,
        clusters=clusters,
        offers=every,
        pools=pools,
        pool_nodes=_nodes_by_pool(snapshot),
        prices=prices,
        dearest=_highest(prices, pools),
        uses=uses,
        capacities=_capacities(uses),
        quotas={kind: department_gpus(policy.quotas, clusters.values(), kind) for kind in SiteKind},
        used=_used(snapshot, clusters),
    )


def _capacities(uses: Mapping[str, ClusterUse]) -> Mapping[tuple[str, str], PoolCapacity]:
    return {(cluster, pool): capacity for cluster, use in uses.items() for pool, capacity in use.capacities().items()}


def _used(snapshot: Snapshot, clusters: Mapping[str, Cluster]) -> Mapping[SiteKind, Mapping[str, Decimal]]:
    return {kind: gpus_in_use(snapshot.reservations, clusters.values(), kind) for kind in SiteKind}


def _nodes_by_pool(snapshot: Snapshot) -> Mapping[tuple[str, str], tuple[NodeState, ...]]:
    found: dict[tuple[str, str], list[NodeState]] = {}
    for state in snapshot.clusters:
        for node in state.nodes:
            if node.pool is not None:
                found.setdefault((state.cluster.name, node.pool), []).append(node)
    return {place: tuple(nodes) for place, nodes in found.items()}


def _believed(
    candidate: Candidate, pools: Mapping[tuple[str, str], NodePool], snapshot: Snapshot, policy: PlacementPolicy
) -> Decimal | None:
    pool, billing = pools[candidate.cluster, candidate.pool], candidate.billing
    stale = price_is_stale(pool, billing, policy.price_max_age, snapshot.taken_at)
    return None if stale else hourly_price(pool, billing)


def _highest(
    prices: Mapping[Candidate, Decimal], pools: Mapping[tuple[str, str], NodePool]
) -> Mapping[tuple[str, bool], Decimal]:
    highest: dict[tuple[str, bool], Decimal] = {}
    for candidate, price in prices.items():
        key = candidate.cluster, not pools[candidate.cluster, candidate.pool].gpus_per_node
        highest[key] = max(price, highest.get(key, price))
    return highest


def _usual_billing(cluster: Cluster) -> Billing:
    return Billing.OWNED if cluster.kind is SiteKind.ONPREM else Billing.ON_DEMAND
