"""How few cloud GPU-hours any policy could need: what figures of policies are compared with.

Both bounds know the whole trace beforehand, and let no job wait.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.optimize import linprog
from scipy.sparse import csr_array

from spillway.replay.steps import HOUR, Counts, Seconds, held_together

GRID_SECONDS = 600.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Bounds:
    """Both bounds of a trace in cloud GPU-hours; ``placement`` is None where it was not asked for, or not found."""

    fluid: float
    placement: float | None = None


def fluid_bound(
    *, starts: Seconds, ends: Seconds, gpus: Counts, local_gpus: int, measured: tuple[float, float]
) -> float:
    """Cloud GPU-hours if jobs moved freely between local and cloud: what is wanted beyond the local GPUs.

    Only where jobs wait can a policy need fewer.

    Args:
        starts, ends: of each job where it does not wait, in seconds; shapes (jobs,), as ``gpus``.
        measured: the span whose GPU-hours count.
    """
    return held_together(starts, ends, gpus).gpu_hours(*measured, above=local_gpus)


def placement_bound(
    *,
    starts: Seconds,
    ends: Seconds,
    gpus: Counts,
    local_gpus: int,
    measured: tuple[float, float],
    grid_seconds: float = GRID_SECONDS,
) -> float | None:
    """Cloud GPU-hours if each job stays where it starts: the least that a linear program finds.

    Jobs may be split between local and cloud in any part, and the local GPUs are counted at the points of a grid only:
    no policy without waiting and moving can need fewer, and a finer grid raises the bound a little at a price in time.

    Args: as of ``fluid_bound``.
    Returns:
        None where the solver found no answer.
    """
    begins, finishes = measured
    starts, ends = np.maximum(starts, begins), np.minimum(ends, finishes)
    moments = np.arange(begins, ends.max(initial=begins), grid_seconds)
    wanted = held_together(starts, np.maximum(ends, starts), gpus).held(moments)
    crowded = moments[wanted > local_gpus]
    if not crowded.size:
        return 0.0
    first, after = np.searchsorted(crowded, starts), np.searchsorted(crowded, ends)
    held = np.maximum(after - first, 0)
    job = np.flatnonzero(held)
    held, first = held[job], first[job]
    column = np.repeat(np.arange(job.size), held)
    row = np.arange(column.size) - np.repeat(np.cumsum(held) - held, held) + np.repeat(first, held)
    sent_away = csr_array((-gpus[job][column].astype(np.float64), (row, column)), shape=(crowded.size, job.size))
    answer = linprog(
        (gpus * (ends - starts))[job] / HOUR,
        A_ub=sent_away,
        b_ub=local_gpus - wanted[wanted > local_gpus].astype(np.float64),
        bounds=(0, 1),
        method="highs-ipm",
    )
    return float(answer.fun) if answer.status == 0 else None
