"""Who gives way to a job that comes first and fits nowhere, who does not, and why."""

from __future__ import annotations

import json
from dataclasses import replace
from decimal import Decimal
from typing import Any

import pytest

from spillway import codec
from spillway.model import (
    Billing,
    CoolDown,
    JobSpec,
    OffPeak,
    PlacementDecision,
    Priority,
    QuotaShare,
    Schedule,
    Snapshot,
)
from spillway.placement.context import index
from spillway.placement.explain import explanation, giving_way, headline
from spillway.placement.policy import choose, place
from spillway.placement.preemption import still_needed
from spillway.testing.builders import (
    NOW,
    candidate,
    cloud_cluster,
    cloud_pool,
    cluster_state,
    cooling,
    cpu_pool,
    job_spec,
    node_pool,
    onprem_cluster,
    placement_policy,
    pod,
    reservation,
)
from spillway.testing.training_attempts import MINUTE, PREEMPTING, Trains, plan, site, trains, victims

URGENT = job_spec(name="urgent", priority=Priority.PRODUCTION_CORE, gpus_per_node=8)


def test_the_run_that_lost_least_since_its_newest_checkpoint_gives_way() -> None:
    seen = site(trains("old-1", committed=30), trains("fresh-1", on=("a100-1",), committed=2))
    assert victims(URGENT, seen) == {"fresh-1": 8 * 120.0}


def test_what_nobody_knows_to_be_committed_counts_since_the_start_and_is_never_nothing() -> None:
    seen = site(trains("unknown-1"), trains("known-1", on=("a100-1",), committed=59))
    assert victims(URGENT, seen) == {"known-1": 8 * 59 * 60.0}
    assert plan(URGENT, seen).spared["unknown-1"] == "its end is not needed: it would lose 28800 GPU-seconds"


def test_a_pod_that_ends_already_loses_nothing_more() -> None:
    seen = site(trains("ends-1", committed=50, ending=True), trains("fresh-1", on=("a100-1",), committed=1))
    assert victims(URGENT, seen) == {"ends-1": 0.0}


def test_fewer_gpu_seconds_in_all_are_lost_rather_than_the_newest_checkpoint_is_taken() -> None:
    small = [trains(f"small{i}-1", gpus=2, committed=10) for i in range(4)]
    seen = site(*small, trains("large-1", on=("a100-1",), committed=9))
    assert victims(URGENT, seen) == {"large-1": 8 * 540.0}
    assert set(victims(URGENT, site(*small, trains("large-1", on=("a100-1",), committed=11)))) == {
        f"small{i}-1" for i in range(4)
    }


def test_no_more_give_way_than_the_job_needs() -> None:
    running = [trains(f"r{i}-1", gpus=2, committed=i + 1) for i in range(4)]
    assert set(victims(replace(URGENT, gpus_per_node=4), site(*running, nodes=1))) == {"r0-1", "r1-1"}


def test_a_gang_takes_whole_nodes_and_the_cheapest_of_them() -> None:
    running = [trains(f"r{i}-1", on=(f"a100-{i}",), committed=9 - i) for i in range(3)]
    assert set(victims(replace(URGENT, nodes=2), site(*running, nodes=3))) == {"r1-1", "r2-1"}


def test_a_gang_gives_way_as_a_whole() -> None:
    seen = site(trains("gang-1", on=("a100-0", "a100-1"), committed=1))
    assert victims(URGENT, seen) == {"gang-1": 16 * 60.0}


def test_nobody_gives_way_where_the_job_would_not_fit_on_any_node_after_it() -> None:
    held = [trains(f"held{i}-1", on=(f"a100-{i}",), gpus=4, interruptible=False) for i in range(2)]
    seen = site(*held, *(trains(f"r{i}-1", on=(f"a100-{i}",), gpus=4, committed=1) for i in range(2)))
    told = plan(URGENT, seen)
    assert (told.place, told.victims) == (None, ())
    nothing = "no place comes of it, nor of the end of all that may give way"
    assert told.spared["r0-1"] == f"{nothing}: it would lose 240 GPU-seconds"
    assert place(URGENT, seen, PREEMPTING).chosen is None


KEPT_OUT = {
    "gpu-model": (replace(URGENT, gpu_model="H100"), ()),
    "quota": (replace(URGENT, department="unheard-of"), ()),
    "price": (replace(URGENT, max_price_per_gpu_hour=Decimal(1)), ()),
    "cool-down": (URGENT, (cooling(),)),
}


@pytest.mark.parametrize(("job", "resting"), KEPT_OUT.values(), ids=KEPT_OUT)
def test_nobody_gives_way_to_a_job_that_something_else_keeps_out(job: JobSpec, resting: tuple[CoolDown, ...]) -> None:
    assert plan(job, site(trains("r-1", committed=1), nodes=1, cool_downs=resting)).victims == ()


SPARED: dict[str, tuple[dict[str, Any], str]] = {
    "same level": (
        {"priority": Priority.PRODUCTION_CORE},
        "production-core does not come after production-core",
    ),
    "not interruptible": ({"interruptible": False}, "it may not be interrupted (spot_ok is false)"),
    "just begun": (
        {"started_at": NOW - 9 * MINUTE},
        "it trains since 2026-01-05T11:51:00+00:00 and is left alone for 0:10:00 (preempt_after)",
    ),
    "not begun": ({"started_at": None}, "it does not train yet"),
    "moved for its deadline": (
        {"left_spot": True},
        "it was moved off spot for its deadline, to what nobody takes away",
    ),
    "on the move": ({"moving": True}, "it is being moved"),
    "uncarried": ({"lease_expires_at": NOW}, "nobody carries it now, so nobody would end it"),
}


@pytest.mark.parametrize(("fields", "reason"), SPARED.values(), ids=SPARED)
def test_who_does_not_give_way_is_told_with_the_reason(fields: dict[str, Any], reason: str) -> None:
    told = plan(URGENT, site(trains("r-1", committed=1, **fields), nodes=1))
    assert (told.victims, told.spared) == ((), {"r-1": reason})


@pytest.mark.parametrize("fields", [fields for fields, _ in SPARED.values()], ids=SPARED)
def test_who_would_not_be_asked_now_stays_though_it_was_to_give_way(fields: dict[str, Any]) -> None:
    seen = site(trains("r-1", committed=1, **fields), nodes=1)
    assert still_needed(URGENT, candidate(), ("r-1",), index(seen, PREEMPTING)) is None


def test_nobody_ends_who_was_to_give_way_once_the_policy_lets_nobody_or_the_job_fits() -> None:
    full, free = (site(trains("r-1", committed=1), nodes=nodes) for nodes in (1, 2))
    assert still_needed(URGENT, candidate(), ("r-1",), index(full, PREEMPTING)) == ("r-1",)
    assert still_needed(URGENT, candidate(), ("r-1",), index(full, placement_policy())) is None
    assert still_needed(URGENT, candidate(), ("r-1",), index(free, PREEMPTING)) == ()


def test_nobody_ends_so_that_the_job_may_borrow_once_it_is_to_end_for_it() -> None:
    """The room is another department's; within its own quota the job stays only if one of its own ends as well."""
    shares = {"lender": Decimal("0.5"), "borrower": Decimal("0.25"), "research": Decimal("0.25")}
    quotas = {name: QuotaShare(onprem=share, cloud=Decimal(0)) for name, share in shares.items()}
    lending = replace(PREEMPTING, borrowing=True, quotas=quotas)
    running = [trains("room-1", committed=1, department="borrower"), trains("own-1", on=("a100-1",), committed=1)]
    seen = site(*running, nodes=4)
    (state,) = seen.clusters
    seen = replace(seen, clusters=(replace(state, nodes=state.nodes[:2]),))
    job = replace(URGENT, spot_ok=True)
    asked = tuple(victims(job, seen, lending))
    assert asked == ("own-1",)
    assert still_needed(job, candidate(), ("room-1",), index(seen, lending)) is None
    assert still_needed(job, candidate(), ("room-1", "own-1"), index(seen, lending)) == ("own-1",)


def test_what_is_given_up_for_one_is_lent_no_more_to_the_next() -> None:
    """The borrower owns 16 of 32 GPUs and has 24; another one asks beside that to which 8 of them go already."""
    shares = {"first": Decimal("0.25"), "second": Decimal("0.25"), "borrower": Decimal("0.5")}
    quotas = {name: QuotaShare(onprem=share, cloud=Decimal(0)) for name, share in shares.items()}
    lending = replace(PREEMPTING, borrowing=True, quotas=quotas)
    running = [trains(f"b{i}-1", on=(f"a100-{i}",), committed=1 + i, department="borrower") for i in range(3)]
    held = trains("held-1", on=("a100-3",), department="nobody", interruptible=False)
    seen = site(*running, held, nodes=4)
    seen = replace(seen, reservations=tuple(one.promise for one in running))
    first = reservation(attempt="first-1", department="first", gpus_per_node=8, displaces=("b0-1",))
    then = replace(seen, reservations=(*seen.reservations, first))
    second = job_spec(department="second", gpus_per_node=8)
    assert set(victims(replace(second, department="first"), seen, lending)) == {"b0-1"}
    assert victims(second, then, lending) == {}
    assert victims(replace(second, priority=Priority.PRODUCTION_CORE), then, lending) == {"b1-1": 8 * 120.0}


def test_work_without_gpus_gives_none_back_however_many_its_department_borrows() -> None:
    quotas = {name: QuotaShare(onprem=Decimal("0.5"), cloud=Decimal(0)) for name in ("owner", "borrower")}
    lending = replace(PREEMPTING, borrowing=True, quotas=quotas)
    gpus = [trains(f"b{i}-1", on=(f"a100-{i}",), committed=1, department="borrower") for i in range(3)]
    whole = {"pool": "cpu", "cpu_millicores_per_node": 32_000}
    work = trains("cpu-1", on=("cpu-0",), gpus=0, committed=1, department="borrower", place=whole)
    pods = (*(pod for one in gpus for pod in one.pods), *(replace(pod, cpu_millicores=32_000) for pod in work.pods))
    cluster = onprem_cluster(pools=(node_pool(max_nodes=4), cpu_pool(max_nodes=1)))
    seen = replace(site(*gpus, work), clusters=(cluster_state(cluster, pods=pods),))
    job = job_spec(department="owner", gpus_per_node=0, cpu_cores=32.0)
    assert plan(job, seen, lending).spared["cpu-1"] == "research does not come after research"
    assert set(victims(replace(job, priority=Priority.PRODUCTION_CORE), seen, lending)) == {"cpu-1"}


def test_nobody_gives_way_to_a_job_of_lower_priority_however_little_it_lost() -> None:
    low = replace(URGENT, priority=Priority.EXPLORATION)
    assert plan(low, site(trains("r-1", committed=0), nodes=1)).victims == ()


def test_who_gives_way_to_one_gives_way_to_no_other() -> None:
    first = reservation(attempt="first-1", gpus_per_node=8, displaces=("r-1",))
    seen = site(trains("r-1", committed=1), nodes=1)
    told = plan(URGENT, replace(seen, reservations=(*seen.reservations, first)))
    assert (told.victims, told.spared) == ((), {"r-1": "it gives way to first-1 already"})


def one_of_two_nodes(*running: Trains) -> Snapshot:
    """On-premises with one node of the two that are declared, so that quotas leave more than is free."""
    seen = site(*running)
    (state,) = seen.clusters
    return replace(seen, clusters=(replace(state, nodes=state.nodes[:1]),))


def test_what_is_given_up_for_one_is_held_for_it_with_what_is_free_beside() -> None:
    leaves = trains("leaves-1", gpus=4, committed=1)
    claim = reservation(attempt="first-1", gpus_per_node=8, displaces=("leaves-1",))
    seen = one_of_two_nodes(leaves)
    assert place(job_spec(gpus_per_node=1), seen, placement_policy()).chosen is not None
    held = replace(seen, reservations=(*seen.reservations, claim))
    assert place(job_spec(gpus_per_node=1), held, placement_policy()).chosen is None
    smaller = replace(held, reservations=(*seen.reservations, replace(claim, gpus_per_node=6)))
    assert place(job_spec(gpus_per_node=2), smaller, placement_policy()).chosen == candidate()
    assert place(job_spec(gpus_per_node=3), smaller, placement_policy()).chosen is None
    gone = replace(smaller, clusters=one_of_two_nodes().clusters, reservations=smaller.reservations[1:])
    assert place(job_spec(gpus_per_node=2), gone, placement_policy()).chosen == candidate()
    assert place(job_spec(gpus_per_node=3), gone, placement_policy()).chosen is None


def test_nobody_is_asked_while_the_policy_does_not_say_so_or_a_place_is_free() -> None:
    full = site(trains("r-1", committed=1), nodes=1)
    assert place(URGENT, full, placement_policy()).preemption is None
    decision = place(URGENT, site(trains("r-1", committed=1), nodes=2), PREEMPTING)
    assert decision.preemption is None and decision.chosen == candidate()


def test_the_least_is_lost_over_all_places_before_the_better_one_is_taken() -> None:
    spot = {"cluster": "cloud", "pool": "h100", "billing": Billing.SPOT}
    here, there = trains("here-1", committed=5), trains("there-1", on=("h100-0",), committed=1, place=spot)
    cloud = cluster_state(cloud_cluster(pools=(cloud_pool(max_nodes=1),)), pods=there.pods)
    seen = site(here, nodes=1)
    both = replace(
        seen,
        clusters=(*seen.clusters, cloud),
        reservations=(here.promise, there.promise),
        open_attempts=(here.attempt, there.attempt),
    )
    assert victims(URGENT, both) == {"there-1": 8 * 60.0}
    alike = replace(both, open_attempts=(here.attempt, replace(there.attempt, committed_at=here.attempt.committed_at)))
    assert set(victims(URGENT, alike)) == {"here-1"}


PATIENT: dict[str, tuple[dict[str, Any], Schedule | None]] = {
    "off-peak": ({"off_peak_ok": True}, None),
    "deadline": (
        {"spot_ok": True},
        Schedule(began_at=NOW, deadline=NOW + 2880 * MINUTE, work=360 * MINUTE, done=0 * MINUTE, restart=MINUTE),
    ),
}


@pytest.mark.parametrize(("fields", "schedule"), PATIENT.values(), ids=PATIENT)
def test_nobody_gives_way_to_a_job_that_could_begin_now_and_waits_by_choice(
    fields: dict[str, Any], schedule: Schedule | None
) -> None:
    """It waits for the night, or for spot, while on-demand is free; once that is taken it has to wait."""
    night = {"begins": 1320 * MINUTE, "ends": 360 * MINUTE, "prices_per_hour": {Billing.ON_DEMAND: Decimal(1)}}
    bought = {"off_peak": OffPeak(time_zone="UTC", **night), "prices_per_gpu_hour": {Billing.ON_DEMAND: Decimal(8)}}
    spot = cloud_pool(name="spot", max_nodes=1, prices_per_gpu_hour={Billing.SPOT: Decimal(3)})
    cloud = cloud_cluster(pools=(cloud_pool(max_nodes=1, **bought), spot))
    there = [pod(name=f"foreign-{node}", gpus=8, node=node) for node in ("spot-0", "h100-0")]
    here = site(trains("r-1", committed=1), nodes=1, schedule=schedule)
    free, full = (
        replace(here, clusters=(*here.clusters, cluster_state(cloud, pods=pods))) for pods in (there[:1], there)
    )
    job = replace(URGENT, expected_duration=360 * MINUTE, **fields)
    waiting = place(job, free, PREEMPTING)
    assert (waiting.chosen, waiting.preemption, waiting.possible) == (None, None, True)
    assert choose(job, index(free, PREEMPTING)) == replace(waiting, verdicts=())
    assert victims(job, full, PREEMPTING) == {"r-1": 8 * 60.0}


def test_the_plan_is_told_and_rebuilt_from_what_is_stored() -> None:
    seen = site(trains("r-1", committed=1), trains("s-1", on=("a100-1",), committed=3))
    decision = place(URGENT, seen, PREEMPTING)
    assert headline(decision) == (
        "job 'urgent' at 2026-01-05T12:00:00+00:00: placed on onprem/a100/owned once r-1 gave way"
    )
    assert giving_way(decision) == [
        "r-1 gives way, which loses 480 GPU-seconds: research is below production-core, and it committed "
        "2026-01-05T11:59:00+00:00",
        "s-1 does not give way: its end is not needed: it would lose 1440 GPU-seconds",
    ]
    assert all(line in explanation(URGENT, seen, PREEMPTING, decision) for line in giving_way(decision))
    assert decision.verdicts[0].candidate == decision.chosen

    def again(value: Any) -> Any:
        return codec.decode(type(value), json.loads(json.dumps(codec.encode(value))))

    assert place(again(URGENT), again(seen), again(PREEMPTING)) == again(decision) == decision
    assert isinstance(again(decision), PlacementDecision)
