"""When a node has failed, and when failed ones are replaced no longer.

What those boot with is broken then, and each one costs money.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from datetime import datetime, timedelta

from spillway.model import ManualOrder, OrderKind, PoolUse, ScalableNode

TRIES = 3
"""So often failed nodes are replaced in a row."""
FORGOTTEN = timedelta(days=1)
"""After so long a replacement counts no longer, and one more is tried."""


def has_failed(
    node: ScalableNode, use: PoolUse, now: datetime, watched: Sequence[tuple[datetime, datetime]] | None = None
) -> bool:
    """Whether it has had no usable GPUs for longer than it may.

    Only time counts in which somebody looked: of all other nobody knows whether it has passed at all. By a clock that
    jumps forward, or after a machine was suspended, every node that boots would have failed at once.

    Args:
        watched: see ``ScalingSnapshot``.
    """
    since = node.ready_at or node.created_at
    if now - since <= use.boot_allowance:
        return False
    if watched is None:
        return True
    seen, until = timedelta(), since
    for began, ended in sorted(watched):  # spans overlap where a clock was put back
        seen += max(timedelta(), min(now, ended) - max(until, began))
        until = max(until, ended)
    return seen > use.boot_allowance


def given_up_until(
    use: PoolUse, replaced: Collection[datetime], orders: Sequence[ManualOrder], now: datetime
) -> datetime | None:
    """Until when the pool gets no node that it has not; None: it gets some.

    It has a new start with any node that has become usable since, and with a person's order of more.

    Args:
        replaced: when failed nodes of it were.
        orders: those of the pool that hold.
    """
    if len(replaced) < TRIES:
        return None
    fresh = [node.created_at for node in use.nodes if node.gpus or node.pods]
    fresh += [order.ordered_at for order in orders if order.kind is OrderKind.ADD]
    since = max([now - FORGOTTEN, *fresh])
    in_a_row = sorted(at for at in replaced if at > since)
    return in_a_row[-TRIES] + FORGOTTEN if len(in_a_row) >= TRIES else None


def reason(until: datetime) -> str:
    """Why it gets none, and what to do."""
    return (
        f"failed nodes were replaced {TRIES} times in a row and none has become usable since, so no more come until "
        f"{until.isoformat(timespec='seconds')}; mend what they boot with, then order nodes with `scale add`"
    )
