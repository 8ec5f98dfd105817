"""Survival of jobs, learned quantiles and their levels."""

from __future__ import annotations

import numpy as np
import pytest

from spillway.forecast.base import JobTable, seconds
from spillway.forecast.calibration import LEVELS, adapted, fan, learned, loss
from spillway.forecast.models import CANDIDATES, seen, terms
from spillway.forecast.survival import curves
from spillway.model import JobRecord
from spillway.testing.histories import HOUR, MONDAY, made_up_history

CHANCE = np.random.default_rng(5)


def ended(hours: float, count: int, gpus: int = 1, department: str = "a") -> list[JobRecord]:
    end = MONDAY + hours * HOUR
    return [
        JobRecord(job=f"{hours}-{n}", submitted_at=MONDAY, ended_at=end, gpus=gpus, department=department)
        for n in range(count)
    ]


def goes_on(records: list[JobRecord], group: int, age_hours: float, steps: list[int]) -> list[float]:
    known = curves(JobTable.of(records), np.array([seconds(MONDAY + 1000 * HOUR)]))
    found: list[float] = known.lasting(
        np.array([group]), np.array([age_hours * 3600]), 3600.0, np.array(steps)
    )[0].tolist()  # fmt: skip
    return found


def test_jobs_without_memory_go_on_by_the_same_probability_at_any_age() -> None:
    lasting = CHANCE.exponential(10.0, 4000)
    records = [job for hours in lasting.tolist() for job in ended(hours, 1)]
    for age in (0.5, 5.0, 15.0):
        assert goes_on(records, 0, age, [1, 10]) == pytest.approx([np.exp(-0.05), np.exp(-0.95)], abs=0.04)


def test_a_job_that_is_older_than_most_is_likely_to_go_on() -> None:
    records = ended(1.0, 500) + ended(100.0, 50)
    young, old = (goes_on(records, 0, age, [4])[0] for age in (0.1, 20.0))
    assert young < 0.3 < 0.9 < old


def test_a_department_of_few_jobs_is_judged_by_its_class_and_one_of_many_by_itself() -> None:
    shorts, longs = ended(1.0, 400, department="short"), ended(50.0, 400, department="long")
    few = ended(50.0, 1, department="few")
    groups = {name: group for group, name in enumerate(["few", "long", "short"])}
    found = {name: goes_on(shorts + longs + few, group, 0.5, [3])[0] for name, group in groups.items()}
    assert found["short"] < 0.15 < found["few"] < 0.9 < found["long"]


def test_running_jobs_count_for_the_time_that_they_have_run() -> None:
    running = [JobRecord(job=f"r{n}", submitted_at=MONDAY, gpus=1) for n in range(200)]
    assert goes_on(ended(5.0, 100), 0, 4.0, [4])[0] < 0.25 < 0.5 < goes_on(ended(5.0, 100) + running, 0, 4.0, [4])[0]


def test_what_stays_and_comes_adds_up_to_the_steady_demand_of_jobs_without_memory() -> None:
    history = made_up_history(30)
    now, steps = np.array([history.present]), np.array([1, 24])
    assert history.jobs is not None
    values = seen(history, now, steps, curves(history.jobs, history.moments(now)), CANDIDATES)
    steady = 4.0 * 6.0 * 3.0  # jobs an hour, hours each, GPUs each
    assert values["survival"][0].tolist() == pytest.approx([history.gpus[-1], steady], rel=0.25)
    assert values["leaving"][0, 0] < values["leaving"][0, 1]
    assert values["arriving"][0, 0] < values["arriving"][0, 1]


@pytest.mark.parametrize("name", CANDIDATES)
def test_no_candidate_knows_what_comes_after_its_origin(name: str) -> None:
    history = made_up_history(12)
    origins, steps = np.array([100, 200]), np.array([1, 24])
    assert history.jobs is not None
    known = curves(history.jobs, history.moments(origins))
    whole = terms(name, seen(history, origins, steps, known, [name]))
    for at, origin in enumerate(origins.tolist()):
        then, now = history.until(origin), np.array([origin])
        assert then.jobs is not None
        alone = terms(name, seen(then.lately(origin), now, steps, curves(then.jobs, then.moments(now)), [name]))
        assert np.allclose(alone.points[0], whole.points[at])
        assert np.allclose(alone.columns[0], whole.columns[at])


def test_without_columns_the_quantiles_are_those_of_past_errors_and_gaps_are_none() -> None:
    errors = np.array([3.0, np.nan, -1.0, 0.0, 8.0])
    weights = learned(np.zeros((5, 0)), errors, 1)
    assert weights[:, 0].tolist() == np.quantile([3.0, -1.0, 0.0, 8.0], LEVELS).tolist()
    assert not learned(np.zeros((5, 0)), np.full(5, np.nan), 1).any()


def test_errors_that_spread_with_a_column_have_intervals_that_do() -> None:
    busy = CHANCE.uniform(1, 10, 2000)
    errors = busy * CHANCE.normal(size=2000)
    weights = learned(busy[:, None], errors, 1)
    found = fan(weights, np.array([[2.0], [8.0]]))
    tenth, middle, nine_tenths = (list(LEVELS).index(level) for level in (0.1, 0.5, 0.9))
    # The true ones are 2.6 and 10.2; the ridge draws them to that of all, 7.3.
    for level, side in ((nine_tenths, 1), (tenth, -1)):
        calm, wild = side * found[:, level]
        assert 2.0 < calm < 5.0
        assert 8.0 < wild < 12.0
    assert found[:, middle].tolist() == pytest.approx([0.0, 0.0], abs=0.6)


def test_a_column_that_never_changes_tells_nothing() -> None:
    errors = CHANCE.normal(size=300)
    plain, constant = learned(np.zeros((300, 0)), errors, 1), learned(np.ones((300, 1)), errors, 1)
    assert np.allclose(fan(plain, np.zeros((1, 0))), fan(constant, np.ones((1, 1))), atol=0.2)


def test_levels_go_outwards_while_outcomes_lie_outside_and_stay_where_they_hold() -> None:
    expected = np.tile(np.quantile(CHANCE.normal(size=2000), LEVELS), (600, 1))
    calm, wild = CHANCE.normal(size=600), 3 * CHANCE.normal(size=600)
    assert adapted(expected, calm, 1).tolist() == pytest.approx(LEVELS.tolist(), abs=0.08)
    tenth, nine_tenths = (list(LEVELS).index(level) for level in (0.1, 0.9))
    levels = adapted(expected, wild, 1)
    assert levels[tenth] < 0.05
    assert levels[nine_tenths] > 0.95
    assert adapted(expected, np.full(600, np.nan), 1).tolist() == LEVELS.tolist()


def test_an_outcome_at_the_edge_of_what_was_expected_counts_as_within_it() -> None:
    certain, none = np.zeros((50, len(LEVELS))), np.zeros(50)
    at_most = adapted(certain, none, 1)
    assert at_most.tolist() == adapted(certain, none - 1, 1).tolist()
    assert (at_most <= LEVELS).all()
    assert (adapted(certain, none + 1, 1) >= LEVELS).all()


def test_the_pinball_loss_is_of_each_level() -> None:
    found = loss(np.array([10.0]), np.array([[8.0, 10.0, 14.0]]), np.array([0.1, 0.5, 0.9]))
    assert found.tolist() == pytest.approx([(0.1 * 2 + 0 + 0.1 * 4) / 3])


def test_a_group_that_was_not_known_goes_by_the_curve_of_its_class() -> None:
    known = curves(JobTable.of(ended(1.0, 20) + ended(2.0, 20, gpus=8)), np.array([seconds(MONDAY + 9 * HOUR)]))
    new = JobTable.of(ended(1.0, 1, department="new") + ended(1.0, 1, gpus=8) + ended(1.0, 1, gpus=64))
    assert new.groups == ((0, "new"), (3, "a"), (5, "a"))
    assert known.rows_of(new).tolist() == [len(known.groups) + 0, known.groups.index((3, "a")), len(known.groups) + 5]
