"""What the scaler decides on: pools as they are now, who waits for them, and what was ordered and changed before."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from decimal import Decimal
from functools import partial

from spillway.clouds.base import NodePoolScaler
from spillway.errors import SpillwayError
from spillway.model import ClusterState, Ending, PendingJob, PoolUse, ScalingChange, ScalingSnapshot, SiteKind, UsePoint
from spillway.observe import Asked
from spillway.runs.services import Services
from spillway.scaling.timed import began_at

DEADLINE_SECONDS = 20.0
"""For every pool together; one that is late is unknown, and keeps its size."""
MEMORY = timedelta(days=40)
"""How far back changes count: longer than a window and what comes before it."""
RECENT = timedelta(hours=1)
"""The points of utilisation that rules look at."""

Key = tuple[str, str]
"""(cluster, pool)"""


@dataclass(frozen=True, slots=True)
class Pods:
    """How many pods of each attempt have a node, and how many have none yet, by its label."""

    bound: Counter[str]
    waiting: Counter[str]

    @classmethod
    def of(cls, states: Iterable[ClusterState]) -> Pods:
        ours = [pod for state in states for pod in state.pods if pod.attempt is not None]
        bound, waiting = ([str(p.attempt) for p in ours if (p.node is None) is lacks] for lacks in (False, True))
        return cls(Counter(bound), Counter(waiting))

    @property
    def lacking(self) -> Set[str]:
        """Attempts of which a pod has no node."""
        return self.waiting.keys()

    def missing(self, label: str, pods: int) -> int:
        """How many of the attempt's pods are to get a node yet; all of them where none was created."""
        return self.waiting[label] if label in self.bound or label in self.waiting else pods


def scalers(services: Services) -> Mapping[str, NodePoolScaler | SpillwayError]:
    """What scales the pools of each cluster that has such pools, or why it cannot be asked."""
    found: dict[str, NodePoolScaler | SpillwayError] = {}
    for name in sorted({cluster for cluster, _ in scalable_pools(services)}):
        try:
            scaler = services.scaler(name)
        except SpillwayError as problem:
            found[name] = problem
            services.forget(name)
        else:
            if scaler is not None:
                found[name] = scaler
    return found


def scalable_pools(services: Services) -> tuple[Key, ...]:
    """The pools that are declared to have a scaler, by cluster and name."""
    declared = services.configuration.clusters.values()
    return tuple(sorted((c.name, pool.name) for c in declared for pool in c.pools if pool.scaled_by is not None))


def scaling_snapshot(
    services: Services, asked: Mapping[str, NodePoolScaler | SpillwayError], *, mark: bool = False
) -> ScalingSnapshot:
    """All that is known at this moment; a pool that cannot be read is unknown, with its cause.

    Args:
        asked: as ``scalers`` gives them.
        mark: have nodes remember since when they idle; nothing is written without it.
    """
    now, ledger, declared = services.clock(), services.ledger, services.configuration
    pools, unknown, pods = _look(services, asked, mark=mark)
    changes = ledger.scaling_changes(since=now - MEMORY)
    done = [change for change in changes if change.asked_at is not None]
    return ScalingSnapshot(
        taken_at=now,
        pools=pools,
        unknown=unknown,
        local=_points(services, SiteKind.ONPREM, now),
        cloud=_points(services, SiteKind.CLOUD, now),
        queue=(*ledger.pending_jobs(now), *_coming(services, pods)),
        orders=ledger.scaling_orders(now),
        last_out=_last(change for change in done if change.target.nodes > change.before),
        last_in=_last(change for change in done if change.target.nodes < change.before),
        base_nodes=_base_nodes(pools, done, began_at(declared.scaling, now)),
        replaced=_replaced(done),
        money_left=money_left(services, now),
        endings=_endings(services),
        watched=ledger.watches(),
    )


def _look(
    services: Services, asked: Mapping[str, NodePoolScaler | SpillwayError], *, mark: bool
) -> tuple[tuple[PoolUse, ...], Mapping[Key, str], Pods]:
    """The pools that can be read, why each other one cannot, and our pods."""
    over_at = time.monotonic() + DEADLINE_SECONDS
    real = {name: scaler for name, scaler in asked.items() if not isinstance(scaler, SpillwayError)}
    reading = Asked("the node pools of", {name: partial(scaler.pools, mark=mark) for name, scaler in real.items()})
    describing = Asked("cluster", {name: services.site(name).client.describe for name in real})
    seen, states = reading.answers(over_at), describing.answers(over_at)
    pools, unknown = [], {}
    for cluster, pool in scalable_pools(services):
        scaler = asked.get(cluster)
        cause = reading.problems.get(cluster) or describing.problems.get(cluster)
        use = seen.get(cluster, {}).get(pool)
        if isinstance(scaler, SpillwayError):
            unknown[cluster, pool] = str(scaler)
        elif isinstance(use, SpillwayError):
            unknown[cluster, pool] = str(use)
        elif cause is not None or use is None or cluster not in states:
            unknown[cluster, pool] = cause or f"no complete answer within {DEADLINE_SECONDS:.0f} s"
        if isinstance(use, PoolUse):
            pools.append(use)
    return tuple(pools), unknown, Pods.of(states.values())


def _coming(services: Services, pods: Pods) -> Iterator[PendingJob]:
    """What is promised at pools that scale, as far as its pods are still to come: those with a node are seen there.

    What is promised elsewhere, such as on-premises, has its room there and wants nothing of them.
    """
    scaled, promised = set(scalable_pools(services)), services.ledger.promised_jobs(pods.lacking)
    for label, job in sorted(promised.items()):
        if not scaled.isdisjoint(job.places) and (nodes := pods.missing(label, job.nodes)):
            yield replace(job, nodes=nodes)


def _endings(services: Services) -> tuple[Ending, ...]:
    """The runs on-premises that say when they have ended at the latest, those first that end first."""
    owned = {c.name for c in services.configuration.clusters.values() if c.kind is SiteKind.ONPREM}
    found = [
        Ending(at=r.ends_at, place=(r.cluster, r.pool), gpus_per_node=r.gpus_per_node, nodes=r.nodes)
        for r in services.ledger.reservations()
        if r.cluster in owned and r.ends_at is not None and r.gpus_per_node
    ]
    return tuple(sorted(found, key=lambda ending: (ending.at, ending.place)))


def _points(services: Services, kind: SiteKind, now: datetime) -> tuple[UsePoint, ...]:
    clusters = [cluster.name for cluster in services.configuration.clusters.values() if cluster.kind is kind]
    return services.ledger.use_points(clusters, now - RECENT, now) if clusters else ()


def _last(changes: Iterable[ScalingChange]) -> Mapping[Key, datetime]:
    return {(change.cluster, change.pool): change.asked_at for change in changes if change.asked_at is not None}


def _replaced(changes: Iterable[ScalingChange]) -> Mapping[Key, Mapping[datetime, frozenset[str]]]:
    found: dict[Key, dict[datetime, frozenset[str]]] = {}
    for change in changes:
        if change.target.replaces and change.asked_at is not None:
            found.setdefault((change.cluster, change.pool), {})[change.asked_at] = frozenset(change.target.replaces)
    return found


def _base_nodes(
    pools: Sequence[PoolUse], changes: Sequence[ScalingChange], began: datetime | None
) -> Mapping[Key, int]:
    """How many nodes each pool was to have at that moment: what the first change since then found it to have."""
    if began is None:
        return {}
    base = {(use.cluster, use.pool.name): use.wanted for use in pools}
    for change in reversed(changes):
        if change.asked_at is not None and change.asked_at >= began:
            base[change.cluster, change.pool] = change.before
    return base


def closed_nodes(services: Services) -> Mapping[Key, frozenset[str]]:
    """The nodes that the last change of each pool has closed to pods, so that they become empty."""
    return {(c.cluster, c.pool): frozenset(c.target.drains) for c in services.ledger.last_changes(asked=True)}


def money_left(services: Services, now: datetime) -> Decimal | None:
    """What all budgets of the month leave together; None where none is declared, or a department has none.

    A node is for whoever may pay for it, and each job is held to its own department's budget when it is placed.
    """
    declared = services.configuration
    states = services.ledger.budgets(declared.policy, now, declared.clusters.values())
    if not states or set(declared.policy.quotas) - {state.department for state in states}:
        return None
    return sum((max(Decimal(0), state.left) for state in states), Decimal(0))
