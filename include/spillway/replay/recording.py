"""What happened in a replay, as it goes."""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from spillway.replay.jobs import Job
from spillway.replay.metrics import Interruptions, Orders, Place, ReplayResult, Stays
from spillway.replay.steps import Seconds, Steps
from spillway.replay.world import World, counted_price


class Recording:
    """Stays of jobs and sizes of pools, in arrays: a trace has many of them."""

    def __init__(self, world: World) -> None:
        self._stays: tuple[array[Any], ...] = tuple(array(kind) for kind in "qqdd")
        self._orders: tuple[array[Any], ...] = tuple(array(kind) for kind in "dqq")
        self._interruptions: tuple[array[Any], ...] = tuple(array(kind) for kind in "dqd")
        self._sizes = [(array("d", [0.0]), array("q", [pool.room.total])) for pool in world.pools]

    def stay(self, job: int, place: int, start: float, end: float) -> None:
        jobs, places, starts, ends = self._stays
        jobs.append(job)
        places.append(place)
        starts.append(start)
        ends.append(end)

    def order(self, at: float, place: int, nodes: int, gpus: int) -> None:
        """So many nodes more, after which the pool has so many GPUs."""
        for column, value in zip(self._orders, (at, place, nodes), strict=True):
            column.append(value)
        self.size(at, place, gpus)

    def interruption(self, at: float, job: int, lost: float) -> None:
        """The run lost its nodes, and what it had trained for so many seconds."""
        for column, value in zip(self._interruptions, (at, job, lost), strict=True):
            column.append(value)

    def size(self, at: float, place: int, gpus: int) -> None:
        """So many GPUs of the pool are paid for from then on."""
        moments, sizes = self._sizes[place]
        if moments[-1] == at:
            sizes[-1] = gpus
        else:
            moments.append(at)
            sizes.append(gpus)

    def result(
        self,
        trace: str,
        policy: str,
        jobs: Sequence[Job],
        world: World,
        measured: tuple[float, float] | None,
        over_at: float,
    ) -> ReplayResult:
        """All of it. Where nothing is said figures are of the whole trace, to the end of the last job."""
        ended = _moments(job.ended_at for job in jobs)
        submitted = np.array([job.asked_at for job in jobs])
        last = float(max(submitted[-1], np.nanmax(ended) if np.isfinite(ended).any() else 0.0))
        interruptions = [np.array(column) for column in self._interruptions]
        stays = [np.array(column) for column in self._stays]
        orders = [np.array(column) for column in self._orders]
        return ReplayResult(
            trace=trace,
            policy=policy,
            starts_at=world.starts_at,
            measured=measured or (0.0, last + 1.0),
            submitted=submitted,
            gpus=np.array([job.gpus for job in jobs], dtype=np.int64),
            started=_moments(job.started_at for job in jobs),
            ended=ended,
            places=tuple(
                Place(
                    name="/".join(pool.key),
                    cloud=pool.bought,
                    price_per_gpu_hour=counted_price(pool),
                )
                for pool in world.pools
            ),
            stays=Stays(job=stays[0], place=stays[1], start=stays[2], end=stays[3]),
            capacity=tuple(Steps(at=np.array(at), gpus=np.array(gpus)) for at, gpus in self._sizes),
            orders=Orders(at=orders[0], place=orders[1], nodes=orders[2]),
            interruptions=Interruptions(at=interruptions[0], job=interruptions[1], lost=interruptions[2]),
            over_at=over_at,
        )


def _moments(found: Iterable[float | None]) -> Seconds:
    return np.array([np.nan if at is None else at for at in found], dtype=np.float64)
