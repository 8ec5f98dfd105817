"""Who moves bytes over a link just now, each one's share of it, and how fast the link has been."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from datetime import datetime, timedelta

from sqlalchemy import Connection, delete, insert, select, update

from spillway.ledger.connection import Database, shared_time
from spillway.ledger.schema import link_movers, link_rates
from spillway.ledger.values import LinkUse, TransferKind

SILENCE = timedelta(seconds=30)
"""A mover that has not asked for so long has ended, whatever became of it."""

WEIGHTS: Mapping[TransferKind, int] = {
    TransferKind.CHECKPOINT: 100,
    TransferKind.IMAGE: 10,
    TransferKind.DATASET: 1,
}
"""A run waits for its checkpoint, a launch for its image; next to them a dataset takes what is left."""

SMOOTHING = 0.2
"""How much one measurement counts in the rate that is kept."""


ROOM = 2
"""A mover counts as wanting so many times what it was measured to move: it finds room to become faster."""


def share(kind: TransferKind, others: Iterable[LinkUse], bytes_per_second: float) -> float:
    """The bytes a second of a link that a mover may use beside others: by weight, and what they leave of theirs.

    Another that was not measured yet wants all that it can have.
    """
    left, whole = bytes_per_second, WEIGHTS[kind]
    claims = [(_wanted(other), WEIGHTS[other.kind]) for other in others]
    whole += sum(weight for _, weight in claims)
    for wanted, weight in sorted(claims, key=lambda claim: claim[0] / claim[1]):
        if wanted >= left * weight / whole:
            break
        left, whole = left - wanted, whole - weight
    return left * WEIGHTS[kind] / whole


def _wanted(use: LinkUse) -> float:
    return math.inf if use.bytes_per_second is None else ROOM * use.bytes_per_second


class LinkStore:
    """Movers and rates by link; see ``store.Ledger``."""

    def __init__(self, database: Database) -> None:
        self.database = database

    def take_share(self, use: LinkUse, *, bandwidth_bytes_per_second: float) -> float:
        """Note that a mover uses its link, and how fast it is; gives the bytes a second that it may use from now on.

        The answer is for a few seconds: whoever moves asks again and again, and ``leave_link`` at its end.
        """
        with self.database.writing() as connection:
            now = shared_time(connection)
            connection.execute(delete(link_movers).where(link_movers.c.seen_at < now - SILENCE))
            connection.execute(delete(link_movers).where(link_movers.c.mover == use.mover))
            found = select(link_movers.c.mover, link_movers.c.kind, link_movers.c.bytes_per_second)
            rows = connection.execute(found.where(link_movers.c.link == use.link)).mappings().all()
            others = [LinkUse(link=use.link, **row) for row in rows]
            row = {"mover": use.mover, "link": use.link, "kind": use.kind, "bytes_per_second": use.bytes_per_second}
            connection.execute(insert(link_movers).values(row | {"seen_at": now}))
            if use.bytes_per_second is not None:
                carried = sum(mover.bytes_per_second or 0.0 for mover in (use, *others))
                _measure(connection, use.link, carried, now)
        return share(use.kind, others, bandwidth_bytes_per_second)

    def leave_link(self, mover: str) -> None:
        """The mover has ended; twice changes nothing."""
        with self.database.writing() as connection:
            connection.execute(delete(link_movers).where(link_movers.c.mover == mover))

    def link_rates(self) -> Mapping[str, float]:
        """Bytes a second that each link carried while something moved, smoothed; a link never measured is not there."""
        with self.database.reading() as connection:
            rows = connection.execute(select(link_rates)).mappings().all()
        return {row["link"]: row["bytes_per_second"] for row in rows}


def _measure(connection: Connection, link: str, carried: float, now: datetime) -> None:
    same = link_rates.c.link == link
    known = connection.execute(select(link_rates.c.bytes_per_second).where(same)).scalar()
    if known is None:
        connection.execute(insert(link_rates).values(link=link, bytes_per_second=carried, measured_at=now))
    else:
        rate = known + SMOOTHING * (carried - known)
        connection.execute(update(link_rates).where(same).values(bytes_per_second=rate, measured_at=now))
