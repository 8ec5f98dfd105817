"""What a move is thought to take while the run has not shown it yet: what its job says of its checkpoints."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from spillway.checkpoints.progress import Progress, write_progress
from spillway.checkpoints.replicate import missing_bytes, replicate
from spillway.errors import MoveRefused
from spillway.lines import GIBIBYTE, bytes_per_second, link_between
from spillway.migration import Advice, MoveAdvice
from spillway.model import JobSpec
from spillway.runs.move_plan import MovePlan, move_plan, take_advice
from spillway.testing.carried_run import Carried
from spillway.testing.standing_run import standing

MakeJob = Callable[..., JobSpec]
Carry = Callable[[JobSpec], Carried]


def planned(run: Carried, *committed: int, slowest_commit_seconds: float | None = None) -> MovePlan:
    """At step 4, ten seconds a step."""
    attempt = standing(run, committed)
    now = run.services.clock()
    run.services.ledger.amend(attempt, started_at=now - timedelta(seconds=40))
    progress = Progress(
        first_step=1,
        step=4,
        total_steps=1_000_000,
        loss=None,
        at=now.isoformat(),
        durable_step=max(committed, default=None),
        slowest_commit_seconds=slowest_commit_seconds,
    )
    write_progress(run.checkpoints("onprem").store, run.run, 1, progress)
    return move_plan(run.services, run.run, "cloud")


@pytest.mark.parametrize("said", [2.5, None])
def test_the_last_checkpoint_of_a_run_that_has_committed_none_is_as_large_as_its_job_says(
    open_run: Carry, make_job: MakeJob, said: float | None
) -> None:
    run = open_run(make_job(checkpoint_gib=said))
    plan = planned(run)
    services = run.services
    rate = bytes_per_second(
        link_between(services.cluster("onprem"), services.cluster("cloud")), services.ledger.link_rates()
    )
    assert rate is not None
    expected = None if said is None else timedelta(seconds=said * GIBIBYTE / rate)
    assert plan.estimate.pause["last_checkpoint"] == expected
    assert plan.estimate.beforehand["checkpoints"] == timedelta(), "none is there that would have to be brought"


@pytest.mark.parametrize(
    ("job", "committed", "advice"),
    [
        ({"checkpoint_interval": timedelta(seconds=30)}, (1,), Advice.MOVE),
        ({"checkpoint_interval": timedelta(seconds=40)}, (1,), Advice.WAIT),
        ({"checkpoint_interval": timedelta(hours=1)}, (1,), Advice.MOVE),
        ({}, (1,), Advice.MOVE),
        ({"checkpoint_interval": timedelta(hours=1)}, (1, 2), Advice.WAIT),
    ],
    ids=["passed without a commit", "one step away", "far away", "unknown", "measured"],
)
def test_the_next_checkpoint_is_waited_for_when_the_job_says_that_it_is_near(
    open_run: Carry, make_job: MakeJob, job: dict[str, Any], committed: tuple[int, ...], advice: Advice
) -> None:
    run = open_run(make_job(**job))
    plan = planned(run, *committed, slowest_commit_seconds=10_000.0)
    assert plan.advice.advice is advice
    waits = timedelta(minutes=1) if advice is Advice.WAIT else timedelta()
    assert take_advice(plan) == waits, "twice the ten seconds to the next one are less"


def test_a_run_stays_where_its_order_is_only_to_be_carried_out_as_advised_and_the_move_does_not_pay(
    open_run: Carry, make_job: MakeJob
) -> None:
    plan = planned(open_run(make_job()), 1, 2)
    stays = replace(plan, advice=MoveAdvice(advice=Advice.STAY, reason="the move costs 3.00 more than it saves"))
    with pytest.raises(MoveRefused, match=r"stays at onprem/gpu/owned, for the move costs 3\.00 more than it saves"):
        take_advice(stays)


def test_all_steps_that_the_target_lacks_are_to_be_brought_and_each_part_once(
    open_run: Carry, make_job: MakeJob
) -> None:
    run = open_run(make_job())
    plan = planned(run, 1, 2, 3)
    sizes = [manifest.size_bytes for manifest in run.checkpoints("onprem").manifests()]
    lacking = missing_bytes(run.checkpoints("onprem"), run.checkpoints("cloud"))
    assert max(sizes) < lacking <= sum(sizes)
    report = replicate(run.checkpoints("onprem"), run.checkpoints("cloud"))
    assert (report.steps_copied, report.bytes_copied) == (3, lacking)
    assert missing_bytes(run.checkpoints("onprem"), run.checkpoints("cloud")) == 0
    rate = bytes_per_second(
        link_between(run.services.cluster("onprem"), run.services.cluster("cloud")), run.services.ledger.link_rates()
    )
    assert plan.estimate.beforehand["checkpoints"] == timedelta(seconds=lacking / rate)
