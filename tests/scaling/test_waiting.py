"""How long jobs wait for on-premises, and which of them order no nodes meanwhile."""

from __future__ import annotations

from datetime import timedelta
from decimal import Decimal

import pytest

from spillway.model import Ending, PendingJob, Priority, Schedule, WaitRules
from spillway.scaling.waiting import beyond, hold_until
from spillway.testing.builders import NOW, job_spec

MINUTE, HOUR = timedelta(minutes=1), timedelta(hours=1)
RULES = WaitRules(
    everybody=2 * MINUTE, from_gpus=8, from_gpu_hours=Decimal(100), share=Decimal("0.5"), longest=24 * HOUR
)
HOME = ("onprem", "a100")


@pytest.mark.parametrize(
    ("gpus", "expected", "wait"),
    [
        pytest.param(8, None, 2 * MINUTE, id="nobody said how long it trains"),
        pytest.param(8, 12 * HOUR, 2 * MINUTE, id="a little too cheap"),
        pytest.param(8, 12.5 * HOUR, 6.25 * HOUR, id="just dear enough"),
        pytest.param(8, 100 * HOUR, 24 * HOUR, id="no longer than the longest"),
        pytest.param(7, 100 * HOUR, 2 * MINUTE, id="too narrow"),
        pytest.param(16, 3.125 * HOUR, 1.5625 * HOUR, id="twice as wide, half as dear"),
        pytest.param(16, 3 * HOUR, 2 * MINUTE, id="twice as wide, and too cheap even so"),
    ],
)
def test_a_job_waits_in_proportion_to_its_cost(gpus: int, expected: timedelta | None, wait: timedelta) -> None:
    job = job_spec(gpus_per_node=gpus, expected_duration=expected)
    assert hold_until(job, NOW, RULES) == NOW + wait


def test_a_job_with_a_deadline_buys_in_time_for_it() -> None:
    job = job_spec(gpus_per_node=8, expected_duration=20 * HOUR)
    schedule = Schedule(began_at=NOW, deadline=NOW + 24 * HOUR, work=20 * HOUR, done=timedelta(), restart=10 * MINUTE)
    assert hold_until(job, NOW, RULES, schedule) == NOW + 4 * HOUR - 20 * MINUTE


def pending(run: str, gpus: int, *, nodes: int = 1, place: tuple[str, str] = HOME) -> PendingJob:
    return PendingJob(
        run=run,
        gpus_per_node=gpus,
        nodes=nodes,
        since=NOW,
        priority=Priority.RESEARCH,
        places=frozenset({place, ("cloud", "h100")}),
    )


def ending(minutes: int, gpus: int, nodes: int = 1) -> Ending:
    return Ending(at=NOW + minutes * MINUTE, place=HOME, gpus_per_node=gpus, nodes=nodes)


def test_a_job_that_on_premises_has_room_for_soon_orders_no_nodes() -> None:
    first, second, wide = pending("a", 1), pending("b", 1), pending("c", 8)
    assert beyond((first, second, wide), (ending(5, 1),), NOW, 8 * MINUTE) == [second, wide]
    assert beyond((first, second, wide), (ending(5, 8),), NOW, 8 * MINUTE) == [wide]
    assert beyond((wide,), (ending(5, 8),), NOW, 8 * MINUTE) == []


def test_what_ends_later_or_was_to_end_already_or_elsewhere_brings_no_room() -> None:
    job = pending("a", 1)
    for found in (ending(9, 8), ending(-1, 8)):
        assert list(beyond((job,), (found,), NOW, 8 * MINUTE)) == [job]
    other = pending("a", 1, place=("else", "a100"))
    assert beyond((other,), (ending(5, 8),), NOW, 8 * MINUTE) == [other]
