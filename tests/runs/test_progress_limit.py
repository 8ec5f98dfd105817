"""Runs that are lost again and again, and how far that may go."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta

import pytest

from spillway.errors import NoProgress
from spillway.losses import VerdictKind
from spillway.model import Attempt, JobSpec, Outcome
from spillway.runs.engine import Waiting, Watching
from spillway.runs.settling import Ended, settle
from spillway.testing.carried_run import Carried

MakeJob = Callable[..., JobSpec]
Carry = Callable[[JobSpec], Carried]

KINDS = (VerdictKind.LOST_NODE, VerdictKind.PREEMPTED, VerdictKind.START_TIMEOUT)


def without_cool_downs(run: Carried) -> Carried:
    configuration = run.services.configuration
    runs = replace(configuration.runs, cool_down=timedelta(0))
    run.services = replace(run.services, configuration=replace(configuration, runs=runs))
    return run


def lose(run: Carried, kind: VerdictKind, *, committed: int | None = None) -> Attempt:
    """One more attempt, lost before or after it committed a step."""
    attempt = run.place()
    if committed is not None:
        run.services.ledger.amend(attempt, committed_step=committed)
    return settle(run.services, attempt, Ended(kind=kind, reason=f"{kind} on purpose"))


def test_three_attempts_in_a_row_without_a_new_step_end_the_run_whatever_the_reasons(
    open_run: Carry, make_job: MakeJob
) -> None:
    run = without_cool_downs(open_run(make_job()))
    lost = [lose(run, kind) for kind in KINDS]
    assert [attempt.outcome for attempt in lost] == [Outcome.PREEMPTED] * 3
    with pytest.raises(NoProgress, match="3 attempts in a row committed no new step: attempt 1 on onprem/gpu") as over:
        run.advance()
    for kind in KINDS:
        assert f"{kind} on purpose" in str(over.value)
    assert len(run.attempts) == 3
    assert run.services.ledger.reservations() == ()


def test_a_committed_step_begins_a_new_count(open_run: Carry, make_job: MakeJob) -> None:
    run = without_cool_downs(open_run(make_job()))
    lose(run, VerdictKind.LOST_NODE)
    lose(run, VerdictKind.LOST_NODE, committed=2)
    lose(run, VerdictKind.LOST_NODE)
    lose(run, VerdictKind.LOST_NODE)
    run.place()
    settle(run.services, run.attempts[-1], Ended(kind=VerdictKind.LOST_NODE, reason="the third"))
    with pytest.raises(NoProgress):
        run.advance()


def test_whoever_asks_for_the_run_anew_gets_another_attempt(open_run: Carry, make_job: MakeJob) -> None:
    run = without_cool_downs(open_run(make_job()))
    for kind in KINDS:
        lose(run, kind)
    step = run.advance(restart=True)
    assert isinstance(step, Watching)
    assert step.attempt.number == 4


def test_a_place_that_lost_a_pod_rests(open_run: Carry, make_job: MakeJob) -> None:
    run = open_run(make_job())
    first = lose(run, VerdictKind.LOST_NODE)
    second = lose(run, VerdictKind.PREEMPTED)
    assert (first.candidate.cluster, second.candidate.cluster) == ("onprem", "cloud")
    step = run.advance()
    assert isinstance(step, Waiting)
    assert {rejection.rule for verdict in step.decision.verdicts for rejection in verdict.rejections} >= {"cool-down"}
