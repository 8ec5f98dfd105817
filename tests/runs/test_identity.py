"""Names of runs: the same for the same work, a new one when it is asked for anew."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import pytest

from spillway.errors import CapacityNever, ConfigError, RunCancelled
from spillway.model import Attempt, JobSpec, Outcome, Priority, VerdictKind
from spillway.runs.engine import place_run
from spillway.runs.identity import open_generation, run_base
from spillway.runs.services import Services
from spillway.runs.settling import Ended, settle

MakeJob = Callable[..., JobSpec]
ORIGIN: Mapping[str, Any] = {"dag_id": "train", "run_id": "manual__1", "task_id": "place", "map_index": -1}
OURS = "0f6d1f0e-6f0e-4b58-8f4b-3a2f3c1f6a10"


def end(services: Services, run: str, job: JobSpec, kind: VerdictKind) -> None:
    attempt = place_run(services, run, job, print)
    settle(services, attempt, Ended(kind=kind, reason="as the test wants it"))  # type: ignore[arg-type]


@pytest.mark.parametrize("name", ["digits", "a" * 60, "x" * 23 + "-y"], ids=["short", "long", "hyphen-at-the-cut"])
def test_the_base_of_a_run_leaves_room_in_a_dns_label(name: str) -> None:
    base = run_base(name, ORIGIN, OURS)
    assert len(f"{base}-9999-9999") <= 63
    assert "--" not in base


def test_every_part_of_the_origin_and_the_installation_counts_and_its_order_does_not() -> None:
    same = run_base("digits", dict(reversed(list(ORIGIN.items()))), OURS)
    assert same == run_base("digits", ORIGIN, OURS)
    others = {run_base("digits", {**ORIGIN, key: "other"}, OURS) for key in ORIGIN}
    others.add(run_base("digits", ORIGIN, "theirs"))
    assert len(others | {same}) == len(ORIGIN) + 2


def test_the_kind_of_dag_run_does_not_count_for_the_name() -> None:
    kinds = [{"run_type": "scheduled"}, {"run_type": "backfill"}, {}]
    assert len({run_base("digits", {**ORIGIN, **kind}, OURS) for kind in kinds}) == 1


def test_asking_again_while_the_run_is_open_gives_the_same_run(services: Services, make_job: MakeJob) -> None:
    job = make_job()
    first = open_generation(services, job, ORIGIN)
    assert first == f"{run_base('digits', ORIGIN, services.ledger.installation())}-1"
    assert open_generation(services, job, ORIGIN) == first
    place_run(services, first, job, print)
    assert open_generation(services, job, ORIGIN) == first


@pytest.mark.parametrize(
    ("kind", "generation"),
    [
        (VerdictKind.LOST_NODE, 1),
        (VerdictKind.MIGRATED, 1),
        (VerdictKind.SUCCEEDED, 2),
        (VerdictKind.PROGRAM_ERROR, 2),
        (VerdictKind.DELETED_BY_PERSON, 2),
    ],
)
def test_a_run_that_is_over_is_followed_by_the_next_generation(
    services: Services, make_job: MakeJob, kind: VerdictKind, generation: int
) -> None:
    job = make_job()
    end(services, open_generation(services, job, ORIGIN), job, kind)
    base = run_base("digits", ORIGIN, services.ledger.installation())
    assert open_generation(services, job, ORIGIN) == f"{base}-{generation}"


@pytest.mark.parametrize("lost", [False, True], ids=["never placed", "between two attempts"])
def test_a_run_that_was_cancelled_while_it_waited_is_over_for_whoever_did_not_wait_with_it(
    services: Services, make_job: MakeJob, lost: bool
) -> None:
    job = make_job()
    run = open_generation(services, job, ORIGIN)
    if lost:
        end(services, run, job, VerdictKind.LOST_NODE)
    services.ledger.cancel_run(run, "nobody needs it", services.clock())
    with pytest.raises(RunCancelled, match="nobody needs it"):
        open_generation(services, job, ORIGIN, waited_for=run)
    assert open_generation(services, job, ORIGIN) == f"{run.rpartition('-')[0]}-2"


def test_a_corrected_job_file_goes_on_where_the_first_one_never_had_a_place(
    services: Services, make_job: MakeJob
) -> None:
    never, corrected = make_job(gpus_per_node=999), make_job()
    run = open_generation(services, never, ORIGIN)
    with pytest.raises(CapacityNever):
        place_run(services, run, never, print)
    assert open_generation(services, corrected, ORIGIN) == run
    placed = place_run(services, run, corrected, print)
    assert isinstance(placed, Attempt)
    assert placed.job == corrected


@pytest.mark.parametrize("committed", [None, 40])
def test_another_job_is_a_new_run_only_where_the_lost_attempts_committed_nothing(
    services: Services, make_job: MakeJob, committed: int | None
) -> None:
    first, corrected = make_job(), make_job(steps=7)
    run = open_generation(services, first, ORIGIN)
    lost = place_run(services, run, first, print)
    assert isinstance(lost, Attempt)
    services.ledger.settle(lost, Outcome.PREEMPTED, "lost its node", services.clock(), committed_step=committed)
    if committed is None:
        assert open_generation(services, corrected, ORIGIN) == f"{run.removesuffix('-1')}-2"
    else:
        with pytest.raises(ConfigError, match="runs start` it with another --name"):
            open_generation(services, corrected, ORIGIN)
    assert open_generation(services, first, ORIGIN) == run


def test_the_job_of_a_backfill_has_the_lowest_priority_in_every_generation(
    services: Services, make_job: MakeJob
) -> None:
    job, origin = make_job(priority=Priority.PRODUCTION_CORE), {**ORIGIN, "run_type": "backfill"}
    lowest = replace(job, priority=Priority.EXPLORATION)
    run = open_generation(services, job, origin)
    assert (services.ledger.job(run), services.ledger.origin(run)) == (lowest, origin)
    end(services, run, lowest, VerdictKind.SUCCEEDED)
    second = open_generation(services, job, origin)
    assert (second, services.ledger.job(second)) == (f"{run.removesuffix('-1')}-2", lowest)


def test_a_run_that_a_schedule_began_goes_on_as_it_was_where_a_backfill_repeats_its_dag_run(
    services: Services, make_job: MakeJob
) -> None:
    job = make_job(priority=Priority.PRODUCTION_CORE)
    scheduled, repeated = ({**ORIGIN, "run_type": kind} for kind in ("scheduled", "backfill"))
    run = open_generation(services, job, scheduled)
    lost = place_run(services, run, job, print)
    assert isinstance(lost, Attempt)
    services.ledger.settle(lost, Outcome.PREEMPTED, "lost its node", services.clock(), committed_step=40)
    assert open_generation(services, job, repeated) == run
    assert (services.ledger.job(run), services.ledger.origin(run)) == (job, scheduled)
