"""Runs that are lost again and again, and how far that may go."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta

import pytest

from spillway.errors import NoProgress
from spillway.model import Attempt, AttemptState, JobSpec, Outcome, VerdictKind
from spillway.runs.admission import expire_leases, snapshot
from spillway.runs.engine import Waiting, Watching, advance, settled_attempts
from spillway.runs.explaining import newest
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


TO_LAUNCHED = (AttemptState.STAGED, AttemptState.LAUNCHED)


def abandon(run: Carried, *states: AttemptState) -> Attempt:
    """One more attempt whose owner went away before there was a pod, after it had moved it on to the states."""
    attempt = run.place()
    for state in states:
        attempt = run.services.ledger.advance(attempt, state)
    later = replace(run.services, clock=lambda: attempt.lease_expires_at + timedelta(seconds=1))
    (expired,) = expire_leases(later, snapshot(later))
    return expired


@pytest.mark.parametrize("states", [(), TO_LAUNCHED], ids=["reserved", "launched"])
def test_a_reservation_that_nobody_came_to_use_is_no_attempt_without_progress(
    open_run: Carry, make_job: MakeJob, states: tuple[AttemptState, ...]
) -> None:
    run = without_cool_downs(open_run(make_job()))
    assert [abandon(run, *states).outcome for _ in range(4)] == [Outcome.PREEMPTED] * 4
    step = run.advance()
    assert isinstance(step, Watching)
    assert step.attempt.number == 5


def test_launches_that_never_get_as_far_as_a_pod_end_the_run_also_between_reservations_that_nobody_used(
    open_run: Carry, make_job: MakeJob
) -> None:
    run = without_cool_downs(open_run(make_job()))
    for kind in KINDS:
        assert lose(run, kind).pod_uid is None
        abandon(run)
    with pytest.raises(NoProgress, match=r"3 attempts in a row .*: attempt 1 on .*; attempt 3 on .*; attempt 5 on"):
        run.advance()


def test_whoever_asks_for_the_run_anew_gets_another_attempt(open_run: Carry, make_job: MakeJob) -> None:
    run = without_cool_downs(open_run(make_job()))
    for kind in KINDS:
        lose(run, kind)
    step = run.advance(restart=True)
    assert isinstance(step, Watching)
    assert step.attempt.number == 4


def test_whoever_asks_for_the_run_anew_begins_a_new_count(open_run: Carry, make_job: MakeJob) -> None:
    run = without_cool_downs(open_run(make_job()))
    for kind in KINDS:
        lose(run, kind)
    asked_after = settled_attempts(run.services, run.run)
    for kind in KINDS[1:]:
        lose(run, kind)

    step = advance(run.services, run.run, run.job, run.said.append, asked_after=asked_after)

    assert isinstance(step, Watching)
    assert step.attempt.number == 6
    settle(run.services, step.attempt, Ended(kind=VerdictKind.LOST_NODE, reason="the third after it was asked for"))
    with pytest.raises(
        NoProgress, match=r"3 attempts in a row .*: attempt 4 on .* start the run again or clear its task"
    ):
        advance(run.services, run.run, run.job, run.said.append, asked_after=asked_after)
    assert asked_after == 3


def test_a_place_that_lost_a_pod_rests(open_run: Carry, make_job: MakeJob) -> None:
    run = open_run(make_job())
    first = lose(run, VerdictKind.LOST_NODE)
    second = lose(run, VerdictKind.PREEMPTED)
    assert (first.candidate.cluster, second.candidate.cluster) == ("onprem", "cloud")
    assert isinstance(run.advance(), Waiting)
    table = newest(run.services.ledger, run.run).decision
    assert {rejection.rule for verdict in table.verdicts for rejection in verdict.rejections} >= {"cool-down"}
