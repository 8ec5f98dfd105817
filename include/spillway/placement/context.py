"""What filters and scorers look things up in: one snapshot and policy, indexed once a decision."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from decimal import Decimal

from spillway.model import Billing, Candidate, Cluster, NodePool, PlacementPolicy, SiteKind, Snapshot
from spillway.placement.capacity import PoolCapacity, pool_capacities
from spillway.pricing import price_per_gpu_hour
from spillway.quota import DepartmentGpus, department_gpus, gpus_in_use


@dataclass(frozen=True, slots=True, kw_only=True)
class Context:
    """``prices`` has the candidates with a price that can be believed; ``capacities`` the pools that can be seen."""

    snapshot: Snapshot
    clusters: Mapping[str, Cluster]
    prices: Mapping[Candidate, Decimal]
    capacities: Mapping[tuple[str, str], PoolCapacity]
    quotas: Mapping[SiteKind, DepartmentGpus]
    used: Mapping[SiteKind, Mapping[str, int]]

    def cluster(self, candidate: Candidate) -> Cluster:
        return self.clusters[candidate.cluster]

    def pool(self, candidate: Candidate) -> NodePool:
        return self.cluster(candidate).pool(candidate.pool)


def candidates(snapshot: Snapshot) -> tuple[Candidate, ...]:
    """Every way to run on a declared pool, those of unreachable clusters included, in the order of their names.

    A pool that declares no price has one candidate, so that the table shows why it is never chosen.
    """
    return tuple(
        Candidate(cluster=cluster.name, pool=pool.name, billing=billing)
        for cluster in snapshot.declared
        for pool in sorted(cluster.pools, key=lambda pool: pool.name)
        for billing in sorted(pool.prices_per_gpu_hour) or [_usual_billing(cluster)]
    )


def index(snapshot: Snapshot, policy: PlacementPolicy) -> Context:
    """The context of one decision."""
    clusters = {cluster.name: cluster for cluster in snapshot.declared}
    prices = {
        candidate: price
        for candidate in candidates(snapshot)
        if (price := price_per_gpu_hour(clusters[candidate.cluster].pool(candidate.pool), candidate.billing))
        is not None
    }
    return Context(
        snapshot=snapshot,
        clusters=clusters,
        prices=prices,
        capacities={
            (state.cluster.name, pool): capacity
            for state in snapshot.clusters
            for pool, capacity in pool_capacities(state, snapshot.reservations).items()
        },
        quotas={kind: department_gpus(policy.quotas, clusters.values(), kind) for kind in SiteKind},
        used={kind: gpus_in_use(snapshot.reservations, clusters.values(), kind) for kind in SiteKind},
    )


def _usual_billing(cluster: Cluster) -> Billing:
    return Billing.OWNED if cluster.kind is SiteKind.ONPREM else Billing.ON_DEMAND
