"""Node pools that are scaled: people's orders, every change with its reasons, and whose turn it is to scale."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from datetime import datetime, timedelta
from typing import Any

from sqlalchemy import Connection, RowMapping, Select, delete, func, insert, select, update

from spillway.errors import ConfigError, Missing, ScalerBusy, TurnLost
from spillway.ledger.connection import Database, shared_time
from spillway.ledger.scaling_looks import store_look
from spillway.ledger.scaling_tables import scaling_changes, scaling_orders, scaling_turn, scaling_watches
from spillway.ledger.values import ScalingLook
from spillway.model import ManualOrder, PoolTarget, ScalingChange

LOOKS_APART = timedelta(minutes=2)
"""Two looks that lie no further apart have nothing unknown between them; the scaler looks every minute."""
LOOK_LASTS = timedelta(minutes=1)
TAKEN_UP = timedelta(minutes=5)
"""So old a change that whoever decided it left open may be to be taken up; what comes later is another one."""
LOOKS_KEPT = 1000
"""So many spans: one whose looks lie further apart has a span for each."""


class ScalingStore:
    """Orders, changes and turns; see ``store.Ledger``."""

    def __init__(self, database: Database) -> None:
        self.database = database

    def order_nodes(self, order: ManualOrder) -> ManualOrder:
        """Put an order on record; one that is there already stays as it is and is given back.

        Raises:
            ConfigError: the one that is there is for another pool or number of nodes.
        """
        with self.database.writing() as connection:
            known = _order(connection, order.order)
            if known is None:
                row = {name: getattr(order, name) for name in ManualOrder.__slots__} | {"remove": list(order.remove)}
                connection.execute(insert(scaling_orders).values(row))
                return order
            meant = ("kind", "cluster", "pool", "nodes")
            if any(getattr(known, name) != getattr(order, name) for name in meant):
                seen = f"is for {known.kind} {known.nodes} at {known.cluster}/{known.pool} already"
                raise ConfigError(f"order '{order.order}'", "", f"{seen}; give another order another name")
            return known

    def scaling_orders(self, now: datetime | None = None) -> tuple[ManualOrder, ...]:
        """Every order, or those that hold at that moment, oldest first."""
        found = select(scaling_orders).order_by(scaling_orders.c.ordered_at, scaling_orders.c.order)
        if now is not None:
            found = found.where(scaling_orders.c.withdrawn_at.is_(None), scaling_orders.c.until > now)
        with self.database.reading() as connection:
            return tuple(_read_order(row) for row in connection.execute(found).mappings())

    def scaling_order(self, order: str) -> ManualOrder:
        """That order; raises Missing where there is none."""
        with self.database.reading() as connection:
            return self._stored_order(connection, order)

    def withdraw_order(self, order: str, now: datetime) -> ManualOrder:
        """Let the order hold no longer; twice changes nothing. Raises Missing where there is none."""
        return self._mark(order, withdrawn_at=now)

    def order_is_ready(self, order: str, now: datetime) -> ManualOrder:
        """Put on record that all of its nodes were seen to be ready; the first time counts."""
        return self._mark(order, ready_at=now)

    def begin_change(
        self, target: PoolTarget, *, before: int, actor: str, now: datetime, look: ScalingLook
    ) -> ScalingChange:
        """Put on record what a provider is to be asked for, before it is, and the look that it was planned at.

        The last change of the pool that nobody carried out is taken up again where it is the same: one line tells of
        it, however often it is tried. One that was left open is closed as broken off where it is another one or
        ``TAKEN_UP`` ago.
        """
        its = (scaling_changes.c.cluster == target.cluster) & (scaling_changes.c.pool == target.pool)
        with self.database.writing() as connection:
            last = next(_changes(connection, _newest_first(1).where(its)), None)
            if last is not None and last.asked_at is None:
                left_open = last.problem is None
                late = left_open and now - last.decided_at > TAKEN_UP
                if last.before == before and _same(last.target, target) and not late:
                    return _write(connection, last, tries=last.tries + 1, target=target, actor=actor)
                if left_open:
                    _write(connection, last, problem="broken off: whoever decided it left no answer of its provider")
            row = {"cluster": target.cluster, "pool": target.pool, "before": before, "target": target}
            row |= {"decided_at": now, "actor": actor, "tries": 1, "look": store_look(connection, look)}
            made = connection.execute(insert(scaling_changes).values(row))
            number: int = made.inserted_primary_key[0]  # type: ignore[index]
            return next(_changes(connection, select(scaling_changes).where(scaling_changes.c.number == number)))

    def change_is_asked(self, change: ScalingChange, now: datetime) -> ScalingChange:
        """The provider has taken it: its target as far as it came to that."""
        with self.database.writing() as connection:
            return _write(connection, change, target=change.target, asked_at=now, problem=None)

    def change_failed(self, change: ScalingChange, problem: str) -> ScalingChange:
        """The provider has not taken it, or nobody knows that it has."""
        with self.database.writing() as connection:
            return _write(connection, change, problem=problem)

    def change_is_reached(self, change: ScalingChange, now: datetime) -> ScalingChange:
        """The pool was seen to be as wanted."""
        with self.database.writing() as connection:
            return _write(connection, change, reached_at=now)

    def scaling_changes(self, *, since: datetime | None = None, newest: int | None = None) -> tuple[ScalingChange, ...]:
        """Changes in their order: those that were decided from ``since`` on, the ``newest`` so many of them."""
        found = _newest_first(newest)
        if since is not None:
            found = found.where(scaling_changes.c.decided_at >= since)
        with self.database.reading() as connection:
            return tuple(_changes(connection, found))[::-1]

    def last_changes(self, *, asked: bool = False) -> tuple[ScalingChange, ...]:
        """The newest change of each pool, or with ``asked`` the newest that its provider has taken."""
        own = scaling_changes.c
        newest = select(func.max(own.number)).group_by(own.cluster, own.pool)
        if asked:
            newest = newest.where(own.asked_at.is_not(None))
        with self.database.reading() as connection:
            return tuple(_changes(connection, _newest_first(None).where(own.number.in_(newest))))[::-1]

    def refused_since(self, change: ScalingChange) -> int:
        """The number of the first change of its pool that was not carried out since the last one that was."""
        own = scaling_changes.c
        its = (own.cluster == change.cluster) & (own.pool == change.pool)
        with self.database.reading() as connection:
            taken = select(func.coalesce(func.max(own.number), 0)).where(its, own.asked_at.is_not(None))
            found = select(func.min(own.number)).where(its, own.number > taken.scalar_subquery())
            first: int | None = connection.execute(found).scalar_one()
        return change.number if first is None else first

    def take_turn(self, holder: str, lease: timedelta) -> None:
        """Let nobody else scale for so long.

        Raises:
            ScalerBusy: it is another one's turn.
        """
        with self.database.writing() as connection:
            now = shared_time(connection)
            connection.execute(delete(scaling_turn).where(scaling_turn.c.until <= now))
            _refuse_another(connection, holder)
            connection.execute(delete(scaling_turn))
            connection.execute(insert(scaling_turn).values(holder=holder, began_at=now, until=now + lease))

    def keep_turn(self, holder: str, lease: timedelta) -> None:
        """Let nobody else scale for so long from now on, where nobody else has since the turn was taken.

        Raises:
            ScalerBusy: it is another one's turn by now.
            TurnLost: another one has had its turn meanwhile.
        """
        with self.database.writing() as connection:
            _refuse_another(connection, holder)
            kept = update(scaling_turn).values(until=shared_time(connection) + lease)
            if not connection.execute(kept).rowcount:
                raise TurnLost(holder)

    def end_turn(self, holder: str) -> None:
        """Let others scale; a turn that is over, or another one's, is left as it is."""
        with self.database.writing() as connection:
            connection.execute(delete(scaling_turn).where(scaling_turn.c.holder == holder))

    def note_watch(self, now: datetime) -> None:
        """Somebody looks at the node pools.

        Where that was not long ago it goes on a span; after a gap, or a jump of the clock, which looks like one, it
        begins another.
        """
        own = scaling_watches.c
        with self.database.writing() as connection:
            last = connection.execute(select(scaling_watches).order_by(own.number.desc()).limit(1)).mappings().first()
            if last is not None and timedelta() <= now - last["last_at"] <= LOOKS_APART:
                connection.execute(update(scaling_watches).where(own.number == last["number"]).values(last_at=now))
                return
            connection.execute(insert(scaling_watches).values(began_at=now, last_at=now))
            kept = select(own.number).order_by(own.number.desc()).limit(LOOKS_KEPT)
            connection.execute(delete(scaling_watches).where(own.number.not_in(kept)))

    def watches(self) -> tuple[tuple[datetime, datetime], ...]:
        """The spans in which somebody looked, in their order; each look tells of the minute that follows it too."""
        with self.database.reading() as connection:
            found = connection.execute(select(scaling_watches).order_by(scaling_watches.c.number)).mappings()
            return tuple((row["began_at"], row["last_at"] + LOOK_LASTS) for row in found)

    def _mark(self, order: str, **moment: datetime) -> ManualOrder:
        with self.database.writing() as connection:
            known = self._stored_order(connection, order)
            if any(getattr(known, name) is not None for name in moment):
                return known
            connection.execute(update(scaling_orders).where(scaling_orders.c.order == order).values(moment))
            return self._stored_order(connection, order)

    def _stored_order(self, connection: Connection, order: str) -> ManualOrder:
        known = _order(connection, order)
        if known is None:
            raise Missing("order", order, self.database.endpoint, fix="`scale orders` tells which there are")
        return known


def _refuse_another(connection: Connection, holder: str) -> None:
    row = connection.execute(select(scaling_turn)).mappings().first()
    if row is not None and row["holder"] != holder:
        raise ScalerBusy(row["holder"], row["began_at"], row["until"])


def _order(connection: Connection, order: str) -> ManualOrder | None:
    row = connection.execute(select(scaling_orders).where(scaling_orders.c.order == order)).mappings().first()
    return None if row is None else _read_order(row)


def _read_order(row: RowMapping) -> ManualOrder:
    return ManualOrder(**{**row, "remove": tuple(row["remove"])})


def _newest_first(number: int | None) -> Select[Any]:
    return select(scaling_changes).order_by(scaling_changes.c.number.desc()).limit(number)


def _changes(connection: Connection, found: Select[Any]) -> Iterator[ScalingChange]:
    return (ScalingChange(**row) for row in connection.execute(found).mappings())


def _same(one: PoolTarget, other: PoolTarget) -> bool:
    """Wanted by the same, whatever the order in which nodes are named: those cordoned already come first."""
    both = [
        (target.nodes, {*target.remove}, {*target.replaces}, {wish.source for wish in target.contributions})
        for target in (one, other)
    ]
    return both[0] == both[1]


def _write(connection: Connection, change: ScalingChange, **columns: Any) -> ScalingChange:
    its = scaling_changes.c.number == change.number
    connection.execute(update(scaling_changes).where(its).values(columns))
    return dataclasses.replace(change, **columns)
