"""Runs that a person ends, and pods that nobody looks after."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from spillway.checkpoints.progress import read_progress
from spillway.clouds.pod import build_pod
from spillway.errors import LaunchRefused, TrainingFailed
from spillway.losses import VerdictKind
from spillway.model import Attempt, AttemptState, JobSpec, Outcome, PodPhase
from spillway.runs.cancelling import Swept, cancel, sweep
from spillway.runs.engine import Watching
from spillway.runs.predecessors import await_predecessors
from spillway.runs.services import Services
from spillway.runs.settling import Ended, settle
from spillway.testing.carried_run import Carried
from spillway.testing.polling import eventually
from spillway.testing.sandbox_server import Installation

MakeJob = Callable[..., JobSpec]
Carry = Callable[[JobSpec], Carried]

ENDLESS: dict[str, Any] = {"steps": 100_000, "every": 50_000, "pace": 0.1}


def nobody(origin: Mapping[str, Any]) -> bool:
    return False


def somebody(origin: Mapping[str, Any]) -> bool:
    return True


def launched(run: Carried) -> Attempt:
    """The run's attempt, whose pod has done its first step."""
    step = run.advance()
    assert isinstance(step, Watching)
    store = run.services.site(step.attempt.candidate.cluster).checkpoints
    eventually(lambda: read_progress(store, run.run, step.attempt.number), seconds=120)
    return step.attempt


def an_hour_later(services: Services) -> Services:
    """The same, after every lease that nobody has renewed since is over."""
    return replace(services, clock=lambda: datetime.now(UTC) + timedelta(hours=1))


def put_stranger(services: Services, like: Attempt) -> str:
    """A pod with our labels of which the ledger knows nothing; gives its name."""
    site = services.site("onprem")
    stranger = replace(like, run="stranger")
    image = f"nowhere.example/train@sha256:{'0' * 64}"
    pod = build_pod(
        attempt=stranger, cluster=site.cluster, image=image, environment={}, store_secret=None, pull_secret=None
    )
    return site.client.launch(pod).name


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
    first = launched(run)
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


def test_a_run_is_not_launched_beside_an_old_pod_that_does_not_end(
    installation: Installation, open_run: Carry, make_job: MakeJob
) -> None:
    run = open_run(make_job(**ENDLESS, grace=timedelta(seconds=1)))
    first = launched(run)
    node = run.services.site("onprem").client.state(first.label).node
    settle(run.services, first, Ended(kind=VerdictKind.DELETED_BY_PERSON, reason="cleared"))
    second = run.place()
    with (
        installation.frozen(f"{node}-agent"),
        pytest.raises(LaunchRefused, match=f"pod '{first.label}' of an earlier attempt still runs on node {node}"),
    ):
        await_predecessors(run.services, second, run.said.append)


@pytest.mark.slow
def test_a_run_whose_cluster_is_down_is_cancelled_and_its_pod_is_swept_later(
    installation: Installation, open_run: Carry, make_job: MakeJob
) -> None:
    run = open_run(make_job(**ENDLESS, grace=timedelta(seconds=2)))
    first = launched(run)
    with installation.taken("onprem-kube-api"):
        settled = cancel(run.services, run.run, "cancelled in the dark", run.said.append)
        assert settled is not None and settled.outcome is Outcome.CANCELLED
    eventually(lambda: sweep(run.services, somebody, run.said.append), seconds=60)
    client = run.services.site("onprem").client
    eventually(lambda: client.state(first.label).phase, lambda phase: phase in {PodPhase.FAILED, PodPhase.GONE})


def test_the_sweeper_stops_exactly_the_pods_that_nobody_owns(open_run: Carry, make_job: MakeJob) -> None:
    job = make_job(**ENDLESS, grace=timedelta(seconds=20))
    runs = {name: open_run(job) for name in ("settled", "owned", "lapsed")}
    services = runs["owned"].services
    attempts = {name: launched(run) for name, run in runs.items()}
    settle(services, attempts["settled"], Ended(kind=VerdictKind.LOST_NODE, reason="its node was lost"))
    services.ledger.renew_lease(attempts["owned"], services.clock() + timedelta(hours=2))
    later = an_hour_later(services)
    expected = {
        attempts["settled"].label: "its attempt was settled: its node was lost",
        attempts["lapsed"].label: "its task has ended and its lease is over",
        put_stranger(services, attempts["owned"]): "the ledger knows no such attempt",
    }
    seen = sweep(later, nobody, print, dry_run=True)
    assert {entry.pod: entry.reason for entry in seen} == expected
    assert not any(entry.stopped for entry in seen)
    alive = {PodPhase.RUNNING, PodPhase.PENDING}
    assert all(phase(services, pod) in alive for pod in expected)
    looked_after = sweep(later, somebody, print, dry_run=True)
    assert {entry.pod for entry in looked_after} == expected.keys() - {attempts["lapsed"].label}

    stopped = sweep(later, nobody, print)
    assert {(entry.pod, entry.stopped) for entry in stopped} == {(pod, True) for pod in expected}
    eventually(lambda: not any(phase(services, pod) in alive for pod in expected))
    assert phase(services, attempts["owned"].label) is PodPhase.RUNNING
    over = services.ledger.attempt(attempts["lapsed"].run, 1)
    assert over.outcome is Outcome.CANCELLED
    assert over.committed_step is not None
    assert over.committed_step == over.last_step
    assert [cost.attempt for cost in services.ledger.costs(over.run)] == [over.label]
    assert sweep(later, nobody, print) == ()


def test_the_sweeper_closes_an_abandoned_attempt_as_its_pod_ended(open_run: Carry, make_job: MakeJob) -> None:
    run = open_run(make_job(steps=2))
    step = run.advance()
    assert isinstance(step, Watching)
    eventually(lambda: phase(run.services, step.attempt.label), lambda seen: seen is PodPhase.SUCCEEDED, seconds=120)
    (entry,) = sweep(an_hour_later(run.services), nobody, run.said.append)
    reason = "its task has ended and its lease is over"
    assert entry == Swept(cluster="onprem", pod=step.attempt.label, reason=reason, stopped=True)
    (only,) = run.attempts
    assert (only.outcome, only.last_step) == (Outcome.SUCCEEDED, 2)
    (cost,) = run.services.ledger.costs(run.run)
    assert cost.ended_at == only.ended_at == run.services.site("onprem").client.state(only.label).finished_at


def phase(services: Services, pod: str) -> PodPhase:
    return services.site("onprem").client.state(pod).phase
