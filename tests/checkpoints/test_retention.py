from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spillway.checkpoints.layout import CommittedStep
from spillway.checkpoints.retention import StepRecord, keep, living, metric_of
from spillway.model import Retention
from spillway.testing.builders import NOW

AGELESS = timedelta(0)


def record(
    step: int, attempt: int = 1, *, metric: float | None = None, age: timedelta = timedelta(days=1)
) -> StepRecord:
    entry = CommittedStep(step=step, attempt=attempt, sha256=f"{attempt:032x}{step:032x}")
    return StepRecord(entry=entry, created_at=NOW - age, metric=metric)


def rules(**fields: Any) -> Retention:
    return Retention(**{"last": 1, "best": 0, "minimum_age": AGELESS, **fields})


def kept(steps: list[StepRecord], retention: Retention, **pins: Any) -> list[tuple[int, int]]:
    """(attempt, step) of what stays."""
    return sorted(entry.age_order for entry in keep(steps, retention, NOW, **pins))


STEPS = [
    record(step, metric=loss)
    for step, loss in ((10, 0.9), (20, 0.1), (30, 0.5), (40, None), (50, float("nan")), (60, 0.4))
]


@pytest.mark.parametrize(
    ("retention", "steps"),
    [
        pytest.param(rules(), [60], id="the newest always stays"),
        pytest.param(rules(last=0), [60], id="even with last 0"),
        pytest.param(rules(last=3), [40, 50, 60], id="the last three"),
        pytest.param(rules(every_steps=20), [20, 40, 60], id="every 20 steps"),
        pytest.param(rules(best=1), [20, 60], id="the best and the newest"),
        pytest.param(rules(best=3), [20, 30, 60], id="an unknown metric is never among the best"),
        pytest.param(rules(best=1, highest_is_best=True), [10, 60], id="where high is good"),
        pytest.param(rules(minimum_age=timedelta(days=2)), [10, 20, 30, 40, 50, 60], id="all are young"),
        pytest.param(rules(minimum_age=timedelta(days=1)), [60], id="exactly old enough"),
        pytest.param(rules(last=2, every_steps=30, best=1), [20, 30, 50, 60], id="any rule is enough"),
    ],
)
def test_these_steps_stay(retention: Retention, steps: list[int]) -> None:
    assert [step for _, step in kept(STEPS, retention)] == steps


def test_a_pinned_step_stays_and_one_that_is_not_committed_does_not_appear() -> None:
    other = record(70).entry
    assert kept(STEPS, rules(), pinned=[STEPS[0].entry, other]) == [(1, 10), (1, 60)]


def test_nothing_committed_means_nothing_to_keep() -> None:
    assert keep([], Retention(), NOW) == frozenset()


def test_of_two_equally_good_steps_the_newer_one_stays() -> None:
    steps = [record(10, metric=0.5), record(20, metric=0.5), record(30, metric=0.9)]
    assert kept(steps, rules(best=1)) == [(1, 20), (1, 30)]


# -- branches of history ----------------------------------------------------------------------------------------------

ROLLED_BACK = [record(step) for step in (10, 20, 30, 40)] + [record(25, 2), record(35, 2)]


def test_steps_that_a_later_attempt_computed_again_do_not_live() -> None:
    assert [step.entry.age_order for step in living(ROLLED_BACK)] == [(1, 10), (1, 20), (2, 25), (2, 35)]


def test_a_given_up_branch_takes_no_place_among_the_last() -> None:
    assert kept(ROLLED_BACK, rules(last=3)) == [(1, 20), (2, 25), (2, 35)]


def test_a_given_up_branch_has_no_multiples_and_no_best_steps() -> None:
    steps = [record(10, metric=0.5), record(20, metric=0.6), record(40, metric=0.1), record(20, 2, metric=0.7)]
    assert kept(steps, rules(every_steps=20, best=1)) == [(1, 10), (2, 20)]


def test_the_fresh_step_after_a_roll_back_stays_although_higher_steps_are_there() -> None:
    assert kept([*STEPS, record(20, 2)], rules()) == [(2, 20)]


def test_a_given_up_branch_stays_while_it_is_young() -> None:
    steps = [record(40, age=timedelta(minutes=5)), record(30, 2)]
    assert kept(steps, rules(minimum_age=timedelta(minutes=10))) == [(1, 40), (2, 30)]


# -- metrics ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("metrics", "value"),
    [
        ({"loss": [[9, 0.5], [10, 0.25]]}, 0.25),
        ({"loss": 0.25}, 0.25),
        ({"loss": 3}, 3.0),
        ({}, None),
        ({"loss": []}, None),
        ({"loss": [[]]}, None),
        ({"loss": "low"}, None),
        ({"loss": True}, None),
        ({"loss": float("nan")}, None),
        ({"loss": {"a": 1}}, None),
    ],
)
def test_a_metric_is_a_number_or_the_end_of_a_curve(metrics: dict[str, Any], value: float | None) -> None:
    assert metric_of(metrics, "loss") == value


# -- whatever was committed -------------------------------------------------------------------------------------------

records = st.builds(
    record,
    st.integers(1, 30),
    st.integers(1, 4),
    metric=st.none() | st.floats(allow_nan=True),
    age=st.integers(0, 48).map(lambda hours: timedelta(hours=hours)),
)
histories = st.lists(records, max_size=20, unique_by=lambda found: found.entry.age_order)
retentions = st.builds(
    Retention,
    last=st.integers(0, 5),
    every_steps=st.integers(0, 10),
    best=st.integers(0, 3),
    highest_is_best=st.booleans(),
)


@given(histories, retentions)
def test_keeping_again_keeps_the_same_in_any_order(steps: list[StepRecord], retention: Retention) -> None:
    stay = keep(steps, retention, NOW)
    assert keep(reversed(steps), retention, NOW) == stay
    assert keep([found for found in steps if found.entry in stay], retention, NOW) == stay


@given(histories, retentions)
def test_the_newest_and_the_last_living_steps_stay(steps: list[StepRecord], retention: Retention) -> None:
    stay = keep(steps, retention, NOW)
    assert stay <= {found.entry for found in steps}
    alive = [found.entry for found in living(steps)]
    assert set(alive[len(alive) - min(retention.last, len(alive)) :]) <= stay
    if steps:
        assert max((found.entry for found in steps), key=lambda entry: entry.age_order) in stay


@given(histories)
def test_a_step_lives_while_no_later_attempt_has_it_or_a_lower_one(steps: list[StepRecord]) -> None:
    alive = {found.entry for found in living(steps)}
    for found in steps:
        replaced = any(
            other.entry.attempt > found.entry.attempt and other.entry.step <= found.entry.step for other in steps
        )
        assert (found.entry in alive) == (not replaced)
