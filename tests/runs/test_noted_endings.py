"""Whoever asks a pod to end may die before it has: the next one to look knows why the pod is gone."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from spillway.checkpoints.progress import read_progress
from spillway.losses import PodVerdict
from spillway.model import Attempt, JobSpec, Outcome, PodPhase, VerdictKind
from spillway.runs.admission import admit
from spillway.runs.cancelling import cancel
from spillway.runs.engine import Watching, conclude
from spillway.runs.stopping import noted_ending
from spillway.runs.watching import Watch
from spillway.sandbox import drills
from spillway.sandbox.settings import SandboxSettings
from spillway.testing.carried_run import Carried
from spillway.testing.hung_pods import hung
from spillway.testing.polling import eventually

MakeJob = Callable[..., JobSpec]
Carry = Callable[[JobSpec], Carried]
ENDLESS: dict[str, Any] = {"steps": 100_000, "every": 50_000, "pace": 0.1}
REASON = "its task was marked or cleared"


class Killed(BaseException):
    """What a SIGKILL is to the code that it hits."""


def training(run: Carried) -> Attempt:
    """The run's attempt, whose pod has done its first step."""
    step = run.advance()
    assert isinstance(step, Watching)
    store = run.services.site(step.attempt.candidate.cluster).checkpoints
    eventually(lambda: read_progress(store, run.run, step.attempt.number), seconds=120)
    Watch(services=run.services, attempt=step.attempt).poll()
    return run.attempts[-1]


def pod_is_gone(run: Carried, attempt: Attempt) -> bool:
    return run.services.site(attempt.candidate.cluster).client.state(attempt.label).phase is PodPhase.GONE


def test_a_pod_that_was_evicted_and_is_gone_is_a_preemption_for_the_next_watcher_too(
    sandbox: SandboxSettings, open_run: Carry, make_job: MakeJob
) -> None:
    run = open_run(make_job(**ENDLESS))
    attempt = training(run)
    assert noted_ending(attempt) is None
    evicting = threading.Thread(target=drills.evict, args=(sandbox, attempt.node, attempt.label))
    first = Watch(services=run.services, attempt=attempt)
    with hung(run.run):  # or it may be gone before anybody has looked
        evicting.start()
        eventually(lambda: first.poll().summary, lambda said: "waiting for the pod to end" in said, seconds=120)
    evicting.join()
    eventually(lambda: pod_is_gone(run, attempt), seconds=120)

    second = Watch(services=run.services, attempt=attempt)
    ended = eventually(lambda: second.poll().ended, seconds=120)

    assert ended is not None
    assert ended.kind is VerdictKind.PREEMPTED
    assert conclude(run.services, run.run, 1, ended, run.said.append).outcome is Outcome.PREEMPTED


def die_while_cancelling(run: Carried, monkeypatch: pytest.MonkeyPatch) -> None:
    """A person's cancelling that is killed when it has asked the pod to end; returns when the pod is gone."""

    def die(*_: object) -> None:
        raise Killed

    with monkeypatch.context() as patched:
        patched.setattr("spillway.runs.cancelling.time.sleep", die)
        with pytest.raises(Killed):
            cancel(run.services, run.run, REASON, run.said.append)
    eventually(lambda: pod_is_gone(run, run.attempts[-1]), seconds=120)


def test_a_cancelling_that_died_halfway_is_told_from_a_stranger_who_deletes_pods(
    open_run: Carry, make_job: MakeJob, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = open_run(make_job(**ENDLESS))
    attempt = training(run)
    die_while_cancelling(run, monkeypatch)

    assert noted_ending(run.attempts[-1]) == PodVerdict(kind=VerdictKind.DELETED_BY_PERSON, reason=REASON)
    watch = Watch(services=run.services, attempt=attempt)
    ended = eventually(lambda: watch.poll().ended, seconds=120)
    assert ended is not None
    settled = conclude(run.services, run.run, 1, ended, run.said.append)
    assert (settled.outcome, settled.reason) == (Outcome.CANCELLED, REASON)
    assert settled.last_step == settled.committed_step


def test_a_cancelling_that_died_halfway_is_one_for_whoever_takes_its_place_back_too(
    open_run: Carry, make_job: MakeJob, monkeypatch: pytest.MonkeyPatch
) -> None:
    run, other = open_run(make_job(**ENDLESS)), open_run(make_job())
    training(run)
    die_while_cancelling(run, monkeypatch)
    gone_by = datetime.now(UTC)

    admit(replace(run.services, clock=lambda: gone_by + timedelta(hours=1)), other.run, other.job)

    (settled,) = run.attempts
    assert settled.outcome is Outcome.CANCELLED
    assert str(settled.reason).startswith(REASON)
    assert run.services.ledger.cool_downs(gone_by) == ()
    (cost,) = run.services.ledger.costs(run.run)
    assert settled.started_at is not None
    assert settled.started_at < cost.ended_at < gone_by
