"""Spot that comes and goes in a replay: when a zone has any, by seed, and pools of their own for what is bought so."""

from __future__ import annotations

import math
import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from spillway.errors import UnknownName
from spillway.model import Billing, Cluster, NodePool, SiteKind

Key = tuple[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Stretch:
    """How long something lasts, in hours, log-normal.

    Raises:
        ValueError: the median is not above 0, or above the mean, which no log-normal duration has.
    """

    mean_hours: float
    median_hours: float

    def __post_init__(self) -> None:
        if not 0 < self.median_hours <= self.mean_hours:
            raise ValueError(
                f"expected 0 < median <= mean, got a median of {self.median_hours:g} hours and a mean of "
                f"{self.mean_hours:g}"
            )

    def drawn(self, chance: random.Random) -> float:
        """Hours."""
        spread = math.sqrt(2 * math.log(self.mean_hours / self.median_hours))
        return self.median_hours * math.exp(chance.gauss(0, spread))


@dataclass(frozen=True, slots=True, kw_only=True)
class Zone:
    """For how long it has spot at a time, and for how long none."""

    up: Stretch
    down: Stretch

    def stretches(self, chance: random.Random) -> Iterator[tuple[bool, float]]:
        """Whether there is spot, and for how many hours, one after the other without end."""
        there = chance.random() < self.up.mean_hours / (self.up.mean_hours + self.down.mean_hours)
        while True:
            yield there, (self.up if there else self.down).drawn(chance)
            there = not there


def spot_apart(
    clusters: Sequence[Cluster], zones: Mapping[Key, Zone]
) -> tuple[tuple[Cluster, ...], Mapping[Key, Zone]]:
    """The clusters with pools of their own for the spot of those zones, and the zone of each such pool.

    A pool that sells in other ways, too, becomes two, as a node is bought in one way: the second one is named
    ``...-spot`` and is as large as the first. Spot of no zone is not for sale: nobody knows when it is there. Without
    any zone all is as it was.

    Raises:
        UnknownName: no pool of a cloud of that name sells spot.
    """
    if not zones:
        return tuple(clusters), {}
    selling = {(cluster.name, pool.name) for cluster in clusters for pool in cluster.pools if _sells(cluster, pool)}
    if unknown := sorted(zones.keys() - selling):
        raise UnknownName("pool with a spot price", "/".join(unknown[0]), map("/".join, selling))
    found, of_pool = [], dict[Key, Zone]()
    for cluster in clusters:
        pools, names = list[NodePool](), {pool.name for pool in cluster.pools}
        for pool in cluster.pools:
            zone, prices = zones.get((cluster.name, pool.name)), dict(pool.prices_per_gpu_hour)
            spot = prices.pop(Billing.SPOT, None) if _sells(cluster, pool) else None
            if spot is None or prices:
                pools.append(pool if spot is None else replace(pool, prices_per_gpu_hour=prices))
            if zone is not None and spot is not None:
                name = pool.name
                while prices and name in names:
                    name += "-spot"
                pools.append(
                    replace(pool, name=name, prices_per_gpu_hour={Billing.SPOT: spot}, off_peak=None, reserved=None)
                )
                of_pool[cluster.name, name] = zone
        found.append(replace(cluster, pools=tuple(pools)))
    return tuple(found), of_pool


def _sells(cluster: Cluster, pool: NodePool) -> bool:
    return cluster.kind is not SiteKind.ONPREM and Billing.SPOT in pool.prices_per_gpu_hour
