"""What a pod is booked at, and for whom."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from decimal import Decimal

import pytest

from spillway.checkpoints.progress import Progress, write_progress
from spillway.checkpoints.store import CheckpointStore
from spillway.model import AttemptState, Billing, Candidate, DatasetUse, JobSpec, OffPeak, PodPhase, PodState, Tier
from spillway.runs.settling import book_cost, note_start, settle_over
from spillway.testing.builders import dataset
from spillway.testing.carried_run import Carried
from spillway.testing.checkpoints import commit_step

MakeJob = Callable[..., JobSpec]
Carry = Callable[[JobSpec], Carried]
MINUTE = timedelta(minutes=1)


def test_a_pod_costs_what_it_did_when_it_was_placed_whatever_is_declared_when_it_ends(
    open_run: Carry, make_job: MakeJob
) -> None:
    run = open_run(make_job(steps=2, business_scene="search"))
    first, declared = run.place(), run.services.configuration
    free = {
        name: replace(cluster, pools=tuple(replace(pool, prices_per_gpu_hour={}) for pool in cluster.pools))
        for name, cluster in declared.clusters.items()
    }
    run.services = replace(run.services, configuration=replace(declared, clusters=free))
    run.start().result()
    (cost,) = run.services.ledger.costs(run.run)
    assert (cost.price_per_gpu_hour, cost.pool) == (first.price_per_gpu_hour, first.candidate.pool)
    assert (cost.business_scene, cost.reserved_at) == ("search", first.reserved_at)


@pytest.mark.parametrize(("later", "price"), [(30 * MINUTE, 1), (90 * MINUTE, 2)], ids=["in the hours", "after them"])
def test_an_hour_costs_what_it_does_when_the_pod_starts_and_not_when_its_place_was_reserved(
    open_run: Carry, make_job: MakeJob, later: timedelta, price: int
) -> None:
    """The off-peak hours are two, and all of the one that it takes has to lie in them."""
    run = open_run(make_job(expected_duration=60 * MINUTE))
    declared, now = run.services.configuration, run.services.clock()
    begins = timedelta(hours=now.hour, minutes=now.minute)
    ends = (begins + 120 * MINUTE) % timedelta(days=1)
    hours = OffPeak(begins=begins, ends=ends, time_zone="UTC", prices_per_hour={Billing.OWNED: Decimal(1)})
    prices = {Billing.OWNED: Decimal(2)}
    clusters = {
        name: replace(
            cluster, pools=tuple(replace(p, prices_per_gpu_hour=prices, off_peak=hours) for p in cluster.pools)
        )
        for name, cluster in declared.clusters.items()
    }
    run.services = replace(run.services, configuration=replace(declared, clusters=clusters))
    attempt, ledger = run.place(), run.services.ledger
    for state in (AttemptState.STAGED, AttemptState.LAUNCHED):
        attempt = ledger.advance(attempt, state)
    pod = PodState(name=attempt.label, phase=PodPhase.RUNNING, uid="u-1", started_at=now + later)
    run.services = replace(run.services, configuration=declared)
    assert note_start(run.services, attempt, pod).price_per_gpu_hour == price


def test_how_busy_the_gpus_of_a_job_were_that_reads_core_data_over_the_link_is_told_at_the_home_of_its_data(
    open_run: Carry, make_job: MakeJob
) -> None:
    run = open_run(make_job())
    declared = run.services.configuration
    vault = dataset(name="vault", tier=Tier.CORE, remote_read="onprem_store_remote")
    configuration = replace(declared, datasets={**declared.datasets, "vault": vault})
    run.services = replace(run.services, configuration=configuration)
    attempt = run.place()
    away = Candidate(cluster="cloud", pool="h100", billing=Billing.SPOT)
    job = replace(attempt.job, datasets=(DatasetUse(name="vault"),), tier=Tier.CORE)
    store = run.checkpoints("onprem")
    store.fence(attempt.number)
    commit_step(store, 1, metrics={"gpu_utilisation": 0.5})
    started = replace(attempt, candidate=away, job=job, pod_uid="uid", started_at=attempt.reserved_at)

    booked = book_cost(run.services, started, attempt.reserved_at + 60 * MINUTE)

    assert booked is not None
    assert (booked.cluster, booked.utilisation) == ("cloud", Decimal("0.5"))


@pytest.mark.parametrize("told", [True, False], ids=["it told when it began", "its trainer is older"])
def test_a_pod_that_came_and_went_while_nobody_looked_is_billed_from_its_trainers_first_word_to_its_last(
    open_run: Carry, make_job: MakeJob, told: bool
) -> None:
    run = open_run(make_job())
    ledger, attempt = run.services.ledger, run.place()
    for state in (AttemptState.STAGED, AttemptState.LAUNCHED):
        attempt = ledger.advance(attempt, state)
    attempt = ledger.amend(attempt, pod_uid="u-1")
    began, last = attempt.reserved_at + MINUTE, attempt.reserved_at + 180 * MINUTE
    word = Progress(first_step=1, step=900, total_steps=1000, loss=None, at=last.isoformat())
    if told:
        word = replace(word, began_at=began.isoformat())
    write_progress(run.services.checkpoints(attempt), run.run, 1, word)
    found = replace(run.services, clock=lambda: last + 600 * MINUTE)

    settled = settle_over(found, attempt, PodState(name=attempt.label, phase=PodPhase.GONE))

    assert settled is not None
    assert [(cost.started_at, cost.ended_at) for cost in ledger.costs(run.run)] == ([(began, last)] if told else [])
    assert ("its pod is NOT billed" in str(settled.reason)) is not told


@pytest.mark.parametrize(
    ("told", "utilisation"),
    [(0.25, Decimal("0.25")), (1, Decimal(1)), (None, None), (7.5, None), ("busy", None), (True, None)],
    ids=str,
)
def test_how_busy_its_gpus_were_is_what_its_newest_checkpoint_tells(
    open_run: Carry, make_job: MakeJob, told: object, utilisation: Decimal | None
) -> None:
    run = open_run(make_job())
    attempt = run.place()
    store = CheckpointStore(run.services.site(attempt.candidate.cluster).checkpoints, run.run)
    store.fence(attempt.number)
    commit_step(store, 1, metrics={"gpu_utilisation": 0.9})
    commit_step(store, 2, metrics={} if told is None else {"gpu_utilisation": told})
    started = replace(attempt, pod_uid="uid", started_at=attempt.reserved_at)
    booked = book_cost(run.services, started, attempt.reserved_at + timedelta(hours=1))
    assert booked is not None
    assert booked.utilisation == utilisation
