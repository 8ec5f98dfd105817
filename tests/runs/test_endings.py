"""How attempts end that nobody took the place of: by their own fault, or because a person said so."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta

import pytest

from spillway.checkpoints.progress import read_progress
from spillway.errors import AccessDenied, LaunchRefused, TrainingFailed
from spillway.handover import OVER
from spillway.model import AttemptState, JobSpec, Outcome
from spillway.testing.carried_run import Carried
from spillway.testing.dying import DIED, Death, carry_until
from spillway.testing.images import put_image
from spillway.testing.polling import eventually
from spillway.testing.sandbox_server import Installation

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
    run.services.site("onprem").client.stop(first.label, grace=timedelta(seconds=60))
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
    assert run.services.site("onprem").client.owned(run.services.ledger.installation()) == ()


def test_an_image_that_is_not_what_its_tag_says_is_refused_before_any_pod(open_run: Carry, make_job: MakeJob) -> None:
    run = open_run(make_job(image="train:torch2.0-cuda11.8"))
    registry = run.services.site("onprem").registry
    image = put_image(registry, "train", "torch2.0-cuda11.8", labels={"dev.spillway.cuda": "12.1"})
    run.services.ledger.advance(run.place(), AttemptState.STAGED, image_digest=image.digest)
    with pytest.raises(LaunchRefused, match=r"not what its tag says: cuda is 12.1, the tag says 11.8"):
        run.advance()
    assert run.attempts[0].outcome is Outcome.FAILED
    assert run.services.site("onprem").client.owned(run.services.ledger.installation()) == ()


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


def test_an_attempt_that_cannot_go_on_asks_the_pod_to_end_that_it_has_unknowingly_and_pays_for_it(
    installation: Installation, open_run: Carry, make_job: MakeJob
) -> None:
    run = open_run(make_job(steps=100_000, every=50_000, pace=0.1))
    death = Death(change="amend:pod_uid", done=False)
    assert carry_until(death, config=installation.config, connections=installation.connections, run=run.run) == DIED
    attempt, site = run.attempts[0], run.services.site("onprem")
    assert (attempt.state, attempt.pod_uid) == (AttemptState.LAUNCHED, None)
    eventually(lambda: read_progress(site.checkpoints, run.run, 1), seconds=120)
    pod = site.client.state(attempt.label)
    installation.connection("onprem_store", password="wrong")
    run.services.forget("onprem")

    with pytest.raises(AccessDenied, match=r"onprem.* refused the credentials") as problem:
        run.advance()

    settled = run.attempts[0]
    assert (settled.outcome, settled.reason) == (Outcome.FAILED, str(problem.value))
    (cost,) = run.services.ledger.costs(run.run)
    assert (cost.pod_uid, cost.started_at) == (pod.uid, pod.started_at)
    assert f"pod {pod.name} at onprem is asked to end: {problem.value}" in run.said
    eventually(lambda: site.client.state(pod.name).phase in OVER, seconds=120)
