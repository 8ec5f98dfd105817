"""Which runs wait for room, and where: noted as often as that changes, for as long as somebody asks for them."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence, Set
from datetime import datetime, timedelta
from itertools import islice
from typing import Any

from sqlalchemy import Connection, Select, and_, delete, insert, or_, select

from spillway.backfills import orders_nodes
from spillway.ledger.connection import Database
from spillway.ledger.rows import OPEN, fetch_attempts, fetch_open, fetch_wait, first_schedule, select_attempts
from spillway.ledger.schema import runs, waiting
from spillway.model import JobSpec, PendingJob, QueuedRun, WaitRules
from spillway.scaling.waiting import hold_until

SILENCE = timedelta(minutes=5)
"""A run that nobody has asked for so long waits no more: who carried it is gone."""

RENEWAL = timedelta(minutes=1)
"""So often at most it is written that somebody still asks: all who write take turns."""

Places = Set[tuple[str, str]]
"""Pools, each (cluster, pool)."""

_UNSEEN = "unseen"

PROTECTED = 20
"""So many runs are kept from being passed; a decision is stored with all that it was taken from."""


class QueueStore:
    """Runs that wait; see ``store.Ledger``."""

    def __init__(self, database: Database) -> None:
        self.database = database

    def still_waits(
        self, run: str, job: JobSpec, places: Places, now: datetime, *, unseen: Collection[str] = ()
    ) -> None:
        """Somebody goes on waiting for the run, see ``note_waiting``; nothing where it has a place meanwhile."""
        with self.database.reading() as connection:
            if _is_noted(connection, run, places, _unseen(connection, run, unseen), now):
                return
        with self.database.writing() as connection:
            if fetch_open(connection, run) is None:
                note_waiting(connection, run, job, places, now, unseen=unseen)

    def pending_jobs(self, now: datetime) -> tuple[PendingJob, ...]:
        """The runs that wait for nothing but room for GPUs, in the order in which they come.

        Those that wait for anything else, or for cores alone, need no nodes with GPUs and are left out.
        """
        found = _waiting(now).order_by(waiting.c.level, runs.c.created_at, runs.c.run)
        with self.database.reading() as connection:
            rows = connection.execute(found).all()
        return tuple(_pending(*row) for row in rows if row.job.gpus_per_node)

    def promised_jobs(self, lacking: Set[str] = frozenset()) -> Mapping[str, PendingJob]:
        """What open attempts are promised whose pods are not known to have a node yet, by their labels.

        Args:
            lacking: attempts that were seen to have pods without a node, by label, whatever is on record of another
                pod of theirs.
        """
        with self.database.reading() as connection:
            opened = fetch_attempts(connection, select_attempts().where(OPEN))
            found = [attempt for attempt in opened if attempt.node is None or attempt.label in lacking]
            # by their names: one of them may be over since the first question
            asked_by = select(runs.c.run, runs.c.origin).where(runs.c.run.in_({attempt.run for attempt in found}))
            origins = {row.run: row.origin for row in connection.execute(asked_by)}
        return {
            attempt.label: PendingJob(
                run=attempt.run,
                gpus_per_node=attempt.job.gpus_per_node,
                nodes=attempt.job.nodes,
                since=attempt.reserved_at,
                priority=attempt.job.priority,
                places=frozenset({(attempt.candidate.cluster, attempt.candidate.pool)}),
                expected=attempt.job.expected_duration or attempt.job.longest_duration,
                backfill=not orders_nodes(attempt.job, origins[attempt.run]),
            )
            for attempt in found
            if attempt.job.gpus_per_node
        }


def note_waiting(
    connection: Connection, run: str, job: JobSpec, places: Places, now: datetime, *, unseen: Collection[str] = ()
) -> None:
    """The run waits for room at these pools; where there are none, and were none unseen, it waits outside of the queue.

    Args:
        unseen: clusters that gave no answer. It holds no pool of theirs; at which of them it waited before is kept, as
            no nodes are ordered elsewhere because it cannot be seen whether there is room. So is since when it waits.
    """
    before = _unseen(connection, run, unseen)
    spoken = (waiting.c.run == run) & (waiting.c.seen_at > now - SILENCE)
    since = connection.execute(select(waiting.c.since).where(spoken)).scalar()
    leave_queue(connection, run)
    if places or before:
        row = {"run": run, "level": job.priority.level, "since": since or now, "seen_at": now}
        connection.execute(insert(waiting).values(row | {"places": _stored(places, before)}))


def _is_noted(connection: Connection, run: str, places: Places, unseen: Places, now: datetime) -> bool:
    """Whether the queue says so already, and not too long ago."""
    row = connection.execute(select(waiting.c.places, waiting.c.seen_at).where(waiting.c.run == run)).first()
    if row is None:
        return not places | unseen
    known, seen_at = row
    return bool(known == _stored(places, unseen) and seen_at > now - RENEWAL)


def _unseen(connection: Connection, run: str, clusters: Collection[str]) -> Places:
    """The pools of these clusters at which the run waited when it was noted last."""
    if not clusters:
        return frozenset()
    noted = connection.execute(select(waiting.c.places).where(waiting.c.run == run)).scalar() or ()
    return {(cluster, pool) for cluster, pool, *_ in noted if cluster in clusters}


def _stored(places: Places, unseen: Places) -> list[list[str]]:
    """Those that are seen, and then the others with a mark."""
    return [*sorted(map(list, places)), *sorted([*place, _UNSEEN] for place in unseen - places)]


def _seen(stored: Iterable[Sequence[str]]) -> frozenset[tuple[str, str]]:
    """The pools at which a run waits for room and nothing else, for certain."""
    return frozenset((cluster, pool) for cluster, pool, *unseen in stored if not unseen)


def leave_queue(connection: Connection, run: str) -> None:
    """The run has a place, or nobody wants it any more."""
    connection.execute(delete(waiting).where(waiting.c.run == run))


def read_queue(
    connection: Connection, run: str | None, job: JobSpec, now: datetime, rules: WaitRules | None = None
) -> tuple[QueuedRun, ...]:
    """Who waits for room and comes first: those of higher priority and, of the same one, those asked for earlier.

    A run that waits for on-premises by choice is passed by others until it may buy.

    Args:
        run: None is one that is asked for only now.
        rules: by which runs wait by choice; None: none does.
    """
    level = job.priority.level
    asked_at = select(runs.c.created_at).where(runs.c.run == run).scalar_subquery() if run is not None else now
    earlier = or_(runs.c.created_at < asked_at, and_(runs.c.created_at == asked_at, runs.c.run < (run or "~")))
    first = or_(waiting.c.level < level, and_(waiting.c.level == level, earlier))
    found = _waiting(now).where(runs.c.run != (run or ""), first)
    found = found.order_by(waiting.c.level, runs.c.created_at, runs.c.run)
    with connection.execute(found) as rows:  # no more of them than it takes
        seen = (row for row in rows if _seen(row.places))
        wanting = (row for row in seen if rules is None or not _holds(connection, row.run, row.job, rules, now))
        return tuple(_queued(row.run, row.job, row.since, row.places) for row in islice(wanting, PROTECTED))


def _holds(connection: Connection, run: str, job: JobSpec, rules: WaitRules, now: datetime) -> bool:
    """Whether the run waits for on-premises by choice."""
    since = fetch_wait(connection, run)
    return since is not None and hold_until(job, since, rules, first_schedule(job, since)) > now


def _waiting(now: datetime) -> Select[Any]:
    """The runs for which somebody still asks."""
    asked_for = (runs.c.cancelled_at.is_(None), waiting.c.seen_at > now - SILENCE)
    columns = (runs.c.run, runs.c.job, runs.c.origin, runs.c.created_at, waiting.c.since, waiting.c.places)
    return select(*columns).join(waiting, waiting.c.run == runs.c.run).where(*asked_for)


def _pending(
    run: str,
    job: JobSpec,
    origin: Mapping[str, Any],
    asked_at: datetime,
    since: datetime,
    places: list[list[str]],
) -> PendingJob:
    return PendingJob(
        run=run,
        gpus_per_node=job.gpus_per_node,
        nodes=job.nodes,
        since=since,
        priority=job.priority,
        places=frozenset((cluster, pool) for cluster, pool, *_ in places),
        expected=job.expected_duration or job.longest_duration,
        finish_by=None if job.finish_within is None else asked_at + job.finish_within,
        backfill=not orders_nodes(job, origin),
    )


def fetch_waiting(connection: Connection, now: datetime) -> tuple[tuple[JobSpec, frozenset[tuple[str, str]]], ...]:
    """The job of each run that waits for room, and the pools where it does.

    A backfill's run that takes what is left over is no demand: nodes would be ordered for it by what is foreseen of it.
    """
    rows = (row for row in connection.execute(_waiting(now)) if orders_nodes(row.job, row.origin))
    return tuple((row.job, seen) for row in rows if (seen := _seen(row.places)))


def _queued(run: str, job: JobSpec, since: datetime, places: list[list[str]]) -> QueuedRun:
    return QueuedRun(
        run=run,
        priority=job.priority,
        since=since,
        nodes=job.nodes,
        gpus_per_node=job.gpus_per_node,
        cpu_millicores_per_node=job.cpu_millicores,
        memory_mib_per_node=job.memory_mib,
        places=_seen(places),
        image=job.image,
        gpu_fraction=job.gpu_fraction,
    )
