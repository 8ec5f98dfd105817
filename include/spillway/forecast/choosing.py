"""Which model to believe at each horizon: the one that has forecast one's own history best, while it still does.

The history's last weeks are gone through as they came: at each origin of a fold a candidate knows what was known then,
its weights learned from what came before the fold. The model that lost least is taken, and a baseline in its place
while that has clearly lost less: in the mean, and on more days than chance would have it.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from math import ceil, sqrt

import numpy as np

from spillway.forecast.base import Floats, History, rounded
from spillway.forecast.baselines import DAY
from spillway.forecast.calibration import LEVELS, adapted, fan, learned, loss
from spillway.forecast.models import COUNT, LAST, OF_JOBS, STACKS, SURVIVAL, THREE_MONTHS, TWO_WEEKS, Terms, seen, terms
from spillway.forecast.survival import Curves, curves
from spillway.model import Forecast

LEARN = timedelta(days=28)
"""Weights are learned from so much before."""

FOLD = timedelta(days=7)
FOLDS = 2
"""So many folds are forecast to choose by; what lies before them is only learned from."""

RELEARN = timedelta(days=2)
"""Curves of survival are learned anew for each so much of the past."""

LEAST = timedelta(days=2)
"""Under so much history there is nothing to choose by."""

MODELS = (COUNT, LAST, SURVIVAL, *STACKS)
"""The last step is for clusters where much of what is measured is wanted by pods that are no jobs."""
BASELINES = (TWO_WEEKS, THREE_MONTHS)
CLEARLY = 2.0
"""On how many more days than not a baseline must have lost less, in standard errors of tossing a coin for each day."""

JUDGED = np.isin(LEVELS, (0.1, 0.5, 0.9))


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Learned:
    """A candidate at one of the steps that were learned.

    ``columns`` (n, c) and ``errors`` (n,) are what it learned from, ``weights`` (levels, c + 1) what it learned.
    ``losses`` are pinball losses in GPUs at the origins of the backtest. What nobody measured is NaN.
    """

    columns: Floats
    errors: Floats
    weights: Floats
    losses: Floats

    def levels(self, step: int) -> Floats:
        """What to take in the place of LEVELS."""
        return adapted(fan(self.weights, self.columns), self.errors, step)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Choice:
    """The candidate for the steps up to this one, and why it.

    ``weights`` are its own here, ``weights_before`` at the choice before this one; ``levels`` are what to take in the
    place of LEVELS.
    """

    step: int
    name: str
    reason: str
    weights: Floats
    weights_before: Floats
    levels: Floats


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Fitted:
    """A forecaster that was chosen by a history, for that one and those that go on from it.

    ``choices`` are by step, rising; ``curves`` what the job table told, None without one.
    """

    choices: tuple[Choice, ...]
    curves: Curves | None

    def predict(self, history: History, horizon: int, quantiles: Sequence[float]) -> Forecast:
        """Each step by the choice for it; beyond the last one that was learned by the last.

        ``model`` is that of the last step, ``reason`` tells every choice where nearer steps go by another model.
        """
        history.require_measured()
        steps = np.arange(1, horizon + 1)
        names = {choice.name for choice in self.choices}
        values = seen(history.lately(history.present), np.array([history.present]), steps, self.curves, names)
        made = {name: terms(name, values) for name in names}
        wanted = np.empty((horizon, len(quantiles)))
        knots = [choice.step for choice in self.choices]
        for at in range(horizon):
            place = min(bisect_left(knots, at + 1), len(knots) - 1)
            choice, before = self.choices[place], knots[place - 1] if place else 0
            part = min(1.0, (at + 1 - before) / (choice.step - before))
            weights = part * choice.weights + (1 - part) * choice.weights_before
            columns = np.nan_to_num(made[choice.name].columns[0, at])
            errors = fan(weights, columns[None, :])[0]
            point = made[choice.name].points[0, at]
            point = point if np.isfinite(point) else _at_hand(history, values)
            wanted[at] = point + np.interp(np.interp(quantiles, LEVELS, choice.levels), LEVELS, errors)
        used = self.choices[: bisect_left(knots, horizon) + 1]
        told = used if len({choice.name for choice in used}) > 1 else used[-1:]
        reason = "; ".join(choice.reason for choice in told)
        return rounded(history, wanted, quantiles, model=used[-1].name, reason=reason)


def fit(history: History, horizon: int, names: Sequence[str] = (*MODELS, *BASELINES)) -> Fitted:
    """Learn the candidates of those names from the history, and choose among them for up to ``horizon`` steps ahead.

    Of a history too short to choose by the current count is taken, with the growth that was seen so far.
    """
    present, fold = history.present, _fold(history)
    knots = np.unique([1, ceil(sqrt(horizon)), horizon])
    origins = np.arange(max(0, present - FOLDS * fold - history.steps(LEARN)), present + 1)
    usable = [name for name in names if history.jobs is not None or name not in OF_JOBS]
    if present < history.steps(LEAST) + horizon or not usable:
        usable = [COUNT]
    relearned = origins[(present - origins) % history.steps(RELEARN) == 0]
    jobs = None if OF_JOBS.isdisjoint(usable) else history.jobs
    known = None if jobs is None else curves(jobs, history.moments(relearned))
    values = seen(history.lately(int(origins[0])), origins, knots, known, usable)
    targets = np.append(history.gpus, np.full(horizon, np.nan))[origins[:, None] + knots[None, :] - 1]
    made = {name: terms(name, values) for name in usable}
    choices: list[Choice] = []
    before: dict[str, Learned] = {}
    for at, step in enumerate(knots.tolist()):
        found = {name: _learn(history, made[name], targets[:, at], at, step, fold) for name in usable}
        name, reason = _chosen(history.ahead(step), found, history.steps(DAY))
        choices.append(
            Choice(
                step=step,
                name=name,
                reason=reason,
                weights=found[name].weights,
                weights_before=before.get(name, found[name]).weights,
                levels=found[name].levels(step),
            )
        )
        before = found
    return Fitted(choices=tuple(choices), curves=None if known is None else known.newest)


def _fold(history: History) -> int:
    """Steps of a fold: of a short history two quarters are forecast, and two are only learned from."""
    return max(1, min(history.steps(FOLD), history.present // (FOLDS + 2)))


def _learn(history: History, made: Terms, targets: Floats, at: int, step: int, fold: int) -> Learned:
    """The folds forecast by what was learned before them, and at last the weights of now."""
    columns, errors, now = np.nan_to_num(made.columns[:, at]), targets - made.points[:, at], len(targets) - 1

    def learn(origin: int) -> Floats:
        before = slice(max(0, origin - history.steps(LEARN)), max(0, origin - step + 1))
        return learned(columns[before], errors[before], step)

    begins = [begin for begin in range(now - FOLDS * fold, now, fold) if begin > 0]
    folds = [fan(learn(begin), columns[begin : begin + fold]) for begin in begins]
    expected = np.concatenate(folds) if folds else np.zeros((0, len(LEVELS)))
    losses = loss(errors[now - len(expected) : now], expected[:, JUDGED], LEVELS[JUDGED])
    recent = max(0, now - history.steps(LEARN))
    return Learned(columns=columns[recent:now], errors=errors[recent:now], weights=learn(now), losses=losses)


def _chosen(ahead: str, found: Mapping[str, Learned], per_day: int) -> tuple[str, str]:
    """The name of the model that lost least, or of a baseline that clearly lost less; and why."""
    lost = {name: mean for name, learned in found.items() if np.isfinite(mean := _mean(learned.losses))}
    if len(found) == 1 or not lost:
        name = next(iter(found))
        return name, f"{ahead}: {name}, as there is nothing to choose by"
    best = min(lost, key=lambda name: (name in BASELINES, lost[name]))
    told = f"{ahead}: {best} lost {lost[best]:.2f} GPUs in the backtest"
    for name in sorted(lost.keys() & set(BASELINES), key=lambda name: lost[name])[:1]:
        told += f", {name} {lost[name]:.2f}"
        if _clear(found[best].losses - found[name].losses, per_day):
            return name, f"{told}, which is clearly less"
    return best, told


def _clear(more: Floats, per_day: int) -> bool:
    """Whether more was lost in the mean, and on so many more days than less as does not happen by chance."""
    days = more[len(more) % per_day :].reshape(-1, per_day)
    daily = np.array([_mean(day) for day in days])
    daily = daily[np.isfinite(daily)]
    return _mean(daily) > 0 and float(np.sign(daily).sum()) > CLEARLY * sqrt(len(daily))


def _at_hand(history: History, values: Mapping[str, Floats]) -> float:
    """What is taken where a candidate has nothing to look at: the count, or what was measured at all."""
    count = float(values[COUNT][0, 0])
    return count if np.isfinite(count) else _mean(history.gpus)


def _mean(values: Floats) -> float:
    measured = values[np.isfinite(values)]
    return float(measured.mean()) if len(measured) else np.nan
