"""A candidate beside the live rules of scaling, at looks that are stored."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from datetime import timedelta
from decimal import Decimal

import pytest

from spillway.ledger import ScalingLook
from spillway.model import Forecast
from spillway.runs.shadow_scaling import NodesDiffer, ScalingShadow, shadow_scaling
from spillway.scaling.presets import DEFAULT
from spillway.scaling.rules import ForecastRule, QueueRule, ScalingRules
from spillway.testing.builders import NOW
from spillway.testing.elastic import (
    MINUTE,
    busy_node,
    idle_node,
    measured,
    pending_jobs,
    pool_use,
    scaling_look,
    scaling_snapshot,
)

SINCE, UNTIL = NOW - timedelta(hours=1), NOW + timedelta(hours=1)
LIVE = replace(DEFAULT, reactive=QueueRule(), idle_release=10 * MINUTE)
PATIENT = replace(LIVE, reactive=QueueRule(after=timedelta(hours=1)))
THREE_WAIT = scaling_look(scaling_snapshot(pool_use(busy_node("a")), queue=pending_jobs(3)), LIVE)
IDLES = scaling_look(scaling_snapshot(pool_use(busy_node("a"), idle_node("b", 7 * MINUTE))), LIVE)


def beside(looks: Iterable[ScalingLook], candidate: ScalingRules) -> ScalingShadow:
    return shadow_scaling(looks, candidate, since=SINCE, until=UNTIL)


def later(look: ScalingLook, minutes: int) -> ScalingLook:
    """The same look so much later, when nothing that counts has changed."""
    return replace(look, snapshot=replace(look.snapshot, taken_at=NOW + minutes * MINUTE))


def test_the_nodes_that_each_wants_are_told_with_the_reasons_of_both_and_the_money() -> None:
    found = beside([THREE_WAIT], PATIENT)
    difference = NodesDiffer(
        taken_at=NOW,
        cluster="cloud",
        pool="h100",
        before=1,
        live=4,
        candidate=1,
        per_hour=Decimal("8.0") * 8 * -3,
        live_why="reactive: 3 more: for jobs that wait and find no room",
        candidate_why="reactive: nothing asks for a change",
    )
    assert found == ScalingShadow(since=SINCE, until=UNTIL, compared=1, not_rebuilt=0, differences=(difference,))
    assert found.data()["pools"] == {"cloud/h100": {"more": 0, "fewer": 1}}
    assert found.data()["differences"][0]["per_hour"] == "-192.0"


def test_a_candidate_that_would_have_scaled_when_the_live_rules_did_not_is_told_too() -> None:
    (found,) = beside([IDLES], replace(LIVE, idle_release=5 * MINUTE)).differences
    assert (found.before, found.live, found.candidate, found.per_hour) == (2, 2, 1, Decimal("-64.0"))
    assert found.candidate_why == "reactive: 1 fewer: idle for 5 min or longer"


def test_what_nodes_of_unknown_price_cost_is_not_known() -> None:
    use = pool_use(busy_node("a"))
    free = replace(use, pool=replace(use.pool, prices_per_gpu_hour={}))
    found = beside([scaling_look(scaling_snapshot(free, queue=pending_jobs(1)), LIVE)], PATIENT)
    assert [one.per_hour for one in found.differences] == [None]
    assert found.told().splitlines()[-1].split()[8:10] == ["1", "-"]


def test_a_pool_that_was_not_known_keeps_its_size_by_whatever_rules() -> None:
    unknown = replace(THREE_WAIT.snapshot, unknown={("cloud", "h100"): "timed out"})
    assert beside([scaling_look(unknown, LIVE)], PATIENT).differences == ()


def test_a_plan_that_does_not_follow_from_what_is_stored_of_it_is_left_out_and_counted() -> None:
    (target,) = THREE_WAIT.plan
    other = replace(THREE_WAIT, plan=(replace(target, nodes=9),))
    reworded = replace(IDLES, plan=(replace(IDLES.plan[0], clamps=("in words of another release",)),))
    found = beside([other, reworded], PATIENT)
    assert (found.compared, found.not_rebuilt, found.differences) == (1, 1, ())
    assert found.told().splitlines()[1:] == [
        "left out: 1 look whose plan does not follow from what is stored of it, as that of a release with other rules"
    ]


def test_a_candidate_that_looks_ahead_sees_what_was_foreseen_for_the_live_rules() -> None:
    foreseen = Forecast(
        made_at=NOW, step=timedelta(hours=1), quantiles=(0.5, 0.9), gpus=((110, 124),) * 2, model="m", reason="r"
    )
    seen = scaling_snapshot(pool_use(busy_node("a")), local=measured(100))
    look = scaling_look(seen, replace(LIVE, forecast=ForecastRule(quantile=0.5)), {("", ""): foreseen})
    (found,) = beside([look], replace(LIVE, forecast=ForecastRule(quantile=0.9))).differences
    assert (found.live, found.candidate) == (2, 3)
    assert (found.candidate_why) == (
        "reactive: nothing asks for a change; forecast: 124 GPUs, of which 100 on-premises and 0 in other pools, by "
        "the quantile 0.9 of the next 15 min (m; r)"
    )


def test_differences_that_go_on_are_one_line_for_a_person_and_a_program_has_all(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    looks = [*(later(IDLES, minute) for minute in (0, 1, 2)), later(THREE_WAIT, 3)]
    found = beside(looks, replace(PATIENT, idle_release=5 * MINUTE))
    assert len(found.differences) == 4
    first, pools, header, stretch, last = found.told().splitlines()
    assert first.endswith("(UTC): 4; at 4 the candidate wants other numbers of nodes")
    assert pools == "cloud/h100: more nodes at 0 looks, fewer at 4"
    assert header.split()[:5] == ["FROM", "(UTC)", "UNTIL", "(UTC)", "LOOKS"]
    day, clocks = f"{NOW:%Y-%m-%d}", [f"{NOW + ahead * MINUTE:%H:%M:%S}" for ahead in (0, 2)]
    assert stretch.split()[:9] == [day, clocks[0], day, clocks[1], "3", "cloud/h100", "2", "2", "1"]
    assert last.split()[4:9] == ["1", "cloud/h100", "1", "4", "1"]
    monkeypatch.setattr("spillway.runs.shadow_scaling.SHOWN", 1)
    *_, only, more = found.told().splitlines()
    assert (only.split(), more) == (stretch.split(), "and 1 more line; the JSON has every difference")
