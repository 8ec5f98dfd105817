"""Samples: written once whoever takes them, averaged over longer steps, and read as demand."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from itertools import pairwise

from sqlalchemy import delete, func, select

from spillway.ledger.connection import Database
from spillway.ledger.queueing import fetch_waiting
from spillway.ledger.rows import OPEN, fetch_attempts, select_attempts
from spillway.ledger.sample_rows import (
    average_step,
    delete_samples,
    fetch_sample,
    fetch_samples,
    pool_sample,
    seconds,
    write_nodes,
    write_sample,
    write_starts,
)
from spillway.ledger.sample_tables import pod_starts, pool_samples, sampled_nodes, samples
from spillway.model import (
    ROLL_UPS,
    SAMPLE_STEP,
    Attempt,
    DemandSeries,
    JobSpec,
    NodeSample,
    PodStart,
    PoolSample,
    Sample,
    SampleRetention,
    UsePoint,
)
from spillway.sampling import covers, step_start

LEAST_COVERAGE = 0.5
"""An hour of which less was measured is a gap."""

PRUNED_AT_ONCE = 1000
HOUR = ROLL_UPS[-1]


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """The open attempts, and the job of each run that waits for room with the (cluster, pool) pairs where it does."""

    attempts: tuple[Attempt, ...]
    waiting: tuple[tuple[JobSpec, frozenset[tuple[str, str]]], ...]


class SampleStore:
    """Samples; see ``store.Ledger``."""

    def __init__(self, database: Database) -> None:
        self.database = database

    def has_sample(self, at: datetime) -> bool:
        """Whether somebody has taken that moment's sample."""
        found = select(samples.c.at).where(samples.c.step_seconds == seconds(SAMPLE_STEP), samples.c.at == at)
        with self.database.reading() as connection:
            return connection.execute(found).first() is not None

    def record_sample(self, sample: Sample, nodes: Iterable[NodeSample] = (), starts: Iterable[PodStart] = ()) -> bool:
        """Write what was measured; gives whether anything of it was not there yet.

        What somebody else wrote of the same moment stays: a cluster is added only where it was unknown.

        Args:
            nodes: all of each cluster that is not unknown, with the moment as ``idle_since`` where they idle; since
                when they do is known here.
            starts: pods that run, whenever they began.
        """
        with self.database.writing() as connection:
            known = fetch_sample(connection, SAMPLE_STEP, sample.at)
            there = {pool.cluster for pool in known.pools} if known else set()
            added = tuple(pool for pool in sample.pools if pool.cluster not in there)
            if known is None:
                write_sample(connection, sample)
            elif added:
                missing = {name: cause for name, cause in known.unknown.items() if name in sample.unknown}
                queue = sample.queue if set(sample.unknown) < set(known.unknown) else known.queue
                pools = (*known.pools, *added)
                write_sample(connection, replace(sample, queue=queue, unknown=missing, pools=pools))
            for cluster in sorted({pool.cluster for pool in added}):
                own = [node for node in nodes if node.cluster == cluster]
                write_nodes(connection, cluster, own, sample.at)
            write_starts(connection, starts)
        return known is None or bool(added)

    def wanted(self, now: datetime) -> Wanted:
        """Who holds GPUs and who waits for them at this moment."""
        with self.database.reading() as connection:
            held = fetch_attempts(connection, select_attempts().where(OPEN))
            return Wanted(attempts=held, waiting=fetch_waiting(connection, now))

    def samples(self, since: datetime, until: datetime, step: timedelta = SAMPLE_STEP) -> tuple[Sample, ...]:
        """Those from ``since`` on and before ``until``, oldest first; ``step`` may be one of ``ROLL_UPS``."""
        with self.database.reading() as connection:
            return fetch_samples(connection, step, since=since, before=until)

    def newest_sample(self, until: datetime) -> Sample | None:
        """The last one until then, however old it is; None where there is none."""
        own = samples.c
        newest = select(func.max(own.at)).where(own.step_seconds == seconds(SAMPLE_STEP), own.at <= until)
        with self.database.reading() as connection:
            at = connection.execute(newest.select_from(samples)).scalar()
            return None if at is None else fetch_sample(connection, SAMPLE_STEP, at)

    def newest_pool_samples(self, until: datetime) -> tuple[tuple[datetime, PoolSample], ...]:
        """The newest sample of each pool and its moment, however old it is."""
        own = pool_samples.c
        of_step = (own.step_seconds == seconds(SAMPLE_STEP)) & (own.at <= until)
        newest = select(own.cluster, own.pool, func.max(own.at).label("at")).where(of_step)
        of_pool = newest.group_by(own.cluster, own.pool).subquery()
        same = (own.cluster == of_pool.c.cluster) & (own.pool == of_pool.c.pool) & (own.at == of_pool.c.at)
        found = select(pool_samples).join(of_pool, same).where(of_step).order_by(own.cluster, own.pool)
        with self.database.reading() as connection:
            return tuple((row["at"], pool_sample(row)) for row in connection.execute(found).mappings())

    def use_points(self, clusters: Collection[str], since: datetime, until: datetime) -> tuple[UsePoint, ...]:
        """How busy these clusters together were after ``since`` and until then, oldest first.

        A moment in which any of them could not be read has no point. A run that would do with others too waits here
        as well.
        """
        own, of_step = pool_samples.c, seconds(SAMPLE_STEP)
        together = (
            select(own.at, func.sum(own.gpus), func.sum(own.used_gpus))
            .where(own.step_seconds == of_step, own.at > since, own.at <= until, own.cluster.in_(clusters))
            .group_by(own.at)
        )
        its = samples.c
        moments = select(its.at, its.queue, its.unknown).where(
            its.step_seconds == of_step, its.at > since, its.at <= until
        )
        with self.database.reading() as connection:
            used = {at: (gpus, taken) for at, gpus, taken in connection.execute(together)}
            found = connection.execute(moments.order_by(its.at)).all()
        points = []
        for at, queue, unknown in found:
            if at in used and not set(clusters) & set(unknown):
                waiting = [demand for demand in queue if covers(demand, clusters)]
                points.append(
                    UsePoint(
                        at=at,
                        gpus=_whole(used[at][0]),
                        used_gpus=_whole(used[at][1]),
                        queued_jobs=_whole(sum(demand.runs for demand in waiting)),
                        pending_gpus=_whole(sum(demand.gpus for demand in waiting)),
                    )
                )
        return tuple(points)

    def demand(self, since: datetime, until: datetime) -> DemandSeries:
        """GPUs wanted in each whole hour from the one that ``since`` is in: those in use and those waited for.

        An hour is a gap where too little of it was measured, of any cluster that was declared then.
        """
        start = step_start(since, HOUR)
        hours = max(0, (until - start) // HOUR)
        own, its = samples.c, pool_samples.c
        moments = select(own.at, own.taken, own.pending_gpus, own.unknown)
        moments = moments.where(own.step_seconds == seconds(HOUR), own.at >= start, own.at < start + hours * HOUR)
        parts = select(its.at, its.cluster, its.taken, its.used_gpus)
        parts = parts.where(its.step_seconds == seconds(HOUR), its.at >= start, its.at < start + hours * HOUR)
        with self.database.reading() as connection:
            found, pools = connection.execute(moments).all(), connection.execute(parts).all()
        wanted = {at: pending for at, taken, pending, _ in found if _covered(taken)}
        silent = {at: set(unknown) for at, _, _, unknown in found}
        for at, cluster, taken, used in pools:
            silent[at].discard(cluster)
            if not _covered(taken):
                wanted.pop(at, None)
            elif at in wanted:
                wanted[at] += used
        every = (start + hour * HOUR for hour in range(hours))
        gpus = tuple(None if silent.get(at) else wanted.get(at) for at in every)
        return DemandSeries(starts_at=start, step=HOUR, gpus=gpus)

    def sampled_nodes(self) -> tuple[NodeSample, ...]:
        """Every node that its cluster had when it was read last."""
        order = (sampled_nodes.c.cluster, sampled_nodes.c.pool, sampled_nodes.c.name)
        with self.database.reading() as connection:
            rows = connection.execute(select(sampled_nodes).order_by(*order)).mappings()
            return tuple(NodeSample(**row) for row in rows)

    def pod_starts(self, since: datetime, until: datetime) -> tuple[PodStart, ...]:
        """Pods that began to run after ``since`` and until then, oldest first."""
        own = pod_starts.c
        found = select(pod_starts).where(own.started_at > since, own.started_at <= until)
        with self.database.reading() as connection:
            rows = connection.execute(found.order_by(own.started_at, own.cluster, own.pod)).mappings()
            return tuple(PodStart(**row) for row in rows)

    def roll_up_samples(self, keep: SampleRetention, until: datetime) -> None:
        """Average what is over by then, and drop the oldest samples beyond what is kept.

        How much is kept is counted in samples, so that a clock that was wrong drops nothing. Each average is one
        transaction, and is made anew where a sample came late.
        """
        steps = (SAMPLE_STEP, *ROLL_UPS)
        for step, longer in pairwise(steps):
            for start in self._to_average(step, longer, until):
                with self.database.writing() as connection:
                    average_step(connection, step, longer, start)
        for step, length in zip(steps, (keep.samples, keep.five_minutes, keep.hours), strict=True):
            self._prune(step, max(1, length // step))

    def _to_average(self, step: timedelta, longer: timedelta, until: datetime) -> Sequence[datetime]:
        own = samples.c
        over = (own.step_seconds == seconds(step)) & (own.at < step_start(until, longer))
        with self.database.reading() as connection:
            found = connection.execute(select(own.at).where(own.rolled_up.is_(False), over)).scalars()
            return sorted({step_start(at, longer) for at in found})

    def _prune(self, step: timedelta, kept: int) -> None:
        own, of_step = samples.c, samples.c.step_seconds == seconds(step)
        newest = select(own.at).where(of_step).order_by(own.at.desc()).offset(kept).limit(1)
        with self.database.reading() as connection:
            last = connection.execute(newest).scalar()
        if last is None:
            return
        old = select(own.at).where(of_step, own.at <= last)
        if step != HOUR:
            old = old.where(own.rolled_up.is_(True))
        with self.database.writing() as connection:
            moments = list(connection.execute(old.order_by(own.at).limit(PRUNED_AT_ONCE)).scalars())
            delete_samples(connection, step, moments)
            if step == ROLL_UPS[0]:
                connection.execute(delete(pod_starts).where(pod_starts.c.started_at < last))


def _whole(gpus: float) -> int:
    """Rounded up: whoever has a part of a GPU has it from others. What is finer than a millionth is of the floats."""
    return math.ceil(round(gpus, 6))


def _covered(taken: int) -> bool:
    return taken * SAMPLE_STEP / HOUR >= LEAST_COVERAGE
