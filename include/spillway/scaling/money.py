"""What nodes cost, and how many the budget bears."""

from __future__ import annotations

from collections.abc import Iterable
from decimal import Decimal

from spillway.model import Billing, NodePool
from spillway.pricing import declared_price
from spillway.scaling.sizes import PoolSize


def node_hour(pool: NodePool) -> Decimal | None:
    """What an hour of a node costs at most, as none can say how its jobs will be billed: on demand where it has such a
    price, else its dearest one; None where it has none that can be believed.
    """
    prices = {billing: declared_price(pool, billing) for billing in pool.prices_per_hour}
    known = [price for price in prices.values() if price is not None]
    price = prices.get(Billing.ON_DEMAND) or max(known, default=None)
    return None if price is None else price * pool.gpus_per_node


class Purse:
    """What is left of the budget while one plan is made. ``left`` None: there is no limit.

    What jobs will cost is promised to them already. So the nodes without pods are paid for first, for an hour each:
    what is ordered now is among them at the next plan.
    """

    __slots__ = ("_left",)

    def __init__(self, left: Decimal | None, sizes: Iterable[PoolSize]) -> None:
        self._left = left
        if left is not None:
            for size in sizes:
                self.spend(size, len(size.idle) + size.coming)

    def affords(self, size: PoolSize) -> int | None:
        """How many more nodes it bears for an hour each: none of a price that is unknown; None: any number."""
        if self._left is None:
            return None
        price = node_hour(size.use.pool)
        if price is None or self._left <= 0:
            return 0
        return int(self._left // price) if price else None

    def spend(self, size: PoolSize, nodes: int) -> None:
        """Pay for so many more nodes."""
        if self._left is not None:
            self._left -= (node_hour(size.use.pool) or 0) * nodes
