"""How busy both sides of a replay were at the beats of its clock, as the samples of the live scaler tell it."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

from spillway.model import UsePoint
from spillway.replay.pools import Pool
from spillway.replay.waiting import Waiting
from spillway.replay.world import World

_Seen = tuple[int, int, int, int, int, int]
"""Jobs and GPUs that wait; the GPUs that are ready on-premises and those in use there; the same of the clouds."""


class Measured:
    """A point a beat for each side that is looked at, as far back as ``lasting``; seconds.

    A beat that was passed over would have seen what the one before it saw.
    """

    def __init__(
        self, world: World, waiting: Waiting, *, local: bool, cloud: bool, tick: float, lasting: float
    ) -> None:
        self.world, self.waiting, self.tick, self.lasting = world, waiting, tick, lasting
        self._seen = deque[tuple[float, _Seen]]()
        self._told_at = 0.0
        self._local = deque[UsePoint]()
        self._cloud = deque[UsePoint]()
        self._looks_at = (local, cloud)

    def look(self, at: float) -> None:
        """A beat: what it sees is so from then on, until another one sees something else."""
        seen = (self.waiting.jobs, self.waiting.gpus, *_use(self.world.local), *_use(self.world.cloud))
        if self._seen and self._seen[-1][1] == seen:
            return
        if not self._seen:
            self._told_at = at - self.tick
        self._seen.append((at, seen))
        self._forget(at - self.lasting)

    def points(self, at: float) -> tuple[tuple[UsePoint, ...], tuple[UsePoint, ...]]:
        """Those on-premises and in the clouds up to the beat, the oldest first; none of a side that nobody looks at."""
        since = self.world.moment(at - self.lasting)
        begins_at = max(self._told_at + self.tick, -(-(at - self.lasting) // self.tick) * self.tick)
        for beat in range(round((at - begins_at) / self.tick) + 1):
            self._tell(begins_at + beat * self.tick)
        self._told_at = at
        for points in (self._local, self._cloud):
            while points and points[0].at < since:
                points.popleft()
        return tuple(self._local), tuple(self._cloud)

    def _tell(self, at: float) -> None:
        self._forget(at)
        now = self.world.moment(at)
        jobs, waiting, local, local_used, cloud, cloud_used = self._seen[0][1]
        looks_local, looks_cloud = self._looks_at
        for looks, points, gpus, used in (
            (looks_local, self._local, local, local_used),
            (looks_cloud, self._cloud, cloud, cloud_used),
        ):
            if looks:
                points.append(UsePoint(at=now, gpus=gpus, used_gpus=used, queued_jobs=jobs, pending_gpus=waiting))

    def _forget(self, until: float) -> None:
        """What was seen no longer by then."""
        while len(self._seen) > 1 and self._seen[1][0] <= until:
            self._seen.popleft()


def _use(pools: Sequence[Pool]) -> tuple[int, int]:
    ready = used = 0
    for pool in pools:
        usable = pool.usable_gpus
        ready += usable
        used += usable - pool.room.total
    return ready, used
