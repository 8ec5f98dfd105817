"""Moves of runs: each holds its target until the run's next attempt has it, and follows the run's attempts.

What an attempt's change means for a move is written in the transaction of that change, so that the two never differ.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any

from sqlalchemy import Connection, RowMapping, Select, func, insert, select, update

from spillway.errors import IllegalTransition, Missing, MoveRefused
from spillway.ledger.connection import Database
from spillway.ledger.evidence import add_decision
from spillway.ledger.rows import HELD, UNDER_WAY, fetch_open
from spillway.ledger.schema import moves
from spillway.ledger.snapshots import complete
from spillway.ledger.values import Decide, DecisionRecord
from spillway.migration import same_move
from spillway.model import (
    Attempt,
    AttemptState,
    Candidate,
    Destination,
    Move,
    MoveEstimate,
    MoveState,
    PlacementDecision,
    PlacementPolicy,
    Snapshot,
)


class MoveStore:
    """Moves; see ``store.Ledger``."""

    def __init__(self, database: Database) -> None:
        self.database = database

    def move(self, run: str, number: int) -> Move:
        """That move; raises Missing where there is none."""
        with self.database.reading() as connection:
            return self._stored_move(connection, run, number)

    def moves(self, run: str) -> tuple[Move, ...]:
        """Every move of the run, the first one first."""
        with self.database.reading() as connection:
            return _fetch(connection, select(moves).where(moves.c.run == run))

    def open_move(self, run: str) -> Move | None:
        """The one move of the run that is under way, None where there is none."""
        with self.database.reading() as connection:
            return fetch_open_move(connection, run)

    def order_move(
        self,
        leaving: Attempt,
        *,
        destination: Destination,
        reason: str,
        origin: Mapping[str, Any],
        estimate: MoveEstimate,
        now: datetime,
        lease: timedelta,
        snapshot: Snapshot,
        policy: PlacementPolicy,
        decide: Decide,
    ) -> tuple[Move | None, PlacementDecision | None]:
        """Hold a place for the run beside the one that it has; None with the decision that found none.

        A move that is under way to where this one leads is given back, without a decision: repeating an order is none.

        Args:
            leaving: the attempt that the order was given for; it must be running still.
        Raises:
            MoveRefused: another move is under way, or the attempt does not run any more.
        """
        run = leaving.run
        with self.database.writing() as connection:
            if (known := fetch_open_move(connection, run)) is not None:
                return same_move(known, destination), None
            opened = fetch_open(connection, run)
            if opened is None or opened.number != leaving.number or opened.state is not AttemptState.RUNNING:
                raise _not_running(leaving, opened)
            wanted = dataclasses.replace(snapshot, destination=destination)
            whole = complete(connection, run, leaving.job, wanted, policy, now)
            decision = decide(whole)
            record = DecisionRecord(
                run=run,
                attempt=None,
                taken_at=decision.taken_at,
                job=leaving.job,
                snapshot=whole,
                policy=policy,
                decision=decision,
            )
            add_decision(connection, record)
            if decision.chosen is None:
                return None, decision
            last: int | None = connection.execute(select(func.max(moves.c.number)).where(moves.c.run == run)).scalar()
            move = Move(
                run=run,
                number=(last or 0) + 1,
                attempt=leaving.number,
                target=decision.chosen,
                state=MoveState.ORDERED,
                reason=reason,
                origin=dict(origin),
                estimate=estimate,
                ordered_at=now,
                lease_expires_at=now + lease,
            )
            connection.execute(insert(moves).values(_row(move)))
            return move, decision

    def renew_move(self, move: Move, until: datetime) -> Move:
        """The move as stored, held until ``until`` at least where it is still held."""
        with self.database.writing() as connection:
            stored = self._stored_move(connection, move.run, move.number)
            if stored.state not in {MoveState.ORDERED, MoveState.DRAINING} or stored.lease_expires_at >= until:
                return stored
            return _write(connection, stored, lease_expires_at=until)

    def drain_move(self, move: Move, now: datetime) -> Move:
        """Let whoever carries the run end its pod; a move that is further on stays as it is.

        Raises:
            IllegalTransition: it has failed meanwhile.
        """
        with self.database.writing() as connection:
            stored = self._stored_move(connection, move.run, move.number)
            if stored.state is MoveState.FAILED:
                raise IllegalTransition(
                    f"move {stored.number} of run '{stored.run}' has failed ({stored.problem}), expected it to be "
                    "ordered; order it again"
                )
            if stored.state is not MoveState.ORDERED:
                return stored
            return _write(connection, stored, state=MoveState.DRAINING, draining_at=now)

    def confirm_move(self, attempt: Attempt, now: datetime) -> Move | None:
        """Conclude the move that brought this attempt, whose first step is known; None where none did."""
        with self.database.writing() as connection:
            move = fetch_open_move(connection, attempt.run)
            if move is None or move.to_attempt != attempt.number:
                return None
            return follow_settled(connection, attempt, now)

    def fail_move(self, move: Move, problem: str, now: datetime) -> Move:
        """Give up a move for which the run was not asked to leave yet: it stays there. Any other is left as it is."""
        with self.database.writing() as connection:
            stored = self._stored_move(connection, move.run, move.number)
            if stored.state is not MoveState.ORDERED:
                return stored
            return _fail(connection, stored, problem, now)

    def lapsed_moves(self, now: datetime) -> tuple[Move, ...]:
        """Those that ``expire_moves`` would give up."""
        with self.database.reading() as connection:
            return tuple(_fetch(connection, select(moves).where(HELD, moves.c.lease_expires_at <= now)))

    def expire_moves(self, now: datetime) -> tuple[Move, ...]:
        """Give up the moves whose targets nobody holds any more."""
        with self.database.writing() as connection:
            over = _fetch(connection, select(moves).where(HELD, moves.c.lease_expires_at <= now))
            return tuple(
                _fail(connection, move, f"nobody renewed it until {move.lease_expires_at.isoformat()}", now)
                for move in over
            )

    def _stored_move(self, connection: Connection, run: str, number: int) -> Move:
        found = _fetch(connection, select(moves).where(moves.c.run == run, moves.c.number == number))
        if not found:
            raise Missing(
                "move", f"{run}/{number}", self.database.endpoint, fix="order_move() makes the moves of a run"
            )
        return found[0]


def fetch_open_move(connection: Connection, run: str) -> Move | None:
    """The one move of the run that is under way."""
    return next(iter(_fetch(connection, select(moves).where(moves.c.run == run, UNDER_WAY))), None)


def arrive(connection: Connection, move: Move, attempt: int) -> Move:
    """The run's next attempt has the place of the move."""
    return _write(connection, move, state=MoveState.ARRIVING, to_attempt=attempt)


def cannot_arrive(connection: Connection, move: Move, decision: PlacementDecision, now: datetime) -> Move:
    """The place of the move does not fit any more, now that it is to be used."""
    verdicts = (verdict for verdict in decision.verdicts if verdict.candidate == move.target)
    why = "; ".join(f"{r.rule}: {r.reason}" for verdict in verdicts for r in verdict.rejections)
    return _fail(connection, move, f"its target does not fit any more: {why or 'it is not declared any more'}", now)


def give_back(connection: Connection, run: str, problem: str, now: datetime) -> None:
    """Fail the move that holds a place for the run's next attempt, where one does."""
    move = fetch_open_move(connection, run)
    if move is not None and move.to_attempt is None:
        _fail(connection, move, problem, now)


def hold_draining(connection: Connection, run: str, until: datetime) -> None:
    """Let the place of a run that is being drained be held until then."""
    draining = (moves.c.run == run) & (moves.c.state == MoveState.DRAINING) & (moves.c.lease_expires_at < until)
    connection.execute(update(moves).where(draining).values(lease_expires_at=until))


def follow_settled(connection: Connection, attempt: Attempt, now: datetime) -> Move | None:
    """Conclude the move that the end, or the first step, of an attempt concludes; None where there is none."""
    move = fetch_open_move(connection, attempt.run)
    if move is None:
        return None
    if move.to_attempt == attempt.number:
        if attempt.first_step != attempt.expected_first_step:
            did = "did no step" if attempt.first_step is None else f"began with step {attempt.first_step}"
            return _fail(connection, move, f"attempt {attempt.number} {did} there: {attempt.reason}", now)
        seen = {"resumed_step": attempt.first_step, "resumed_at": now, "ended_at": now}
        return _write(connection, move, state=MoveState.DONE, **seen)
    if attempt.outcome is not None and not attempt.outcome.goes_on:
        return _fail(connection, move, f"its run ended before: {attempt.outcome} ({attempt.reason})", now)
    return None


def _fail(connection: Connection, move: Move, problem: str, now: datetime) -> Move:
    return _write(connection, move, state=MoveState.FAILED, problem=problem, ended_at=now)


def _fetch(connection: Connection, found: Select[Any]) -> tuple[Move, ...]:
    rows = connection.execute(found.order_by(moves.c.run, moves.c.number)).mappings()
    return tuple(_move(row) for row in rows)


def _move(row: RowMapping) -> Move:
    fields = dict(row)
    target = Candidate(cluster=fields.pop("cluster"), pool=fields.pop("pool"), billing=fields.pop("billing"))
    return Move(target=target, **fields)


def _row(move: Move) -> dict[str, Any]:
    row = {field.name: getattr(move, field.name) for field in dataclasses.fields(move) if field.name != "target"}
    return row | {"cluster": move.target.cluster, "pool": move.target.pool, "billing": move.target.billing}


def _write(connection: Connection, stored: Move, **columns: Any) -> Move:
    same = (moves.c.run == stored.run) & (moves.c.number == stored.number)
    connection.execute(update(moves).where(same).values(columns))
    return dataclasses.replace(stored, **columns)


def _not_running(leaving: Attempt, opened: Attempt | None) -> MoveRefused:
    seen = "it has none that is open" if opened is None else f"attempt {opened.number} is {opened.state}"
    return MoveRefused(
        leaving.run,
        f"expected attempt {leaving.number} to be running, {seen} now; look at it with `runs show {leaving.run}` and "
        "order again if it still should move",
    )
