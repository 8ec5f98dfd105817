"""What the ledger knows of a decision's moment: the same for whoever reserves, moves, waits or only asks."""

from __future__ import annotations

import dataclasses
from datetime import datetime

from sqlalchemy import Connection

from spillway.ledger.budgeting import read_budgets
from spillway.ledger.connection import Database
from spillway.ledger.evidence import read_cool_downs
from spillway.ledger.queueing import read_queue
from spillway.ledger.rows import (
    fetch_held,
    fetch_open_attempts,
    fetch_requester,
    fetch_reservations,
    fetch_schedule,
    fetch_wait,
    first_schedule,
)
from spillway.model import JobSpec, PlacementPolicy, Schedule, Snapshot


class SnapshotStore:
    """Snapshots for those who write nothing; see ``store.Ledger``."""

    def __init__(self, database: Database) -> None:
        self.database = database

    def with_promises(self, snapshot: Snapshot, policy: PlacementPolicy, now: datetime) -> Snapshot:
        """The observed snapshot with what is promised, to whatever run, who may give way, and which places rest."""
        with self.database.reading() as connection:
            return _with_promises(connection, snapshot, policy, now, but=None)

    def for_job(
        self, run: str | None, job: JobSpec, snapshot: Snapshot, policy: PlacementPolicy, now: datetime
    ) -> Snapshot:
        """The snapshot of ``with_promises`` with what ``complete`` knows of the job itself besides.

        The two give what ``complete`` gives, unless a move holds a place for the run: that is its own.
        """
        with self.database.reading() as connection:
            return _for_job(connection, run, job, snapshot, policy, now)

    def complete(
        self, run: str | None, job: JobSpec, snapshot: Snapshot, policy: PlacementPolicy, now: datetime
    ) -> Snapshot:
        """The snapshot that ``reserve``, or with a destination ``order_move``, would decide from now."""
        with self.database.reading() as connection:
            return complete(connection, run, job, snapshot, policy, now)

    def schedule(self, run: str, job: JobSpec, now: datetime) -> Schedule | None:
        """By when the run has to be done and how far it is, None where its job does not say both."""
        if job.finish_within is None:
            return None
        with self.database.reading() as connection:
            return fetch_schedule(connection, run, job, now)


def complete(
    connection: Connection,
    run: str | None,
    job: JobSpec,
    snapshot: Snapshot,
    policy: PlacementPolicy,
    now: datetime,
) -> Snapshot:
    """The observed snapshot with all that the ledger knows for the decision.

    Args:
        run: whose next place is looked for: what a move holds for it is its own, and its budgets are without what it
            still would cost where it is. None is one that nobody has asked for yet, so that all who wait were first.
        snapshot: with a destination where the run is moved; nobody queues for that. Without a run it says itself which
            DAG asks.
    """
    return _for_job(connection, run, job, _with_promises(connection, snapshot, policy, now, but=run), policy, now)


def _with_promises(
    connection: Connection, snapshot: Snapshot, policy: PlacementPolicy, now: datetime, *, but: str | None
) -> Snapshot:
    return dataclasses.replace(
        snapshot,
        reservations=fetch_reservations(connection) + fetch_held(connection, but=but),
        open_attempts=fetch_open_attempts(connection) if _may_displace(snapshot, policy) else (),
        cool_downs=read_cool_downs(connection, now),
    )


def _for_job(
    connection: Connection,
    run: str | None,
    job: JobSpec,
    snapshot: Snapshot,
    policy: PlacementPolicy,
    now: datetime,
) -> Snapshot:
    return dataclasses.replace(
        snapshot,
        budgets=read_budgets(connection, job, policy, snapshot, now, leaving=run),
        requester=snapshot.requester if run is None else fetch_requester(connection, run),
        queue=() if snapshot.destination is not None else read_queue(connection, run, job, now, policy.waiting),
        schedule=first_schedule(job, now) if run is None else fetch_schedule(connection, run, job, now),
        waits_since=now if run is None else fetch_wait(connection, run),
    )


def _may_displace(snapshot: Snapshot, policy: PlacementPolicy) -> bool:
    return policy.preempt_after is not None and snapshot.destination is None
