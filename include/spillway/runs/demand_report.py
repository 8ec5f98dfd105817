"""Demand as people look at it, from what the ledger has: no cluster is asked."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta

from spillway.demand.chart import chart
from spillway.demand.figures import ANYBODYS, DemandFigures, Known, Whose, demand_figures
from spillway.ledger import Ledger
from spillway.model import ROLL_UPS, Cluster

DAY = timedelta(days=1)


def demand_now(
    ledger: Ledger, declared: Mapping[str, Cluster], now: datetime, whose: Whose = ANYBODYS
) -> DemandFigures:
    """The figures of every declared pool; raises as the ledger does."""
    known = Known(
        newest=ledger.newest_sample(now),
        pools=ledger.newest_pool_samples(now),
        nodes=ledger.sampled_nodes(),
        starts=ledger.pod_starts(now - DAY, now),
    )
    return demand_figures(now, declared.values(), known, whose)


def demand_chart(ledger: Ledger, declared: Mapping[str, Cluster], now: datetime) -> str:
    """Demand and capacity of the last day as an SVG."""
    step = ROLL_UPS[0]
    return chart(ledger.samples(now - DAY - step, now, step), declared, since=now - DAY, until=now, step=step)
