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
from spillway.checkpoints.progress import Progress, read_progress, write_progress
from spillway.checkpoints.store import CheckpointStore, ResumePoint
from spillway.clouds.kubernetes import KubernetesCluster
from spillway.clouds.pod import FLUSH_MARGIN
from spillway.errors import ForeignCheckpoint, NoValidCheckpoint
from spillway.model import AttemptState, CheckpointManifest, JobSpec, Outcome, VerdictKind
from spillway.runs import launching
from spillway.runs.cancelling import cancel
from spillway.runs.engine import Finished, Step, Watching, advance
from spillway.runs.launching import ensure_pod, pod_environment
from spillway.runs.services import Services
from spillway.runs.settling import Ended, settle
from spillway.runs.watching import Watch
from spillway.stores.base import ObjectStore, read_all
from spillway.sync.manifest import manifest_key
from spillway.testing.builders import attempt
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
    assert [(pod.name, pod.uid) for pod in client.owned(run.services.ledger.installation())] == [
        (first.attempt.label, first.attempt.pod_uid)
    ]


def test_two_owners_at_once_launch_one_pod_and_agree_on_it(
    installation: Installation, open_run: Carry, make_job: MakeJob
) -> None:
    run = open_run(make_job(**ENDLESS))
    owners = [replace(run, services=installation.services()) for _ in range(2)]
    with ThreadPoolExecutor(len(owners)) as pool:
        first, second = pool.map(Carried.advance, owners)
    assert isinstance(first, Watching) and isinstance(second, Watching)
    assert (first.attempt.label, first.attempt.pod_uid) == (second.attempt.label, second.attempt.pod_uid)
    assert eventually(lambda: installation.pods_ever(run.run)) == (("onprem", first.attempt.label),)
    assert len(run.attempts) == 1


def test_an_owner_that_is_overtaken_goes_on_with_the_pod_of_the_other(open_run: Carry, make_job: MakeJob) -> None:
    run = open_run(make_job(**ENDLESS))
    ahead: list[Step] = []

    def overtaken(line: str) -> None:
        if "is placed on" in line and not ahead:
            ahead.append(run.advance())

    behind = advance(run.services, run.run, run.job, overtaken)
    assert [behind] == ahead
    assert isinstance(behind, Watching) and behind.attempt.state is AttemptState.LAUNCHED
    assert len(run.attempts) == 1


def test_an_owner_whose_run_is_cancelled_while_it_stages_finds_it_cancelled(open_run: Carry, make_job: MakeJob) -> None:
    run = open_run(make_job(**ENDLESS))

    def cancelled(line: str) -> None:
        if "is placed on" in line:
            cancel(run.services, run.run, "nobody needs it", run.said.append)

    step = advance(run.services, run.run, run.job, cancelled)
    assert isinstance(step, Finished)
    assert (step.attempt.outcome, step.attempt.reason) == (Outcome.CANCELLED, "nobody needs it")
    assert len(run.attempts) == 1


def test_an_attempt_whose_pod_cannot_be_built_by_a_made_up_fault_is_not_launched(
    open_run: Carry, make_job: MakeJob, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(**_: object) -> None:
        raise OverflowError("a number that no pod can have")

    monkeypatch.setattr("spillway.runs.launching.build_pod", fail)
    run = open_run(make_job())
    with pytest.raises(OverflowError):
        run.advance()
    assert [attempt.state for attempt in run.attempts] == [AttemptState.STAGED]


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
    assert "lost: 2 steps;" in run.story
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
    assert run.services.site("cloud").client.owned(run.services.ledger.installation()) == ()


def test_a_checkpoint_of_another_run_is_refused(open_run: Carry, make_job: MakeJob) -> None:
    other, run = open_run(make_job()), open_run(make_job())
    commit(other.checkpoints("onprem"), 2, 1)
    store = run.services.site("onprem").checkpoints
    head = read_all(store, head_key(other.run))
    store.put(head_key(run.run), head, size_bytes=len(head), sha256=hashlib.sha256(head).hexdigest())
    with pytest.raises(ForeignCheckpoint, match=f"of run '{other.run}', expected run '{run.run}'"):
        run.advance()
    assert [attempt.outcome for attempt in run.attempts] == [Outcome.FAILED]
    assert run.services.site("onprem").client.owned(run.services.ledger.installation()) == ()


def test_a_pod_that_is_created_for_a_cancelled_attempt_is_stopped_again(open_run: Carry, make_job: MakeJob) -> None:
    run = open_run(make_job(**ENDLESS))
    ledger = run.services.ledger
    digest = run.services.site("onprem").registry.resolve("train", "numpy2.4.6-py3.11")
    staged = ledger.advance(run.place(), AttemptState.STAGED, image_digest=digest)
    launched = ledger.advance(staged, AttemptState.LAUNCHED)
    settle(run.services, launched, Ended(kind=VerdictKind.DELETED_BY_PERSON, reason="cancelled meanwhile"))
    ensure_pod(run.services, launched, run.said.append)
    eventually(lambda: run.services.site("onprem").client.owned(run.services.ledger.installation()) == ())


def test_a_pod_gets_the_time_that_checkpoints_were_seen_to_take(open_run: Carry, make_job: MakeJob) -> None:
    run = open_run(make_job())
    lost_with_commits(run, 4)
    slow = Progress(first_step=1, step=4, total_steps=6, loss=None, at="", durable_step=4, slowest_commit_seconds=40.0)
    write_progress(run.services.site("onprem").checkpoints, run.run, 1, slow)
    step = run.advance()
    assert isinstance(step, Watching)
    pod = run.services.site("cloud").client.state(step.attempt.label)
    assert pod.grace == timedelta(seconds=40) + FLUSH_MARGIN


def test_a_launch_reads_once_how_long_earlier_checkpoints_took(
    open_run: Carry, make_job: MakeJob, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = open_run(make_job())
    lost_with_commits(run, 4)
    read: list[int] = []

    def counted(store: ObjectStore, of_run: str, number: int) -> Progress | None:
        read.append(number)
        return read_progress(store, of_run, number)

    monkeypatch.setattr(launching, "read_progress", counted)
    assert isinstance(run.advance(), Watching)
    assert read == [1]


@pytest.mark.parametrize(
    ("grace", "declared", "seconds"),
    [
        pytest.param(timedelta(seconds=5), {}, 300, id="longer than a silent cluster is waited for"),
        pytest.param(timedelta(hours=1), {}, 3601, id="never shorter than a silent cluster is waited for"),
        pytest.param(timedelta(seconds=5), {"SPILLWAY_STORE_PATIENCE_SECONDS": "20"}, 20, id="as the job says"),
    ],
)
def test_a_trainer_is_told_how_long_to_wait_for_its_store(
    services: Services, make_job: MakeJob, grace: timedelta, declared: dict[str, str], seconds: float
) -> None:
    first = attempt(job=make_job(grace=grace, environment=declared))
    environment = pod_environment(services, first, ResumePoint(manifest=None), None)
    assert float(environment["SPILLWAY_STORE_PATIENCE_SECONDS"]) == seconds


def test_a_job_cannot_say_what_the_platform_says(services: Services, make_job: MakeJob) -> None:
    first = attempt(job=make_job(environment={"EPOCHS": "3", "SPILLWAY_RUN": "forged"}))
    environment = pod_environment(services, first, ResumePoint(manifest=None), None)
    assert (environment["EPOCHS"], environment["SPILLWAY_RUN"]) == ("3", first.run)


def test_a_trainer_is_told_the_record_of_a_copied_data_set(services: Services, make_job: MakeJob) -> None:
    there = attempt(job=make_job())
    places = {site: replace(there, candidate=replace(there.candidate, cluster=site)) for site in ("onprem", "cloud")}
    told = {
        site: pod_environment(services, placed, ResumePoint(manifest=None), None)["SPILLWAY_DATASET_RECORD"]
        for site, placed in places.items()
    }
    assert told == {"onprem": "", "cloud": manifest_key("digits")}


def test_a_pod_goes_to_the_fullest_node_that_takes_it(services: Services, open_run: Carry, make_job: MakeJob) -> None:
    client, merge = services.site("onprem").client, "application/merge-patch+json"
    assert isinstance(client, KubernetesCluster)
    first, second = (node.name for node in client.describe().nodes)

    def cordon(node: str, cordoned: bool) -> None:
        client.api.json(
            "PATCH", f"/api/v1/nodes/{node}", body={"spec": {"unschedulable": cordoned}}, content_type=merge
        )

    cordon(first, True)
    assert trains_on(client, open_run(make_job(**ENDLESS, gpus_per_node=1))) == second
    cordon(first, False)
    assert trains_on(client, open_run(make_job(**ENDLESS, gpus_per_node=1))) == second


def trains_on(client: KubernetesCluster, run: Carried) -> str | None:
    return client.state(run.launched().label).node
