"""What the scaler planned from: of every change, and now and then of a look that changed nothing."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime, timedelta

from sqlalchemy import Connection, delete, func, insert, select

from spillway.errors import ConfigError, Missing
from spillway.ledger.connection import Database
from spillway.ledger.scaling_tables import scaling_changes, scaling_looks
from spillway.ledger.values import ScalingLook

LOOKS_KEPT = 10_000
"""About five weeks of those that change nothing. Counted, so that a clock that was wrong drops nothing."""
CHANGES_KEPT = 20_000


class LookStore:
    """Looks of the scaler; see ``store.Ledger``."""

    def __init__(self, database: Database) -> None:
        self.database = database

    def note_look(self, look: ScalingLook, *, every: timedelta, remembered: timedelta) -> None:
        """Store a look unless there is one that is not yet ``every`` old, and drop what is beyond what is kept.

        Args:
            remembered: changes that are no older are kept, however many they are.
        """
        at = look.snapshot.taken_at
        with self.database.writing() as connection:
            last = select(scaling_looks.c.taken_at).order_by(scaling_looks.c.number.desc()).limit(1)
            stored_at = connection.execute(last).scalar()
            if stored_at is None or not timedelta() <= at - stored_at < every:
                store_look(connection, look)
            _drop_changes(connection, at - remembered)

    def planned_from(self, change: int) -> ScalingLook | None:
        """The look of the change of that number; None where it is not kept any more, or was not in an older release.

        Raises:
            Missing: there is no such change.
            ConfigError: it is kept, but cannot be read.
        """
        both = scaling_changes.outerjoin(scaling_looks, scaling_looks.c.number == scaling_changes.c.look)
        found = select(scaling_looks.c.look).select_from(both).where(scaling_changes.c.number == change)
        with self.database.reading() as connection:
            rows = connection.execute(found).all()
        if not rows:
            told = "`scale changes --json` tells the numbers of those there are"
            raise Missing("change", str(change), self.database.endpoint, fix=told)
        look: ScalingLook | ConfigError | None = rows[0].look
        if isinstance(look, ConfigError):
            why = f"it cannot be read ({look}); it is damaged, or the release that wrote it has to read it"
            raise ConfigError(f"what change {change} was planned from", "", why)
        return look

    def looks_between(self, since: datetime, until: datetime) -> Iterator[ScalingLook | ConfigError]:
        """The stored looks from ``since`` and before ``until``, in their order; of one that cannot be read why."""
        taken = (scaling_looks.c.taken_at >= since) & (scaling_looks.c.taken_at < until)
        return (row["look"] for row in self.database.read_in_parts(scaling_looks, taken))


def store_look(connection: Connection, look: ScalingLook) -> int:
    """Its number; a look of which another change was made already is stored once."""
    own, at = scaling_looks.c, look.snapshot.taken_at
    last = connection.execute(select(own.number, own.taken_at).order_by(own.number.desc()).limit(1)).first()
    if last is not None and last.taken_at == at:
        return int(last.number)
    made = connection.execute(insert(scaling_looks).values(taken_at=at, look=look))
    number: int = made.inserted_primary_key[0]  # type: ignore[index]
    connection.execute(delete(scaling_looks).where(own.number <= number - LOOKS_KEPT))
    return number


def _drop_changes(connection: Connection, before: datetime) -> None:
    """Those beyond the newest that are older, but for what is asked of a pool whenever that was.

    That are its newest change, the newest that its provider took, and the first that it did not take since.
    """
    own = scaling_changes.c
    newest = select(func.max(own.number)).group_by(own.cluster, own.pool)
    taken = newest.where(own.asked_at.is_not(None))
    other = scaling_changes.alias()
    its = (other.c.cluster == own.cluster) & (other.c.pool == own.pool) & other.c.asked_at.is_not(None)
    last_taken = select(func.coalesce(func.max(other.c.number), 0)).where(its).scalar_subquery()
    refused = select(func.min(own.number)).where(own.number > last_taken).group_by(own.cluster, own.pool)
    most = select(func.max(own.number)).scalar_subquery()
    old = (own.number <= most - CHANGES_KEPT) & (own.decided_at < before)
    numbers = [own.number.not_in(kept) for kept in (newest, taken, refused)]
    connection.execute(delete(scaling_changes).where(old, *numbers))
