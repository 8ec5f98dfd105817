"""What waits, packed onto the nodes that there are and onto those that would have to come.

A pod is never split over nodes, several may share one, and a gang gets room for all of its pods in one pool or none.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass
from datetime import datetime

from spillway.model import PendingJob
from spillway.scaling.sizes import PoolSize


@dataclass(slots=True, kw_only=True)
class PoolDemand:
    """What waits for one pool: ``gpus`` of ``jobs`` find no room on what there is and what comes.

    ``new_nodes`` are enough for as many of these as the pool may have nodes for. ``reserved`` idle nodes are taken by
    what does find room.
    """

    reserved: int = 0
    new_nodes: int = 0
    gpus: int = 0
    jobs: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Demand:
    """What waits, by pool; ``waiting`` is how many jobs may order nodes and wait now, whether they find room or not."""

    pools: Mapping[tuple[str, str], PoolDemand]
    waiting: int = 0


def demand_of(
    queue: Sequence[PendingJob],
    sizes: Sequence[PoolSize],
    room: Mapping[tuple[str, str], int],
    now: datetime,
    *,
    patient: Set[str] = frozenset(),
) -> Demand:
    """Each waiting job at one pool: the first with room for it on what there is and comes, else the first to have more.

    A job that waits by choice wants nothing until then. One of a window of the past takes what is left over, and never
    a node that is not there yet.

    Args:
        sizes: the pools, the preferred one first.
        room: how many more nodes each pool may have; less than 0 where that many are too many and leave.
        patient: runs that take their turn at what there is and comes, and have nothing bought yet.
    """
    found = {size.key: PoolDemand() for size in sizes}
    if not queue:
        return Demand(pools=found)
    bins = [_Bins(size, room[size.key], found[size.key]) for size in sizes]
    suited = dict[tuple[int, frozenset[tuple[str, str]]], list[_Bins]]()
    hopeless = set[tuple[int, int, frozenset[tuple[str, str]]]]()
    waiting = 0
    for job in sorted(queue, key=_turn) if any(one.has_some for one in bins) else queue:
        if job.hold_until is not None and job.hold_until > now:
            continue
        waiting += not job.backfill
        pods, mine = (job.gpus_per_node, job.places), suited.get((job.gpus_per_node, job.places))
        if mine is None:
            mine = suited[pods] = [one for one in bins if one.key in job.places and 0 < job.gpus_per_node <= one.whole]
        if not mine:
            continue
        shape, orders = (job.gpus_per_node, job.nodes, job.places), not job.backfill and job.run not in patient
        if shape not in hopeless:
            if any(one.takes(job) for one in mine) or (orders and any(one.buys(job) for one in mine)):
                continue
            if orders:
                hopeless.add(shape)  # there is never more room than before, whatever is bought for others
        if orders:
            mine[0].lacks(job)
    return Demand(pools=found, waiting=waiting)


def _turn(job: PendingJob) -> tuple[bool, int, datetime, str]:
    return job.backfill, job.priority.level, job.since, job.run


class _Bins:
    """The free GPUs of a pool's nodes: how many nodes have so many.

    Of those in use, idle ones, those to come, and those that are bought for what waits.
    """

    __slots__ = ("_bought", "_idle", "_later", "_used", "demand", "key", "room", "whole")

    def __init__(self, size: PoolSize, room: int, demand: PoolDemand) -> None:
        self.key, self.whole, self.room, self.demand = size.key, size.gpus_per_node, max(0, room), demand
        none = [0] * (self.whole + 1)
        self._used, self._idle, self._later, self._bought = list(size.free), none, list(none), list(none)
        for node in size.idle:
            self._idle[min(node.free_gpus, self.whole)] += 1
        self._later[self.whole] = size.coming
        surplus = max(0, -room)
        for bins in (self._later, self._idle):
            for free in range(self.whole, 0, -1):
                gone = min(surplus, bins[free])
                bins[free] -= gone
                surplus -= gone

    @property
    def has_some(self) -> bool:
        """Whether anything could fit; the order of jobs does not matter where nothing does."""
        return self.room > 0 or any(self._used[1:]) or any(self._idle[1:]) or any(self._later[1:])

    def takes(self, job: PendingJob) -> bool:
        """Put all of its pods on nodes in use, then others; nothing where not all fit."""
        if self._fitting(job.gpus_per_node) < job.nodes:
            return False
        self._fill(job)
        return True

    def buys(self, job: PendingJob) -> bool:
        """Buy the nodes that it lacks; nothing where the pool may not have as many."""
        lacking = job.nodes - self._fitting(job.gpus_per_node)
        nodes = -(-lacking // (self.whole // job.gpus_per_node))
        if nodes > self.room:
            return False
        self.room -= nodes
        self.demand.new_nodes += nodes
        self._bought[self.whole] += nodes
        self._fill(job)
        return True

    def lacks(self, job: PendingJob) -> None:
        """Count it among what finds no room on what there is and comes."""
        self.demand.gpus += job.gpus
        self.demand.jobs += 1

    def _fitting(self, gpus: int) -> int:
        used, idle, later, bought = self._used, self._idle, self._later, self._bought
        sizes = range(gpus, self.whole + 1)
        return sum((used[free] + idle[free] + later[free] + bought[free]) * (free // gpus) for free in sizes)

    def _fill(self, job: PendingJob) -> None:
        """The nodes with the least room first, so that whole ones stay whole."""
        pods = job.nodes
        for bins in (self._used, self._idle, self._later):
            taken, pods = _put(bins, self._used if bins is self._idle else bins, job.gpus_per_node, pods)
            if bins is self._idle:
                self.demand.reserved += taken
        if pods:
            _put(self._bought, self._bought, job.gpus_per_node, pods)
            self.lacks(job)


def _put(bins: list[int], rest_to: list[int], gpus: int, pods: int) -> tuple[int, int]:
    """Put pods on the nodes of ``bins``, which then stand by what they have left in ``rest_to``.

    Returns:
        How many nodes were taken, and how many pods found none.
    """
    taken = 0
    for free in range(gpus, len(bins)):
        while pods and bins[free]:
            put = min(pods, free // gpus)
            nodes = min(bins[free], pods // put)
            bins[free] -= nodes
            rest_to[free - put * gpus] += nodes
            taken, pods = taken + nodes, pods - nodes * put
    return taken, pods
