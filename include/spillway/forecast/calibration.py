"""Intervals that hold what they promise: quantiles learned from past errors, their levels adapted to what came of them.

A candidate gives a point and columns, its error's quantiles are linear in the columns and a constant. With no columns
they are the quantiles of its past errors.

Sources: Koenker & Bassett, Regression quantiles, Econometrica 46, 1978; Hunter & Lange, Quantile regression via an MM
algorithm, JCGS 9, 2000; Gibbs & Candès, Adaptive conformal inference under distribution shift, NeurIPS 2021.
"""

from __future__ import annotations

import numpy as np

from spillway.forecast.base import Floats

LEVELS: Floats = np.array([0.01, 0.05, 0.1, 0.25, 0.5, 0.75, 0.9, 0.95, 0.99])
"""Quantiles that are learned; others lie on the line between them, and beyond the outermost nothing is known."""

RIDGE = 0.04
"""How strongly weights are held to 0, for each step ahead: outcomes of longer horizons overlap, and tell less each."""

LEARNING_RATE = 0.005
"""How much one outcome moves a level, one step ahead; so many of a longer horizon move it as much."""

_ROUNDS = 12
_SMOOTH = 0.02
_TINY = 1e-9


def learned(columns: Floats, errors: Floats, horizon: int) -> Floats:
    """Weights by level of the constant and each column, shape (levels, c + 1), from columns (n, c) and errors (n,).

    Rows that were not measured are left out; with no rows at all every weight is 0.
    """
    width = columns.shape[1]
    measured = np.isfinite(errors) & np.isfinite(columns).all(axis=1)
    columns, errors = columns[measured], errors[measured]
    weights = np.zeros((len(LEVELS), width + 1))
    if not len(errors):
        return weights
    weights[:, 0] = np.interp(LEVELS * (len(errors) - 1), np.arange(len(errors)), np.sort(errors))
    if not width or len(errors) <= 2 * width:
        return weights
    mean, spread = columns.mean(axis=0), columns.std(axis=0)
    spread = np.where(spread > _TINY, spread, np.inf)  # a column that never changes tells nothing
    rows = np.column_stack([np.ones(len(errors)), (columns - mean) / spread])
    found = _regressed(rows, errors, weights, RIDGE * horizon)
    found[:, 1:] /= spread
    found[:, 0] -= found[:, 1:] @ mean
    return found


def _regressed(rows: Floats, errors: Floats, start: Floats, ridge: float) -> Floats:
    """The quantile regression with a ridge, all levels at once."""
    size = float(np.median(np.abs(errors))) + _TINY
    held = np.eye(rows.shape[1]) * ridge * len(errors) / size
    held[0, 0] = _TINY
    pull = (LEVELS[:, None] - 0.5) * rows.sum(axis=0)[None, :]
    weights = start
    products = (rows[:, :, None] * rows[:, None, :]).reshape(len(rows), -1)
    for _ in range(_ROUNDS):
        curvature = 0.5 / (_SMOOTH * size + np.abs(errors[:, None] - rows @ weights.T))
        left = (curvature.T @ products).reshape(len(LEVELS), *held.shape) + held
        right = (curvature * errors[:, None]).T @ rows + pull
        weights = np.linalg.solve(left, right[..., None])[..., 0]
    return weights


def fan(weights: Floats, columns: Floats) -> Floats:
    """Errors at the levels, rising, (m, levels), by the columns (m, c)."""
    found: Floats = np.sort(weights[:, 0] + columns @ weights[:, 1:].T, axis=1)
    return found


def loss(errors: Floats, fans: Floats, levels: Floats = LEVELS) -> Floats:
    """The pinball loss of each row in the mean of the levels, (m,); NaN where nobody measured."""
    over = errors[:, None] - fans
    found: Floats = np.maximum(levels * over, (levels - 1) * over).mean(axis=1)
    return found


def adapted(fans: Floats, errors: Floats, horizon: int) -> Floats:
    """The levels to take in the place of LEVELS: lower where fewer outcomes lay below than should have, and so on.

    Args:
        fans: errors that were expected at LEVELS at consecutive origins, (n, levels).
        errors: what came of them, (n,), each known ``horizon`` steps later.
    """
    rate, measured, came = LEARNING_RATE / horizon, np.isfinite(errors).tolist(), _levels_of(fans, errors).tolist()
    levels, taken = LEVELS, [LEVELS] * len(fans)
    for origin in range(len(fans) + horizon):
        known = origin - horizon
        if 0 <= known < len(fans) and measured[known]:
            moved = levels + rate * (LEVELS - (came[known] <= taken[known]))
            levels = np.minimum(np.maximum(moved, LEVELS[0]), LEVELS[-1])
        if origin < len(fans):
            taken[origin] = levels
    return np.sort(levels)


def _levels_of(fans: Floats, errors: Floats) -> Floats:
    """The lowest level at which each fan reaches its error, (n,): -inf at all of them, inf at none."""
    rows, above = np.arange(len(fans)), (fans < errors[:, None]).sum(axis=1)
    high, low = np.minimum(above, len(LEVELS) - 1), np.maximum(above - 1, 0)
    wide = np.maximum(fans[rows, high] - fans[rows, low], _TINY)
    part = np.clip((errors - fans[rows, low]) / wide, 0.0, 1.0)
    within = LEVELS[low] + part * (LEVELS[high] - LEVELS[low])
    return np.where(above == 0, -np.inf, np.where(above == len(LEVELS), np.inf, within))
