"""GPUs over time as steps: each value holds until the next moment. Moments are seconds."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Seconds = npt.NDArray[np.float64]
Counts = npt.NDArray[np.int64]
HOUR = 3600.0


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Steps:
    """``gpus[i]`` from ``at[i]`` to ``at[i + 1]``, the last one for good; before ``at[0]`` there are none.

    ``at`` rises strictly; both have shape (n,).
    """

    at: Seconds
    gpus: Counts

    def held(self, moments: Seconds) -> Counts:
        """GPUs at each moment, shape as ``moments``."""
        if not self.at.size:
            return np.zeros(moments.shape, dtype=np.int64)
        found = np.searchsorted(self.at, moments, side="right") - 1
        return np.where(found < 0, 0, self.gpus[np.maximum(found, 0)])

    def gpu_hours(self, begins: float, ends: float, *, above: int = 0) -> float:
        """GPU-hours from one moment to the other, of each value only what is more than ``above``."""
        return float(self.per_bucket(np.array([begins, ends]), above=above)[0])

    def per_bucket(self, edges: Seconds, *, above: int = 0) -> npt.NDArray[np.float64]:
        """GPU-hours between each edge and the next, shape (edges - 1,)."""
        if not self.at.size:
            return np.zeros(edges.size - 1)
        value = np.maximum(self.gpus - above, 0).astype(np.float64)
        total = np.concatenate([[0.0], np.cumsum(value[:-1] * np.diff(self.at))])
        found = np.maximum(np.searchsorted(self.at, edges, side="right") - 1, 0)
        until = total[found] + value[found] * np.maximum(edges - self.at[found], 0.0)
        return np.asarray(np.diff(until) / HOUR)


def held_together(starts: Seconds, ends: Seconds, gpus: Counts) -> Steps:
    """What is held by all that each hold ``gpus`` from start to end; shapes (n,)."""
    moments, where = np.unique(np.concatenate([starts, ends]), return_inverse=True)
    change = np.zeros(moments.size, dtype=np.int64)
    np.add.at(change, where, np.concatenate([gpus, -gpus]))
    return Steps(at=moments, gpus=np.cumsum(change))
