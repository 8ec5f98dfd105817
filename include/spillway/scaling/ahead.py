"""How many nodes a forecast asks for."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime

from spillway.errors.counts import counted
from spillway.model import Contribution, Forecast, ScalingSnapshot, Source
from spillway.scaling.rules import ForecastRule, ScalingRules
from spillway.scaling.sizes import PoolSize

EVERYWHERE = ("", "")
"""The key of a forecast of all demand, on-premises and cloud; others are of what one (cluster, pool) is asked for."""


def foreseen(
    snapshot: ScalingSnapshot,
    forecasts: Mapping[tuple[str, str], Forecast],
    sizes: Sequence[PoolSize],
    rules: ScalingRules,
) -> Mapping[tuple[str, str], Contribution]:
    """How many nodes each pool is to have by its forecast; what all demand has beyond on-premises is for the first.

    What waits for on-premises alone, by choice or because it may not leave, is no demand of a pool that comes and goes.
    A forecast that ends before now says nothing, nor does one of all demand while the size of on-premises, or that of
    another pool, is unknown.
    """
    rule = rules.forecast
    if rule is None or not forecasts or not sizes:
        return {}
    found = {}
    for size in sizes:
        if (forecast := forecasts.get(size.key)) is not None and size.gpus_per_node:
            gpus = gpus_wanted(forecast, rule, snapshot.taken_at)
            if gpus is not None:
                found[size.key] = _wish(size, gpus, f"{counted(gpus, 'GPU')} here", forecast, rule)
    whole = None if snapshot.unknown else forecasts.get(EVERYWHERE)
    wanted = None if whole is None else gpus_wanted(whole, rule, snapshot.taken_at)
    local = _local_gpus(snapshot, rules)
    first = next((size for size in sizes if size.gpus_per_node), None)
    if whole is not None and wanted is not None and local is not None and first is not None:
        elsewhere = sum(size.nodes * size.gpus_per_node for size in sizes if size is not first)
        pools = {size.key for size in sizes}
        home = sum(job.gpus for job in snapshot.queue if pools.isdisjoint(job.places))
        of_it = f"{counted(wanted, 'GPU')}, of which {local} on-premises and {elsewhere} in other pools"
        of_it += f", and {home} wait for on-premises alone" if home else ""
        wish = _wish(first, max(0, wanted - local - elsewhere - home), of_it, whole, rule)
        if first.key not in found or found[first.key].nodes < wish.nodes:
            found[first.key] = wish
    return found


def gpus_wanted(forecast: Forecast, rule: ForecastRule, now: datetime) -> int | None:
    """The most GPUs that the rule's quantile, or the next higher one there is, sees within its time; None: it ended."""
    column = _column(forecast, rule)
    age = now - forecast.made_at
    first = max(0, -(-age // forecast.step) - 1)
    last = max(first + 1, -(-(age + rule.ahead) // forecast.step))
    return max((row[column] for row in forecast.gpus[first:last]), default=None)


def _column(forecast: Forecast, rule: ForecastRule) -> int:
    return next((n for n, q in enumerate(forecast.quantiles) if q >= rule.quantile), len(forecast.quantiles) - 1)


def _wish(size: PoolSize, gpus: int, foreseen: str, forecast: Forecast, rule: ForecastRule) -> Contribution:
    """The nodes for so many GPUs; the reason tells which quantile of which forecast it is, and why that one."""
    quantile, minutes = forecast.quantiles[_column(forecast, rule)], rule.ahead.total_seconds() / 60
    reason = f"{foreseen}, by the quantile {quantile:g} of the next {minutes:g} min ({forecast.model}"
    reason += f"; {forecast.reason})" if forecast.reason else ")"
    return Contribution(source=Source.FORECAST, nodes=-(-gpus // size.gpus_per_node), reason=reason)


def _local_gpus(snapshot: ScalingSnapshot, rules: ScalingRules) -> int | None:
    if not snapshot.local or snapshot.taken_at - snapshot.local[-1].at > rules.largest_gap:
        return None
    return snapshot.local[-1].gpus
