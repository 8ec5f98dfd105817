"""GPUs over time as steps."""

from __future__ import annotations

import numpy as np

from spillway.replay.steps import HOUR, held_together


def hours(*values: float) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
    return np.array(values, dtype=np.float64) * HOUR


STEPS = held_together(hours(0, 1, 1), hours(2, 3, 1), np.array([4, 2, 8]))


def test_what_many_hold_together_changes_only_where_one_begins_or_ends() -> None:
    assert STEPS.at.tolist() == hours(0, 1, 2, 3).tolist()
    assert STEPS.gpus.tolist() == [4, 6, 2, 0]
    assert STEPS.held(hours(-1, 0, 0.5, 1, 2.5, 9)).tolist() == [0, 4, 4, 6, 2, 0]


def test_gpu_hours_are_whole_within_any_span() -> None:
    assert STEPS.gpu_hours(0, 9 * HOUR) == 12
    assert STEPS.gpu_hours(-5 * HOUR, 0.5 * HOUR) == 2
    assert STEPS.per_bucket(hours(-1, 0.5, 1.5, 4)).tolist() == [2, 5, 5]
    assert STEPS.gpu_hours(0, 9 * HOUR, above=3) == 1 + 3


def test_nothing_held_is_no_gpu_hour() -> None:
    nothing = held_together(hours(), hours(), np.array([], dtype=np.int64))
    assert nothing.per_bucket(hours(0, 1, 2)).tolist() == [0, 0]
    assert nothing.held(hours(0, 1)).tolist() == [0, 0]
