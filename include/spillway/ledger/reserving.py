"""Opens runs, and decides and reserves for them in one transaction."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any

from sqlalchemy import Connection, func, insert, select, update

from spillway import codec
from spillway.errors import ConfigError, Missing, RunCancelled
from spillway.ledger.connection import Database
from spillway.ledger.evidence import add_decision, add_waiting_decision
from spillway.ledger.moves import arrive, cannot_arrive, fetch_open_move, give_back
from spillway.ledger.queueing import leave_queue, note_waiting
from spillway.ledger.revisions import require
from spillway.ledger.rows import (
    add_attempt,
    extend_lease,
    fetch_held,
    fetch_job,
    fetch_open,
    fetch_reservations,
)
from spillway.ledger.schema import attempts, decisions, runs
from spillway.ledger.snapshots import complete
from spillway.ledger.values import Decide, DecisionRecord, RunRecord
from spillway.model import (
    Attempt,
    AttemptState,
    Candidate,
    Destination,
    JobSpec,
    Move,
    PlacementDecision,
    PlacementPolicy,
    Reservation,
    Snapshot,
)
from spillway.pricing import hourly_price, monthly_fixed_cost


class ReservationStore:
    """Runs and reservations; see ``store.Ledger``."""

    def __init__(self, database: Database) -> None:
        self.database = database

    def open_run(self, run: str, job: JobSpec, origin: Mapping[str, Any], now: datetime) -> None:
        """Put a run on record; a run that is there already keeps its first origin.

        It takes another job only while it has no attempt: nothing was done for the first one.

        Raises:
            ConfigError: the run has an attempt, and was opened with another job.
        """
        with self.database.writing() as connection:
            if fetch_job(connection, run) is None:
                connection.execute(insert(runs).values(run=run, job=job, origin=dict(origin), created_at=now))
            elif _last_number(connection, run) is None:
                connection.execute(update(runs).where(runs.c.run == run).values(job=job))
            else:
                _require_job(connection, run, job, self.database.endpoint)

    def job(self, run: str) -> JobSpec:
        """The job that the run was opened with.

        Raises:
            Missing: the run was not opened.
        """
        with self.database.reading() as connection:
            found = fetch_job(connection, run)
        if found is None:
            raise Missing("run", run, self.database.endpoint)
        return found

    def origin(self, run: str) -> Mapping[str, Any]:
        """What asked for the run.

        Raises:
            Missing: the run was not opened.
        """
        with self.database.reading() as connection:
            found: Mapping[str, Any] | None = connection.execute(
                select(runs.c.origin).where(runs.c.run == run)
            ).scalar()
        if found is None:
            raise Missing("run", run, self.database.endpoint)
        return found

    def runs(self, **origin: str) -> tuple[RunRecord, ...]:
        """Every run, or those of which ``origin`` says this, oldest first."""
        found = select(runs).order_by(runs.c.created_at, runs.c.run)
        for name, value in origin.items():
            found = found.where(runs.c.origin[name].as_string() == value)
        with self.database.reading() as connection:
            rows = connection.execute(found).mappings()
            return tuple(RunRecord(**row) for row in rows)

    def cancel_run(self, run: str, reason: str, now: datetime) -> None:
        """Put on record that a person has ended the run: it gets no further attempt. The first reason stays.

        What a move holds for its next attempt is free again.
        """
        with self.database.writing() as connection:
            wanted = (runs.c.run == run) & runs.c.cancelled_at.is_(None)
            connection.execute(update(runs).where(wanted).values(cancelled_at=now, cancel_reason=reason))
            give_back(connection, run, f"its run was cancelled: {reason}", now)
            leave_queue(connection, run)

    def ask_again(self, run: str) -> None:
        """Let the run have attempts again, whoever has ended it."""
        with self.database.writing() as connection:
            anew = update(runs).where(runs.c.run == run)
            connection.execute(anew.values(cancelled_at=None, cancel_reason=None))

    def cancel_reason(self, run: str) -> str | None:
        """Why a person has ended the run; None where nobody has, or where it was never opened."""
        with self.database.reading() as connection:
            return _cancel_reason(connection, run)

    def reserve(
        self,
        run: str,
        job: JobSpec,
        *,
        now: datetime,
        lease: timedelta,
        snapshot: Snapshot,
        policy: PlacementPolicy,
        decide: Decide,
    ) -> tuple[Attempt | None, PlacementDecision]:
        """The run's attempt with the decision that placed it, or None with the decision that found no place.

        No two calls overlap, on whatever hosts, so ``decide`` sees every promise that was made before it. An attempt
        of the run that is still open is given back with its lease renewed, and nothing is decided. A move of the run
        that is under way decides where it goes as long as its target fits; otherwise the move fails and any place will
        do.

        Args:
            decide: pure; gets the snapshot with the live reservations and the cool-downs of ``now``.
            snapshot: what ``decide`` knows besides; stored as ``decide`` got it.
        Raises:
            Missing, ConfigError: the run was not opened, or with another job; another release has upgraded the ledger.
            RunCancelled: a person has ended it, and it has no open attempt.
        """
        with self.database.writing() as connection:
            require(connection, self.database.endpoint)
            _require_job(connection, run, job, self.database.endpoint)
            if (opened := fetch_open(connection, run)) is not None:
                return extend_lease(connection, opened, now + lease), _decision_of(connection, opened)
            if (ended := _cancel_reason(connection, run)) is not None:
                raise RunCancelled(run, ended)
            whole = complete(connection, run, job, snapshot, policy, now)
            record = DecisionRecord(
                run=run, attempt=None, taken_at=now, job=job, snapshot=whole, policy=policy, decision=decide(whole)
            )
            move = fetch_open_move(connection, run)
            if move is not None:
                record = _towards(connection, move, record, decide, now)
            decision = record.decision
            attempt = None if decision.chosen is None else _reserved(connection, record, decision.chosen, now, lease)
            if attempt is None and decision.possible:
                note_waiting(connection, run, job, decision.queues_at, now, unseen=decision.unreachable)
            else:
                leave_queue(connection, run)
            record = dataclasses.replace(record, taken_at=decision.taken_at)
            if attempt is None:
                add_waiting_decision(connection, record)
            else:
                add_decision(connection, dataclasses.replace(record, attempt=attempt.number))
            if attempt is not None and record.snapshot.destination is not None and move is not None:
                arrive(connection, move, attempt.number)
            return attempt, decision

    def reservations(self) -> tuple[Reservation, ...]:
        """What every open attempt holds, oldest first, and what moves hold for the next one; a settled one nothing."""
        with self.database.reading() as connection:
            return fetch_reservations(connection) + fetch_held(connection)


def _towards(
    connection: Connection, move: Move, record: DecisionRecord, decide: Decide, now: datetime
) -> DecisionRecord:
    """The decision that takes the run to the target of its move; ``record``, and a failed move, where it does not fit.

    What spoke against the target is stored too.
    """
    place = move.target
    target = Destination(cluster=place.cluster, pool=place.pool, billing=place.billing)
    whole = dataclasses.replace(record.snapshot, destination=target, queue=())  # its place is held for it already
    decision = decide(whole)
    towards = dataclasses.replace(record, snapshot=whole, decision=decision, taken_at=decision.taken_at)
    if decision.chosen is None:
        cannot_arrive(connection, move, decision, now)
        add_decision(connection, towards)
        return record
    return towards


def _require_job(connection: Connection, run: str, job: JobSpec, endpoint: str) -> None:
    known = fetch_job(connection, run)
    if known is None:
        raise Missing("run", run, endpoint, fix="open it with open_run before reserving for it")
    seen, expected = codec.encode(job), codec.encode(known)
    if seen != expected:
        changed = ", ".join(
            f"{name} {expected[name]!r} -> {seen[name]!r}" for name in seen if seen[name] != expected[name]
        )
        raise ConfigError(
            f"run '{run}'",
            "job",
            f"expected the job it was opened with, got another ({changed}); start a new run for it: "
            "trigger its DAG anew, or `runs start` it with another --name",
        )


def _cancel_reason(connection: Connection, run: str) -> str | None:
    reason: str | None = connection.execute(select(runs.c.cancel_reason).where(runs.c.run == run)).scalar()
    return reason


def _reserved(
    connection: Connection, record: DecisionRecord, place: Candidate, now: datetime, lease: timedelta
) -> Attempt:
    pool = record.snapshot.find_pool(place)
    plan = record.decision.preemption
    attempt = Attempt(
        run=record.run,
        number=(_last_number(connection, record.run) or 0) + 1,
        job=record.job,
        state=AttemptState.RESERVED,
        candidate=place,
        reserved_at=now,
        lease_expires_at=now + lease,
        displaces=tuple(victim.attempt for victim in plan.victims) if plan else (),
        price_per_gpu_hour=hourly_price(pool, place.billing) if pool else None,  # until it starts
        fixed_cost_per_gpu_month=monthly_fixed_cost(pool, place.billing) if pool else None,
    )
    add_attempt(connection, attempt)
    return attempt


def _last_number(connection: Connection, run: str) -> int | None:
    last: int | None = connection.execute(select(func.max(attempts.c.number)).where(attempts.c.run == run)).scalar()
    return last


def _decision_of(connection: Connection, attempt: Attempt) -> PlacementDecision:
    its = (decisions.c.run == attempt.run) & (decisions.c.attempt == attempt.number)
    decision: PlacementDecision = connection.execute(select(decisions.c.decision).where(its)).scalar_one()
    return decision
