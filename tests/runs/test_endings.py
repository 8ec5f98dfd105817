"""How attempts end that nobody took the place of: by their own fault, or because a person said so."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta

import pytest

from spillway.errors import LaunchRefused, TrainingFailed
from spillway.model import AttemptState, JobSpec, Outcome
from spillway.testing.carried_run import Carried

MakeJob = Callable[..., JobSpec]
Carry = Callable[[JobSpec], Carried]


def test_a_program_error_fails_the_run_at_once_with_its_last_log_lines(start_run: Carry, make_job: MakeJob) -> None:
    run = start_run(make_job(command=("digits", "and", "more")))
    with pytest.raises(TrainingFailed, match="ended with exit code 1") as failure:
        run.result()
    assert "unknown program 'digits and more'" in str(failure.value).splitlines()[-1]
    (only,) = run.attempts
    assert (only.outcome, only.first_step) == (Outcome.FAILED, None)
    assert run.services.ledger.reservations() == ()
    assert run.services.ledger.cool_downs(run.services.clock()) == ()


def test_a_program_that_takes_too_much_memory_is_at_fault_itself(start_run: Carry, make_job: MakeJob) -> None:
    limits = {"resources": {"limits": {"memory": "24Mi"}}}
    overrides = {"spec": {"containers": [{"name": "trainer", **limits}]}}
    run = start_run(make_job(pod_overrides=overrides, memory_gib=0.01))
    with pytest.raises(TrainingFailed, match="exit code 137 \\(OOMKilled\\)"):
        run.result()
    assert [attempt.outcome for attempt in run.attempts] == [Outcome.FAILED]


def test_a_pod_that_a_person_deletes_ends_the_run_as_cancelled(start_run: Carry, make_job: MakeJob) -> None:
    run = start_run(make_job(steps=100_000, every=50_000, pace=0.1))
    first = run.running(1)
    run.services.site("onprem").client.stop(first.label, grace=timedelta(seconds=2))
    with pytest.raises(TrainingFailed, match=r"is cancelled: .* somebody deleted it"):
        run.result()
    (only,) = run.attempts
    assert only.outcome is Outcome.CANCELLED
    assert only.committed_step == only.last_step


def test_an_image_that_is_not_at_the_site_is_refused_before_any_pod(open_run: Carry, make_job: MakeJob) -> None:
    run = open_run(make_job())
    absent = "sha256:" + "0" * 64
    run.services.ledger.advance(run.place(), AttemptState.STAGED, image_digest=absent)
    with pytest.raises(LaunchRefused, match=f"{absent}' is not in"):
        run.advance()
    assert run.attempts[0].outcome is Outcome.FAILED
    assert run.services.ledger.reservations() == ()
    assert run.services.site("onprem").client.owned() == ()


def test_an_image_that_vanishes_behind_the_gate_fails_the_run_by_name(open_run: Carry, make_job: MakeJob) -> None:
    run = open_run(make_job())
    absent = "sha256:" + "0" * 64
    staged = run.services.ledger.advance(run.place(), AttemptState.STAGED, image_digest=absent)
    run.services.ledger.advance(staged, AttemptState.LAUNCHED)
    with pytest.raises(TrainingFailed, match=f"train@{absent}' cannot be pulled from registry"):
        run.start().result()
    assert [attempt.outcome for attempt in run.attempts] == [Outcome.FAILED]


def test_a_run_that_succeeded_stays_so_however_often_it_is_asked_for(start_run: Carry, make_job: MakeJob) -> None:
    run = start_run(make_job(steps=2))
    last = run.result()
    assert run.start().result() == last
    assert run.attempts == (last,)
    assert len(run.services.ledger.costs(run.run)) == 1
