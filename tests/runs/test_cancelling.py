"""Runs that a person ends."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from spillway.errors import RunCancelled, TrainingFailed
from spillway.model import Attempt, AttemptState, Cluster, CoolDown, JobSpec, Outcome, PodPhase, PodState, VerdictKind
from spillway.runs.cancelling import cancel, cancel_run
from spillway.runs.engine import Waiting, Watching
from spillway.runs.services import Services, Site
from spillway.runs.settling import Ended, settle
from spillway.runs.sweeping import sweep
from spillway.testing.carried_run import Carried
from spillway.testing.polling import eventually
from spillway.testing.sandbox_server import Installation

MakeJob = Callable[..., JobSpec]
Carry = Callable[[JobSpec], Carried]

ENDLESS: dict[str, Any] = {"steps": 100_000, "every": 50_000, "pace": 0.1}


def test_a_cancelled_run_keeps_its_last_checkpoint_and_holds_nothing(start_run: Carry, make_job: MakeJob) -> None:
    run = start_run(make_job(**ENDLESS, grace=timedelta(seconds=20)))
    first = run.running(1)
    settled = cancel(run.services, run.run, "nobody needs it", run.said.append)
    assert settled is not None
    assert (settled.state, settled.outcome) == (AttemptState.SETTLED, Outcome.CANCELLED)
    assert settled.committed_step == settled.last_step == run.committed("onprem")[-1]
    assert run.services.ledger.reservations() == ()
    assert [cost.attempt for cost in run.services.ledger.costs(run.run)] == [first.label]
    with pytest.raises(TrainingFailed, match="is cancelled"):
        run.result()
    assert len(run.attempts) == 1
    assert cancel(run.services, run.run, "again", run.said.append) is None


def test_a_run_started_again_waits_for_its_old_pod_and_resumes_from_what_that_flushed(
    open_run: Carry, make_job: MakeJob
) -> None:
    run = open_run(make_job(**ENDLESS, grace=timedelta(seconds=20)))
    first = run.launched()
    settle(run.services, first, Ended(kind=VerdictKind.DELETED_BY_PERSON, reason="cleared"))
    step = run.advance(restart=True)
    assert isinstance(step, Watching)
    flushed = run.committed("onprem")[-1]
    assert step.attempt.number == 2
    assert step.attempt.resumed_from_step == flushed
    assert f"pod {first.label} of an earlier attempt still runs at onprem; waiting for it to end" in run.said
    ended = run.services.site("onprem").client.state(first.label)
    assert ended.phase in {PodPhase.FAILED, PodPhase.GONE}
    run.start()
    assert run.running(2).node is not None
    assert eventually(lambda: run.attempts[1].first_step) == flushed + 1
    assert run.losses("onprem")[-1][0] == flushed


def test_a_run_that_succeeded_unseen_is_not_cancelled_any_more(open_run: Carry, make_job: MakeJob) -> None:
    run = open_run(make_job(steps=2))
    step = run.advance()
    assert isinstance(step, Watching)
    ended = eventually(lambda: run.services.pod(step.attempt), lambda pod: pod.phase is PodPhase.SUCCEEDED, seconds=120)
    settled = cancel(run.services, run.run, "nobody needs it", run.said.append)
    assert settled is not None
    assert (settled.outcome, settled.last_step, settled.ended_at) == (Outcome.SUCCEEDED, 2, ended.finished_at)


class FinishesWhenAsked:
    """A cluster whose pod does the last step of its training while it is asked to end."""

    def __init__(self, attempt: Attempt) -> None:
        self.pod = PodState(
            name=attempt.label, phase=PodPhase.RUNNING, uid="u-1", node="onprem-1", started_at=datetime.now(UTC)
        )

    def state(self, pod_name: str, *, last_node: str | None = None) -> PodState:
        return self.pod

    def stop(self, pod_name: str, *, grace: timedelta) -> None:
        self.pod = replace(self.pod, phase=PodPhase.SUCCEEDED, exit_code=0, finished_at=datetime.now(UTC))


def test_a_run_that_succeeds_while_it_is_cancelled_has_succeeded(open_run: Carry, make_job: MakeJob) -> None:
    run = open_run(make_job())
    staged = run.services.ledger.advance(run.place(), AttemptState.STAGED)
    cluster = FinishesWhenAsked(run.services.ledger.advance(staged, AttemptState.LAUNCHED, pod_uid="u-1"))

    def open_site(declared: Cluster) -> Site:
        return replace(run.services.open_site(declared), client=cluster)  # type: ignore[arg-type]

    services = replace(run.services, open_site=open_site, _opened={})
    settled = cancel(services, run.run, "nobody needs it", run.said.append)
    assert settled is not None
    assert (settled.outcome, settled.ended_at) == (Outcome.SUCCEEDED, cluster.pod.finished_at)


def test_a_loss_that_is_told_after_the_end_of_an_attempt_changes_nothing(open_run: Carry, make_job: MakeJob) -> None:
    run = open_run(make_job())
    attempt = run.place()
    settled = cancel(run.services, run.run, "nobody needs it", run.said.append)
    assert settle(run.services, attempt, Ended(kind=VerdictKind.LOST_NODE, reason="lost")) == settled
    assert run.services.ledger.cool_downs(run.services.clock()) == ()


def without_room(services: Services) -> None:
    until = services.clock() + timedelta(hours=1)
    for cluster in services.configuration.clusters:
        services.ledger.cool_down(CoolDown(cluster=cluster, pool="gpu", until=until, reason="the test wants it"))


def test_a_run_that_waits_for_a_place_ends_with_the_reason_and_waits_again_for_who_asks_anew(
    open_run: Carry, make_job: MakeJob
) -> None:
    run = open_run(make_job())
    without_room(run.services)
    run.start()
    eventually(lambda: "waits, nothing fits now" in run.story, seconds=60)
    cancel_run(run.services, run.run, "nobody needs it", run.said.append)
    with pytest.raises(RunCancelled, match="nobody needs it"):
        run.result()
    with pytest.raises(RunCancelled, match="nobody needs it"):
        run.advance()
    run.problem = None
    run.said.clear()
    run.start()
    eventually(lambda: "waits, nothing fits now" in run.story, seconds=60)
    assert isinstance(run.advance(), Waiting)


def test_a_run_that_loses_its_place_while_it_is_cancelled_goes_on_nowhere(open_run: Carry, make_job: MakeJob) -> None:
    run = open_run(make_job())
    first = run.place()
    run.services.ledger.cancel_run(run.run, "nobody needs it", run.services.clock())
    settle(run.services, first, Ended(kind=VerdictKind.LOST_NODE, reason="its node was lost"))
    with pytest.raises(RunCancelled, match="nobody needs it"):
        run.advance()
    assert len(run.attempts) == 1


@pytest.mark.slow
def test_a_run_whose_cluster_is_down_is_cancelled_and_its_pod_is_swept_later(
    installation: Installation, open_run: Carry, make_job: MakeJob
) -> None:
    run = open_run(make_job(**ENDLESS, grace=timedelta(seconds=2)))
    first = run.launched()
    with installation.taken("onprem-kube-api"):
        settled = cancel(run.services, run.run, "cancelled in the dark", run.said.append)
        assert settled is not None and settled.outcome is Outcome.CANCELLED
    eventually(lambda: sweep(run.services, lambda origin: True, run.said.append), seconds=60)
    client = run.services.site("onprem").client
    eventually(lambda: client.state(first.label).phase, lambda phase: phase in {PodPhase.FAILED, PodPhase.GONE})
