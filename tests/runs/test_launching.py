"""Launches that are repeated, cut off, or have nothing valid to resume from."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from spillway.checkpoints.layout import head_key, part_key
from spillway.checkpoints.progress import Progress, write_progress
from spillway.checkpoints.store import CheckpointStore
from spillway.clouds.pod import FLUSH_MARGIN
from spillway.errors import ForeignCheckpoint, NoValidCheckpoint
from spillway.losses import VerdictKind
from spillway.model import AttemptState, CheckpointManifest, JobSpec, Outcome
from spillway.runs.engine import Watching
from spillway.runs.launching import ensure_pod
from spillway.runs.settling import Ended, settle
from spillway.runs.watching import Watch
from spillway.stores.base import read_all
from spillway.testing.carried_run import Carried
from spillway.testing.checkpoints import commit_step
from spillway.testing.polling import eventually
from spillway.testing.sandbox_server import Installation

MakeJob = Callable[..., JobSpec]
Carry = Callable[[JobSpec], Carried]
ENDLESS: dict[str, Any] = {"steps": 100_000, "every": 50_000, "pace": 0.1}
LOST = Ended(kind=VerdictKind.LOST_NODE, reason="node lost")


def commit(store: CheckpointStore, step: int, attempt: int) -> CheckpointManifest:
    """A committed step, as a trainer leaves it."""
    store.fence(attempt)
    return commit_step(store, step, attempt=attempt)


def lost_with_commits(run: Carried, *steps: int) -> list[CheckpointManifest]:
    """A first attempt on premises that committed the steps and then lost its node."""
    first = run.place()
    assert first.candidate.cluster == "onprem"
    manifests = [commit(run.checkpoints("onprem"), step, 1) for step in steps]
    run.services.ledger.amend(first, committed_step=steps[-1], last_step=steps[-1])
    settle(run.services, first, LOST)
    return manifests


def damage(run: Carried, site: str, manifest: CheckpointManifest) -> None:
    part = manifest.parts[0]
    garbage = b"x" * part.size_bytes
    run.services.site(site).checkpoints.put(part_key(run.run, part.sha256), garbage, size_bytes=len(garbage))


def test_the_same_attempt_launched_twice_has_one_pod(open_run: Carry, make_job: MakeJob) -> None:
    run = open_run(make_job(**ENDLESS))
    first = run.advance()
    assert isinstance(first, Watching)
    assert run.advance() == first
    client = run.services.site("onprem").client
    assert [(pod.name, pod.uid) for pod in client.owned()] == [(first.attempt.label, first.attempt.pod_uid)]


def test_two_owners_at_once_launch_one_pod_and_agree_on_it(
    installation: Installation, open_run: Carry, make_job: MakeJob
) -> None:
    run = open_run(make_job(**ENDLESS))
    owners = [replace(run, services=installation.services()) for _ in range(2)]
    with ThreadPoolExecutor(len(owners)) as pool:
        first, second = pool.map(Carried.advance, owners)
    assert isinstance(first, Watching) and isinstance(second, Watching)
    assert (first.attempt.label, first.attempt.pod_uid) == (second.attempt.label, second.attempt.pod_uid)
    assert installation.pods_ever(run.run) == (("onprem", first.attempt.label),)
    assert len(run.attempts) == 1


def test_a_launch_that_is_repeated_late_keeps_the_resume_step_on_record(open_run: Carry, make_job: MakeJob) -> None:
    run = open_run(make_job())
    lost_with_commits(run, 4)
    staged = run.place()
    store = run.checkpoints(staged.candidate.cluster)
    assert staged.candidate.cluster == "cloud"
    commit(store, 4, 1)
    digest = run.services.site("onprem").registry.resolve("train", "numpy2.4.6-py3.11")
    staged = run.services.ledger.advance(staged, AttemptState.STAGED, image_digest=digest)
    run.services.ledger.advance(staged, AttemptState.LAUNCHED, resumed_from_step=4)
    commit(store, 6, 2)
    step = run.advance()
    assert isinstance(step, Watching)
    assert step.attempt.resumed_from_step == 4


def test_an_attempt_that_has_trained_never_gets_a_second_pod(
    installation: Installation, open_run: Carry, make_job: MakeJob
) -> None:
    run = open_run(make_job())
    digest = run.services.site("onprem").registry.resolve("train", "numpy2.4.6-py3.11")
    staged = run.services.ledger.advance(run.place(), AttemptState.STAGED, image_digest=digest)
    launched = run.services.ledger.advance(staged, AttemptState.LAUNCHED)
    trained = Progress(first_step=1, step=1, total_steps=6, loss=None, at="")
    write_progress(run.services.site("onprem").checkpoints, run.run, 1, trained)
    assert run.advance() == Watching(attempt=launched)
    assert installation.pods_ever(run.run) == ()
    look = Watch(services=run.services, attempt=launched).poll()
    assert look.ended is not None and look.ended.kind is VerdictKind.PREEMPTED


def test_a_corrupt_newest_checkpoint_is_passed_over_for_the_one_before(open_run: Carry, make_job: MakeJob) -> None:
    run = open_run(make_job())
    manifests = lost_with_commits(run, 2, 4)
    damage(run, "onprem", manifests[-1])
    step = run.advance()
    assert isinstance(step, Watching)
    assert (step.attempt.candidate.cluster, step.attempt.resumed_from_step) == ("cloud", 2)
    assert "step 4" in run.story and "expected digest" in run.story
    assert "2 steps are lost" in run.story
    assert run.committed("onprem") == (2, 4)


def test_a_corrupt_checkpoint_at_the_site_itself_is_passed_over_too(open_run: Carry, make_job: MakeJob) -> None:
    run = open_run(make_job())
    lost_with_commits(run, 2)
    placed = run.place()
    commit(run.checkpoints("cloud"), 2, 1)
    damage(run, "cloud", commit(run.checkpoints("cloud"), 4, 1))
    step = run.advance()
    assert isinstance(step, Watching)
    assert (step.attempt.number, step.attempt.resumed_from_step) == (placed.number, 2)
    assert "checkpoint not used: step 4 of attempt 1" in run.story


@pytest.mark.parametrize("committed", [(2,), (2, 4)], ids=["one-step", "two-steps"])
def test_a_run_without_any_valid_checkpoint_does_not_begin_anew(
    open_run: Carry, make_job: MakeJob, committed: tuple[int, ...]
) -> None:
    run = open_run(make_job())
    for manifest in lost_with_commits(run, *committed):
        damage(run, "onprem", manifest)
    with pytest.raises(NoValidCheckpoint, match=f"no valid committed step at cloud: .*step {committed[-1]}"):
        run.advance()
    assert [attempt.outcome for attempt in run.attempts] == [Outcome.PREEMPTED, Outcome.FAILED]
    assert run.services.ledger.reservations() == ()
    assert run.services.site("cloud").client.owned() == ()


def test_a_checkpoint_of_another_run_is_refused(open_run: Carry, make_job: MakeJob) -> None:
    other, run = open_run(make_job()), open_run(make_job())
    commit(other.checkpoints("onprem"), 2, 1)
    store = run.services.site("onprem").checkpoints
    head = read_all(store, head_key(other.run))
    store.put(head_key(run.run), head, size_bytes=len(head), sha256=hashlib.sha256(head).hexdigest())
    with pytest.raises(ForeignCheckpoint, match=f"of run '{other.run}', expected run '{run.run}'"):
        run.advance()
    assert [attempt.outcome for attempt in run.attempts] == [Outcome.FAILED]
    assert run.services.site("onprem").client.owned() == ()


def test_a_pod_that_is_created_for_a_cancelled_attempt_is_stopped_again(open_run: Carry, make_job: MakeJob) -> None:
    run = open_run(make_job(**ENDLESS))
    ledger = run.services.ledger
    digest = run.services.site("onprem").registry.resolve("train", "numpy2.4.6-py3.11")
    staged = ledger.advance(run.place(), AttemptState.STAGED, image_digest=digest)
    launched = ledger.advance(staged, AttemptState.LAUNCHED)
    settle(run.services, launched, Ended(kind=VerdictKind.DELETED_BY_PERSON, reason="cancelled meanwhile"))
    ensure_pod(run.services, launched, run.said.append)
    eventually(lambda: run.services.site("onprem").client.owned() == ())


def test_a_pod_gets_the_time_that_checkpoints_were_seen_to_take(open_run: Carry, make_job: MakeJob) -> None:
    run = open_run(make_job())
    lost_with_commits(run, 4)
    slow = Progress(first_step=1, step=4, total_steps=6, loss=None, at="", durable_step=4, slowest_commit_seconds=40.0)
    write_progress(run.services.site("onprem").checkpoints, run.run, 1, slow)
    step = run.advance()
    assert isinstance(step, Watching)
    pod = run.services.site("cloud").client.state(step.attempt.label)
    assert pod.grace == timedelta(seconds=40) + FLUSH_MARGIN
