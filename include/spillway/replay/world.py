"""The simulated clusters: pools with nodes, what runs on them, and the snapshots that the live policies are shown."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from decimal import Decimal

from spillway.migration import MoveFacts
from spillway.model import Billing, Cluster, ClusterState, PodUse, Priority, Snapshot
from spillway.replay.pools import Pool
from spillway.replay.spot import Zone

ROUNDED = 0.001
"""Seconds: moments are rounded to microseconds before they are compared."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Conditions:
    """What the simulated world does beside the policies.

    A node takes between ``boot`` to be usable. The scaler looks every ``tick``. ``move`` is what a move takes, as
    ``migration`` adds it up; with these figures 10 minutes. ``spot`` is when pools of spot have any; a pool that is not
    in it always has. Jobs of the priorities ``spot_ok`` may be interrupted. Every ``checkpoint_every`` a run commits
    what it has trained. Jobs that tell no other read ``dataset_gib``, and commit ``checkpoint_gib`` at a time; None is
    as in ``move``.
    """

    boot: tuple[timedelta, timedelta] = (timedelta(minutes=5), timedelta(minutes=10))
    tick: timedelta = timedelta(seconds=30)
    move: MoveFacts = field(
        default_factory=lambda: MoveFacts(
            image_bytes=0,
            dataset_bytes=0,
            missing_checkpoint_bytes=0,
            checkpoint_bytes=30 * 10**9,
            bandwidth_bytes_per_second=125e6,
            flush=timedelta(minutes=1),
            grace=timedelta(minutes=2),
            restart=timedelta(minutes=5),
            steps_at_risk=0,
            egress_price_per_gib=Decimal(0),
            brought_egress=Decimal(0),
        )
    )
    spot: Mapping[tuple[str, str], Zone] = field(default_factory=dict)
    spot_ok: frozenset[Priority] = frozenset()
    checkpoint_every: timedelta = timedelta(minutes=30)
    dataset_gib: float = 0.0
    checkpoint_gib: float | None = None


class World:
    """Every pool of the clusters. On-premises pools have all of their nodes from the start, those of clouds none."""

    def __init__(self, clusters: Sequence[Cluster], starts_at: datetime) -> None:
        self.clusters, self.starts_at = tuple(clusters), starts_at
        found = [(cluster, pool) for cluster in clusters for pool in cluster.pools if pool.gpus_per_node]
        self.pools = [Pool(cluster, pool, place) for place, (cluster, pool) in enumerate(found)]
        self.local = [pool for pool in self.pools if not pool.bought]
        self.cloud = [pool for pool in self.pools if pool.bought]
        self.by_key: Mapping[tuple[str, str], Pool] = {pool.key: pool for pool in self.pools}
        for pool in self.local:
            for _ in range(pool.declared.max_nodes):
                pool.ready(pool.order(0.0), 0.0)

    def moment(self, at: float) -> datetime:
        return self.starts_at + timedelta(seconds=at)

    def snapshot(self, at: float, waits_since: datetime) -> Snapshot:
        """All clusters as they are, for a job that has waited since then."""
        return Snapshot(
            taken_at=self.moment(at),
            clusters=tuple(self._state(cluster) for cluster in self.clusters),
            waits_since=waits_since,
        )

    def _state(self, cluster: Cluster) -> ClusterState:
        pools = [pool for pool in self.pools if pool.cluster is cluster]
        pods = tuple(
            PodUse(name=f"{run}-{node.name}", namespace="", gpus=gpus, attempt=str(run), node=node.name)
            for pool in pools
            for node in pool.nodes.values()
            for run, gpus in node.runs.items()
        )
        return ClusterState(cluster=cluster, nodes=tuple(n for pool in pools for n in pool.states()), pods=pods)


def usual_price(pool: Pool) -> Decimal | None:
    """That of a GPU-hour: owned on-premises, on-demand in a cloud; else the lowest that is declared, None without any.

    As live, nothing moves by a price that is not known.
    """
    return pool.declared.prices_per_gpu_hour.get(usual_billing(pool))


def counted_price(pool: Pool) -> Decimal:
    """What the cost of a replay counts of it: one that is not declared adds nothing."""
    return usual_price(pool) or Decimal(0)


def usual_billing(pool: Pool) -> Billing:
    """How its GPUs are paid for then."""
    prices = pool.declared.prices_per_gpu_hour
    usual = Billing.ON_DEMAND if pool.bought else Billing.OWNED
    return usual if usual in prices else min(prices, key=lambda billing: prices[billing], default=usual)
