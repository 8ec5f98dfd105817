"""What waits, packed onto the nodes that there are and onto those that would have to come.

A pod is never split over nodes, several may share one, and a gang gets room for all of its pods in one pool or none.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from spillway.model import PendingJob
from spillway.scaling.sizes import PoolSize


@dataclass(slots=True, kw_only=True)
class PoolDemand:
    """What waits for one pool.

    ``reserved`` idle nodes and all that is coming are enough for what fits. ``new_nodes`` is how many more the rest
    needs, as far as the pool may have them. ``gpus`` of ``jobs`` find no room on what there is and comes. ``refused``
    is how many of these jobs no pool may have the nodes for.
    """

    reserved: int = 0
    new_nodes: int = 0
    gpus: int = 0
    jobs: int = 0
    refused: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Demand:
    """What waits, by pool; ``waiting`` is how many jobs may order nodes and wait now, whether they find room or not."""

    pools: Mapping[tuple[str, str], PoolDemand]
    waiting: int = 0


def demand_of(
    queue: Sequence[PendingJob], sizes: Sequence[PoolSize], room: Mapping[tuple[str, str], int], now: datetime
) -> Demand:
    """Each waiting job at one pool: the first with room for it on what there is and comes, else with the fewest to buy.

    A job that waits by choice wants nothing until then. One of a window of the past takes what is left over, and never
    a node that is not there yet.

    Args:
        sizes: the pools, the preferred one first.
        room: how many more nodes each pool may have.
    """
    found = {size.key: PoolDemand() for size in sizes}
    if not queue or not sizes:
        return Demand(pools=found, waiting=sum(_orders(job, now) for job in queue))
    bins = [_Bins(size, room[size.key], found[size.key]) for size in sizes]
    hopeless = set[tuple[int, int, frozenset[tuple[str, str]]]]()
    waiting = 0
    for job in sorted(queue, key=_turn):
        if job.hold_until is not None and job.hold_until > now:
            continue
        waiting += not job.backfill
        mine = [one for one in bins if one.key in job.places and 0 < job.gpus_per_node <= one.whole]
        shape = (job.gpus_per_node, job.nodes, job.places)
        if not mine:
            continue
        if shape not in hopeless:
            if any(one.takes(job) for one in mine):
                continue
            hopeless.add(shape)
        if job.backfill:
            continue
        buyer = next((one for one in mine if one.buys(job)), None)
        demand = (buyer or mine[0]).demand
        demand.gpus += job.gpus
        demand.jobs += 1
        if buyer is None:
            demand.refused += 1
        else:
            hopeless.clear()  # what the last node that is bought has left may be room for others
    return Demand(pools=found, waiting=waiting)


def _orders(job: PendingJob, now: datetime) -> bool:
    return not job.backfill and (job.hold_until is None or job.hold_until <= now)


def _turn(job: PendingJob) -> tuple[bool, int, datetime, str]:
    return job.backfill, job.priority.level, job.since, job.run


class _Bins:
    """The free GPUs of a pool's nodes: how many nodes have so many, of those in use, idle ones, and those to come."""

    __slots__ = ("_idle", "_later", "_used", "demand", "key", "room", "whole")

    def __init__(self, size: PoolSize, room: int, demand: PoolDemand) -> None:
        self.key, self.whole, self.room, self.demand = size.key, size.gpus_per_node, room, demand
        self._used, self._idle, self._later = list(size.free), [0] * (self.whole + 1), [0] * (self.whole + 1)
        for node in size.idle:
            self._idle[min(node.free_gpus, self.whole)] += 1
        self._later[self.whole] = size.coming

    def takes(self, job: PendingJob) -> bool:
        """Put all of its pods on nodes in use, then idle ones, then those to come; nothing where not all fit."""
        if self._fitting(job.gpus_per_node) < job.nodes:
            return False
        self._fill(job.gpus_per_node, job.nodes)
        return True

    def buys(self, job: PendingJob) -> bool:
        """Order the nodes that it lacks; nothing where the pool may not have as many."""
        lacking = job.nodes - self._fitting(job.gpus_per_node)
        nodes = -(-lacking // (self.whole // job.gpus_per_node))
        if nodes > self.room:
            return False
        self.room -= nodes
        self.demand.new_nodes += nodes
        self._later[self.whole] += nodes
        self._fill(job.gpus_per_node, job.nodes)
        return True

    def _fitting(self, gpus: int) -> int:
        used, idle, later = self._used, self._idle, self._later
        return sum((used[free] + idle[free] + later[free]) * (free // gpus) for free in range(gpus, self.whole + 1))

    def _fill(self, gpus: int, pods: int) -> None:
        """The nodes with the least room first, so that whole ones stay whole."""
        for bins in (self._used, self._idle, self._later):
            rest_to = self._later if bins is self._later else self._used
            for free in range(gpus, self.whole + 1):
                each = free // gpus
                while bins[free] and pods:
                    if pods >= each:
                        nodes, put = min(bins[free], pods // each), each
                    else:
                        nodes, put = 1, pods
                    bins[free] -= nodes
                    rest_to[free - put * gpus] += nodes
                    pods -= nodes * put
                    if bins is self._idle:
                        self.demand.reserved += nodes
