"""Jobs that may wait for off-peak hours wait as long as that saves something and their deadline allows it."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from decimal import Decimal

import pytest

from spillway.model import (
    Billing,
    BudgetState,
    Candidate,
    DatasetFacts,
    Destination,
    JobSpec,
    Link,
    NodePool,
    OffPeak,
    Rejection,
    ReservedContract,
    Schedule,
    Snapshot,
)
from spillway.months import month_of
from spillway.placement.context import index
from spillway.placement.policy import choose, place
from spillway.testing.builders import (
    NOW,
    cloud_cluster,
    cloud_pool,
    cluster_state,
    job_spec,
    onprem_cluster,
    placement_policy,
    snapshot,
)

HOUR = timedelta(hours=1)
NIGHT = OffPeak(
    begins=22 * HOUR,
    ends=6 * HOUR,
    time_zone="Europe/Berlin",
    prices_per_hour={Billing.ON_DEMAND: Decimal(5)},
)
POOL = cloud_pool(off_peak=NIGHT, prices_per_gpu_hour={Billing.ON_DEMAND: Decimal(8)})
PATIENT = job_spec(off_peak_ok=True, expected_duration=6 * HOUR)
BOUGHT = Candidate(cluster="cloud", pool="h100", billing=Billing.ON_DEMAND)


def cloud(*pools: NodePool, at: timedelta = timedelta(), **fields: object) -> Snapshot:
    """The cloud at noon (13 o'clock in Berlin), or so much later."""
    seen = snapshot(cluster_state(cloud_cluster(pools=pools or (POOL,))), taken_at=NOW + at)
    return replace(seen, **fields)  # type: ignore[arg-type]


def said(job: JobSpec, seen: Snapshot, where: Candidate = BOUGHT) -> tuple[Rejection, ...]:
    return next(v.rejections for v in place(job, seen, placement_policy()).verdicts if v.candidate == where)


def test_a_job_waits_for_the_hours_in_which_it_is_cheaper_and_then_pays_less() -> None:
    assert said(PATIENT, cloud()) == (
        Rejection(
            rule="off-peak",
            reason="may wait for off-peak hours here from 2026-01-05T21:00:00+00:00 on, "
            "an hour then costs 5 (on-demand) instead of 8",
            waits=True,
        ),
    )
    night = place(PATIENT, cloud(at=9 * HOUR), placement_policy())
    assert (night.chosen, night.verdicts[0].price_per_gpu_hour) == (BOUGHT, 5)


def test_whoever_does_not_wait_is_not_affected_by_day() -> None:
    job = replace(PATIENT, off_peak_ok=False)
    by_day = cloud(replace(POOL, off_peak=None))
    assert place(job, cloud(), placement_policy()) == place(job, by_day, placement_policy())


@pytest.mark.parametrize(
    "job",
    [job_spec(off_peak_ok=True), replace(PATIENT, expected_duration=9 * HOUR)],
    ids=["nobody knows how long", "longer than the hours"],
)
def test_what_the_hours_do_not_make_cheaper_is_not_held_back(job: JobSpec) -> None:
    decision = place(job, cloud(), placement_policy())
    assert (decision.chosen, decision.verdicts[0].price_per_gpu_hour) == (BOUGHT, 8)


@pytest.mark.parametrize(("slack", "waits"), [(2 * HOUR / 10, True), (HOUR / 10, False)])
def test_a_job_waits_only_as_long_as_its_deadline_allows(slack: timedelta, waits: bool) -> None:
    """Nine hours until the hours begin, six to train, and twice the time that a start takes."""
    schedule = Schedule(
        began_at=NOW, deadline=NOW + 15 * HOUR + slack, work=6 * HOUR, done=timedelta(), restart=HOUR / 10
    )
    assert [r.rule for r in said(PATIENT, cloud(schedule=schedule))] == (["off-peak"] if waits else [])


def test_a_job_waits_for_cheaper_hours_of_another_pool_too_but_not_where_it_costs_less_now() -> None:
    dear, cheap = (
        cloud_pool(name=name, prices_per_gpu_hour={Billing.ON_DEMAND: price})
        for name, price in (("dear", Decimal(6)), ("cheap", Decimal(4)))
    )
    there = replace(BOUGHT, pool="dear")
    assert [r.reason for r in said(PATIENT, cloud(POOL, dear), there)] == [
        "may wait for off-peak hours at cloud/h100 from 2026-01-05T21:00:00+00:00 on, an hour then costs 5 (on-demand) "
        "instead of 6"
    ]
    assert said(PATIENT, cloud(POOL, cheap), replace(BOUGHT, pool="cheap")) == ()
    assert said(replace(PATIENT, gpu_model="A100"), cloud(POOL, replace(dear, gpu_model="A100")), there) == ()


def test_what_is_free_on_premises_is_taken_at_once() -> None:
    both = snapshot(cluster_state(onprem_cluster()), cluster_state(cloud_cluster(pools=(POOL,))))
    chosen = place(PATIENT, both, placement_policy()).chosen
    assert chosen is not None
    assert chosen.cluster == "onprem"


def test_hours_that_the_job_just_fills_are_not_waited_for_nor_the_next_ones_once_they_have_begun() -> None:
    """Eight hours; looks are some seconds apart, and whoever is there may end some minutes later."""
    full, nearly = (replace(PATIENT, expected_duration=lasting) for lasting in (8 * HOUR, 7.8 * HOUR))
    by_day, begun = cloud(), cloud(at=9.5 * HOUR)
    assert [[r.rule for r in said(job, by_day)] for job in (full, nearly)] == [[], ["off-peak"]]
    assert said(nearly, begun) == said(full, begun) == ()
    assert place(nearly, begun, placement_policy()).verdicts[0].price_per_gpu_hour == 8


def test_a_run_that_comes_back_needs_the_hours_only_for_what_it_has_left() -> None:
    """Three hours of the night are left, and one of six to train."""
    schedule = Schedule(
        began_at=NOW, deadline=NOW + 99 * HOUR, work=6 * HOUR, done=5 * HOUR, restart=timedelta(minutes=10)
    )
    late = place(PATIENT, cloud(at=14 * HOUR, schedule=schedule), placement_policy())
    assert (late.chosen, late.verdicts[0].price_per_gpu_hour) == (BOUGHT, 5)


def bringing(**fields: object) -> Snapshot:
    """The cloud and a home from which the data takes four hours."""
    far = onprem_cluster(link=Link(bandwidth_gbps=10.0))
    data = {"digits": DatasetFacts(home="onprem", size_bytes=4 * 3600 * 1_250_000_000)}
    both = snapshot(cluster_state(far, nodes=()), cluster_state(cloud_cluster(pools=(POOL,))), datasets=data)
    return replace(both, **fields)  # type: ignore[arg-type]


def test_data_has_to_be_there_before_a_job_is_cheaper_or_done() -> None:
    """It is nine hours to the night, and the night has eight."""
    reader = replace(job_spec(dataset="digits", gpu_model="H100"), off_peak_ok=True, expected_duration=3 * HOUR)
    schedule = Schedule(began_at=NOW, deadline=NOW + 14 * HOUR, work=3 * HOUR, done=timedelta(), restart=HOUR / 6)
    assert [r.rule for r in said(reader, bringing())] == ["off-peak"]
    assert said(reader, bringing(schedule=schedule)) == ()
    longer = replace(reader, expected_duration=5 * HOUR)
    night = place(longer, bringing(taken_at=NOW + 9 * HOUR), placement_policy())
    assert (night.chosen, night.verdicts[0].price_per_gpu_hour) == (BOUGHT, 8)


PAID = cloud_pool(
    off_peak=replace(NIGHT, prices_per_hour=NIGHT.prices_per_hour | {Billing.RESERVED: Decimal(4)}),
    prices_per_gpu_hour={Billing.ON_DEMAND: Decimal(8), Billing.RESERVED: Decimal(5)},
    reserved=ReservedContract(gpus=16, paid=True),
)


@pytest.mark.parametrize(
    ("pool", "takes"),
    [(cloud_pool(off_peak=NIGHT), Billing.SPOT), (PAID, Billing.RESERVED)],
    ids=["spot that costs the same at night", "reserved GPUs that are paid for"],
)
def test_nobody_waits_for_hours_that_make_what_is_free_now_no_cheaper(pool: NodePool, takes: Billing) -> None:
    job = replace(PATIENT, spot_ok=True)
    assert said(job, cloud(pool), replace(BOUGHT, billing=takes)) == ()
    assert place(job, cloud(pool), placement_policy()).chosen == replace(BOUGHT, billing=takes)


def test_nobody_waits_for_reserved_gpus_that_they_can_never_have() -> None:
    """Without a contract these are for who trains long enough to break even."""
    usual = {Billing.ON_DEMAND: Decimal(8), Billing.RESERVED: Decimal(6)}
    night = replace(NIGHT, prices_per_hour={Billing.RESERVED: Decimal(2)})
    offer, other = cloud_pool(name="offer", prices_per_gpu_hour=usual, off_peak=night), replace(POOL, off_peak=None)
    assert said(PATIENT, cloud(offer, other)) == ()
    contract = replace(offer, reserved=ReservedContract(gpus=8))
    assert [r.rule for r in said(PATIENT, cloud(contract, other))] == ["off-peak"]


def test_hours_without_a_price_are_awaited_where_they_are_declared() -> None:
    quiet = replace(POOL, off_peak=replace(NIGHT, prices_per_hour={}))
    assert [r.reason for r in said(job_spec(off_peak_ok=True), cloud(quiet))] == [
        "may wait for off-peak hours here from 2026-01-05T21:00:00+00:00 on"
    ]
    assert said(job_spec(off_peak_ok=True), cloud(quiet, at=9 * HOUR)) == ()


@pytest.mark.parametrize("ordered", [Destination(cluster="cloud"), Destination(), Destination(spot=False)], ids=str)
def test_who_is_ordered_elsewhere_does_not_wait(ordered: Destination) -> None:
    """A run that leaves spot for its deadline has no time for that, nor has one whose site is to be cleared."""
    assert said(PATIENT, cloud(destination=ordered)) == ()


def test_a_price_that_is_too_high_by_day_only_passes_by_waiting() -> None:
    modest = replace(PATIENT, off_peak_ok=False, max_price_per_gpu_hour=Decimal(6))
    assert [(r.rule, r.waits) for r in said(modest, cloud())] == [("max-price", True)]
    poor = replace(modest, max_price_per_gpu_hour=Decimal(4))
    assert [(r.rule, r.waits) for r in said(poor, cloud())] == [("max-price", False)]
    assert choose(modest, index(cloud(at=9 * HOUR), placement_policy())).chosen == BOUGHT


@pytest.mark.parametrize(("limit", "waits"), [(240, True), (239, False)])
def test_a_budget_that_bears_the_job_at_night_is_waited_for_by_day(limit: int, waits: bool) -> None:
    """It takes 48 GPU-hours, at 8 by day and at 5 in the off-peak hours."""
    month, nothing = month_of(NOW, "UTC"), Decimal(0)
    spent = dict.fromkeys(("booked", "accrued", "reserved"), nothing)
    budget = BudgetState(
        department="research", month=month.name, starts_at=month.starts_at, ends_at=month.ends_at,
        limit=Decimal(limit), **spent,
    )  # fmt: skip
    job, seen = replace(PATIENT, off_peak_ok=False, gpus_per_node=8), cloud(budgets=(budget,))
    assert [(r.rule, r.waits) for r in said(job, seen)] == [("budget", waits)]
    night = place(job, replace(seen, taken_at=NOW + 10 * HOUR), placement_policy())
    assert (night.chosen is not None) is waits
