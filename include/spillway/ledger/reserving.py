"""Opens runs, and decides and reserves for them in one transaction."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from datetime import datetime, timedelta
from typing import Any

from sqlalchemy import Connection, func, insert, select

from spillway import codec
from spillway.errors import ConfigError, Missing
from spillway.ledger.connection import Database
from spillway.ledger.evidence import add_decision, read_cool_downs
from spillway.ledger.rows import add_attempt, extend_lease, fetch_job, fetch_open, fetch_reservations
from spillway.ledger.schema import attempts, decisions, runs
from spillway.ledger.values import DecisionRecord, RunRecord
from spillway.model import (
    Attempt,
    AttemptState,
    Candidate,
    CoolDown,
    JobSpec,
    PlacementDecision,
    PlacementPolicy,
    Reservation,
    Snapshot,
)

Decide = Callable[[tuple[Reservation, ...], tuple[CoolDown, ...]], PlacementDecision]


class ReservationStore:
    """Runs and reservations; see ``store.Ledger``."""

    def __init__(self, database: Database) -> None:
        self.database = database

    def open_run(self, run: str, job: JobSpec, origin: Mapping[str, Any], now: datetime) -> None:
        """Put a run on record; a run that is there already keeps its first origin.

        Raises:
            ConfigError: the run was opened with another job.
        """
        with self.database.writing() as connection:
            if fetch_job(connection, run) is None:
                connection.execute(insert(runs).values(run=run, job=job, origin=dict(origin), created_at=now))
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

    def runs(self) -> tuple[RunRecord, ...]:
        """Every run, oldest first."""
        with self.database.reading() as connection:
            rows = connection.execute(select(runs).order_by(runs.c.created_at, runs.c.run)).mappings()
            return tuple(RunRecord(**row) for row in rows)

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
        of the run that is still open is given back with its lease renewed, and nothing is decided.

        Args:
            decide: pure; gets the live reservations and the cool-downs of ``now``.
            snapshot: what ``decide`` knows besides; stored, with both of them filled in.
        Raises:
            Missing: the run was not opened.
            ConfigError: the run was opened with another job.
        """
        with self.database.writing() as connection:
            _require_job(connection, run, job, self.database.endpoint)
            opened = fetch_open(connection, run)
            if opened is not None:
                return extend_lease(connection, opened, now + lease), _decision_of(connection, opened)
            reservations, resting = fetch_reservations(connection), read_cool_downs(connection, now)
            decision = decide(reservations, resting)
            attempt = _reserved(connection, run, job, decision.chosen, now, lease) if decision.chosen else None
            record = DecisionRecord(
                run=run,
                attempt=attempt.number if attempt else None,
                taken_at=decision.taken_at,
                job=job,
                snapshot=dataclasses.replace(snapshot, reservations=reservations, cool_downs=resting),
                policy=policy,
                decision=decision,
            )
            add_decision(connection, record)
            return attempt, decision

    def reservations(self) -> tuple[Reservation, ...]:
        """What every open attempt holds, oldest first; a settled one holds nothing."""
        with self.database.reading() as connection:
            return fetch_reservations(connection)


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
            f"expected the job it was opened with, got another ({changed}); start a new run for it",
        )


def _reserved(
    connection: Connection, run: str, job: JobSpec, place: Candidate, now: datetime, lease: timedelta
) -> Attempt:
    last: int | None = connection.execute(select(func.max(attempts.c.number)).where(attempts.c.run == run)).scalar()
    attempt = Attempt(
        run=run,
        number=(last or 0) + 1,
        job=job,
        state=AttemptState.RESERVED,
        candidate=place,
        reserved_at=now,
        lease_expires_at=now + lease,
    )
    add_attempt(connection, attempt)
    return attempt


def _decision_of(connection: Connection, attempt: Attempt) -> PlacementDecision:
    its = (decisions.c.run == attempt.run) & (decisions.c.attempt == attempt.number)
    decision: PlacementDecision = connection.execute(select(decisions.c.decision).where(its)).scalar_one()
    return decision
