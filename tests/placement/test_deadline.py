"""A job with a deadline waits for spot while it can, and takes what nobody reclaims when it must."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from spillway.model import (
    Billing,
    Candidate,
    CloudAccess,
    DatasetFacts,
    Destination,
    JobSpec,
    PlacementPolicy,
    Priority,
    Schedule,
    Snapshot,
)
from spillway.placement.context import index
from spillway.placement.explain import explanation
from spillway.placement.policy import choose, place
from spillway.testing.builders import (
    NOW,
    cloud_cluster,
    cloud_pool,
    cluster_state,
    job_spec,
    nodes_of,
    onprem_cluster,
    placement_policy,
    pod,
    snapshot,
)

HOUR = timedelta(hours=1)
EARLY, BEHIND, LATE = timedelta(0), 8 * HOUR, 16 * HOUR


def after(elapsed: timedelta, *, spot_full: bool = False, on_demand_full: bool = False) -> Snapshot:
    """The cloud so long after a job of five hours was asked for that has to be done within twenty."""
    spot, bought = cloud_pool(name="spot", max_nodes=1), cloud_pool(name="fast", max_nodes=1)
    spot_pool = _only(spot, Billing.SPOT)
    bought_pool = _only(bought, Billing.ON_DEMAND)
    full = [name for name, is_full in (("spot", spot_full), ("fast", on_demand_full)) if is_full]
    state = cluster_state(
        cloud_cluster(pools=(spot_pool, bought_pool)),
        nodes=[*nodes_of(spot_pool, 1), *nodes_of(bought_pool, 1)],
        pods=[pod(name=name, gpus=8, node=f"{name}-0") for name in full],
    )
    schedule = Schedule(
        began_at=NOW - elapsed, deadline=NOW - elapsed + 20 * HOUR, work=5 * HOUR, done=timedelta(), restart=HOUR / 10
    )
    return snapshot(state, schedule=schedule)


def _only(pool: Any, billing: Billing) -> Any:
    return cloud_pool(name=pool.name, max_nodes=1, prices_per_gpu_hour={billing: pool.prices_per_gpu_hour[billing]})


CHOSEN: dict[str, tuple[Snapshot, str | None]] = {
    "early": (after(EARLY), "spot"),
    "early, no spot": (after(EARLY, spot_full=True), None),
    "behind": (after(14 * HOUR), "spot"),
    "behind, no spot": (after(14 * HOUR, spot_full=True), "fast"),
    "late": (after(LATE), "fast"),
    "late, only spot": (after(LATE, on_demand_full=True), "spot"),
}


@pytest.mark.parametrize("priority", [Priority.PRODUCTION_CORE, Priority.RESEARCH])
@pytest.mark.parametrize(("seen", "chosen"), CHOSEN.values(), ids=CHOSEN)
def test_where_a_job_with_a_deadline_goes(seen: Snapshot, chosen: str | None, priority: Priority) -> None:
    decision = place(job_spec(spot_ok=True, priority=priority), seen, placement_policy())
    assert (decision.chosen and decision.chosen.pool) == chosen
    assert decision.possible


def test_jobs_that_are_decided_on_from_the_same_facts_have_each_its_own_deadline() -> None:
    early, late = after(EARLY), after(LATE)
    shared = index(early, placement_policy())
    for seen, chosen in ((early, "spot"), (late, "fast"), (early, "spot")):
        decision = choose(job_spec(spot_ok=True), shared.deciding(replace(early, schedule=seen.schedule)))
        assert decision.chosen is not None
        assert decision.chosen.pool == chosen


def test_a_job_that_waits_for_spot_is_told_so() -> None:
    decision = place(job_spec(spot_ok=True), after(EARLY, spot_full=True), placement_policy())
    [reason] = [r for v in decision.verdicts for r in v.rejections if r.rule == "deadline"]
    assert reason.reason == (
        "has 5:00:00 to train until 2026-01-06T08:00:00+00:00, which is time enough to wait for spot"
    )


def rules(job: JobSpec, seen: Snapshot, policy: PlacementPolicy | None = None) -> set[str]:
    """All that speaks against some place."""
    decision = place(job, seen, policy or placement_policy())
    return {rejection.rule for verdict in decision.verdicts for rejection in verdict.rejections}


@pytest.mark.parametrize(
    "job",
    [
        {"spot_ok": False},
        {"spot_ok": True, "max_price_per_gpu_hour": 2},
        {"spot_ok": True, "nodes": 9},
        {"spot_ok": True, "latency_sensitive": True},
    ],
    ids=["not interruptible", "too dear", "too many nodes", "latency"],
)
def test_a_job_that_no_spot_suits_does_not_wait_for_it(job: dict[str, Any]) -> None:
    assert "deadline" not in rules(job_spec(**job), after(EARLY, spot_full=True))


def test_a_job_whose_department_may_buy_no_spot_does_not_wait_for_it() -> None:
    access = CloudAccess(clusters=None, billing=frozenset({Billing.ON_DEMAND}))
    policy = placement_policy(cloud_access={"research": access})
    decision = place(job_spec(spot_ok=True), after(EARLY), policy)
    assert decision.chosen is not None
    assert decision.chosen.billing is Billing.ON_DEMAND


@pytest.mark.parametrize(
    ("where", "chosen"),
    [
        (Destination(cluster="cloud", pool="fast"), "fast"),
        (Destination(cluster="cloud"), "spot"),
        (Destination(), "spot"),
    ],
    ids=str,
)
def test_an_early_job_is_moved_to_on_demand_where_a_person_names_it(where: Destination, chosen: str) -> None:
    decision = place(job_spec(spot_ok=True), replace(after(EARLY), destination=where), placement_policy())
    assert decision.chosen is not None
    assert decision.chosen.pool == chosen


def test_an_early_job_that_is_moved_to_the_best_place_waits_for_spot() -> None:
    seen = replace(after(EARLY, spot_full=True), destination=Destination())
    assert "deadline" in rules(job_spec(spot_ok=True), seen)


@pytest.mark.parametrize(
    ("size_gib", "bought"),
    [(1, False), (30_000, True), (None, False)],
    ids=["small", "seven hours over the line", "of a size that nobody knows"],
)
def test_a_job_waits_for_spot_no_longer_than_bringing_its_data_to_on_demand_leaves_time_for(
    size_gib: int | None, bought: bool
) -> None:
    """Without data it would wait for three hours more."""
    size = None if size_gib is None else size_gib << 30
    seen = replace(
        after(10 * HOUR, spot_full=True),
        datasets={"digits": DatasetFacts(home="onprem", size_bytes=size)},
        unreachable={"onprem": "connection refused"},
        unreachable_clusters=(onprem_cluster(pools=()),),
    )
    decision = place(job_spec(spot_ok=True, dataset="digits"), seen, placement_policy())
    assert (decision.chosen is not None) is bought
    told = explanation(job_spec(dataset="digits"), seen, placement_policy(), decision)
    stands = "late for" if bought else "ahead of"
    assert f"deadline: 2026-01-05T22:00:00+00:00, 5:00:00 of 5:00:00 left to train: {stands} it" in told


@pytest.mark.parametrize("elapsed", [EARLY, BEHIND, LATE], ids=str)
def test_a_job_that_is_ordered_off_spot_takes_what_nobody_reclaims_however_early_it_is(elapsed: timedelta) -> None:
    off_spot = Destination(spot=False, leaving=Candidate(cluster="cloud", pool="spot", billing=Billing.SPOT))
    assert str(off_spot) == "not-spot"
    decision = place(job_spec(spot_ok=True), replace(after(elapsed), destination=off_spot), placement_policy())
    assert decision.chosen is not None
    assert decision.chosen.pool == "fast"
