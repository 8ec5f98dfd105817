from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spillway.checkpoints.retention import Retention, StepRecord, keep
from spillway.testing.builders import NOW

OLD = NOW - timedelta(days=1)
NONE = Retention(last=1, every_steps=0, best=0, minimum_age=timedelta(0))
STEPS = [
    StepRecord(step=step, attempt=1, created_at=OLD, loss=loss)
    for step, loss in ((10, 0.9), (20, 0.1), (30, 0.5), (40, None), (50, float("nan")), (60, 0.4))
]


@pytest.mark.parametrize(
    ("retention", "kept"),
    [
        pytest.param(NONE, [60], id="the newest always stays"),
        pytest.param(Retention(last=0, best=0, minimum_age=timedelta(0)), [60], id="even with last 0"),
        pytest.param(Retention(last=3, best=0, minimum_age=timedelta(0)), [40, 50, 60], id="last three"),
        pytest.param(
            Retention(last=1, every_steps=20, best=0, minimum_age=timedelta(0)), [20, 40, 60], id="every 20 steps"
        ),
        pytest.param(
            Retention(last=1, best=2, minimum_age=timedelta(0)), [20, 60], id="the newest may be one of the best"
        ),
        pytest.param(Retention(last=1, best=3, minimum_age=timedelta(0)), [20, 30, 60], id="best of known losses"),
        pytest.param(
            Retention(last=1, best=0, minimum_age=timedelta(days=2)), [10, 20, 30, 40, 50, 60], id="all are young"
        ),
        pytest.param(Retention(last=1, best=0, minimum_age=timedelta(days=1)), [60], id="exactly old enough"),
    ],
)
def test_these_steps_stay(retention: Retention, kept: list[int]) -> None:
    assert sorted(record.step for record in keep(STEPS, retention, NOW)) == kept


def test_the_newest_is_of_the_latest_attempt_even_with_a_lower_step() -> None:
    rolled_back = StepRecord(step=30, attempt=2, created_at=OLD)
    assert keep([*STEPS, rolled_back], NONE, NOW) == frozenset({rolled_back})


def test_nothing_committed_means_nothing_to_keep() -> None:
    assert keep([], Retention(), NOW) == frozenset()


records = st.builds(
    StepRecord,
    step=st.integers(1, 100),
    attempt=st.integers(1, 3),
    created_at=st.integers(0, 48).map(lambda hours: NOW - timedelta(hours=hours)),
    loss=st.none() | st.floats(allow_nan=True),
)
retentions = st.builds(Retention, last=st.integers(0, 5), every_steps=st.integers(0, 30), best=st.integers(0, 3))


@given(st.lists(records, max_size=20, unique_by=lambda record: (record.attempt, record.step)), retentions)
def test_keeping_again_keeps_the_same(steps: list[StepRecord], retention: Retention) -> None:
    kept = keep(steps, retention, NOW)
    assert kept <= set(steps)
    assert keep(kept, retention, NOW) == kept
    assert keep(reversed(steps), retention, NOW) == kept
