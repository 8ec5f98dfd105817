"""What an attempt needs at its site, where other sites are lost, locked or wrong."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace

import pytest

from spillway.checkpoints.layout import head_key
from spillway.errors import AccessDenied, CorruptCheckpoint, Missing, ResidencyRefused
from spillway.ledger import TransferKind, TransferOutcome
from spillway.model import Attempt, AttemptState, JobSpec, Outcome, Tier, VerdictKind
from spillway.runs.engine import Waiting
from spillway.runs.explaining import newest
from spillway.runs.moving_checkpoints import copy_checkpoints
from spillway.runs.moving_datasets import copy_dataset
from spillway.runs.moving_images import copy_image
from spillway.runs.replicating import upload_checkpoints
from spillway.runs.settling import Ended, settle
from spillway.runs.staging import stage, stage_datasets, stage_image
from spillway.sync.manifest import manifest_key
from spillway.testing.builders import image_use
from spillway.testing.carried_run import Carried
from spillway.testing.checkpoints import commit_step
from spillway.testing.sandbox_server import Installation

MakeJob = Callable[..., JobSpec]
Carry = Callable[[JobSpec], Carried]


def placed_in_the_cloud(run: Carried) -> Attempt:
    """A second attempt, after one on premises that committed a step and was lost; the step was replicated."""
    first = run.place()
    store = run.checkpoints("onprem")
    store.fence(1)
    commit_step(store, 4)
    upload_checkpoints(run.services, run.said.append)
    settle(run.services, first, Ended(kind=VerdictKind.LOST_NODE, reason="node lost"))
    second = run.place()
    assert second.candidate.cluster == "cloud"
    return second


def bring_all(run: Carried) -> None:
    """Image and data to the cloud, as the standing DAGs do."""
    copy_image(run.services, "train", run.job.image.partition(":")[2], "cloud", tier=Tier.PUBLIC)
    copy_dataset(run.services, run.services.configuration.datasets["digits"], "cloud")


def lock(installation: Installation, run: Carried, *conn_ids: str) -> None:
    """Revoke the credentials of these Connections."""
    for conn_id in conn_ids:
        installation.connection(conn_id, password="revoked")
        run.services.forget(conn_id.partition("_")[0])


def remove(installation: Installation, run: Carried, *conn_ids: str) -> None:
    """Delete these Connections."""
    written = installation.connections.read_text()
    for conn_id in conn_ids:
        written = written.replace(f'"{conn_id}":', f'"former_{conn_id}":')
        run.services.forget(conn_id.partition("_")[0])
    installation.connections.write_text(written)


def test_steps_whose_parts_were_there_already_say_why_no_byte_moved(open_run: Carry, make_job: MakeJob) -> None:
    run = open_run(make_job())
    attempt = run.place()
    run.checkpoints("onprem").fence(1)
    for step in (2, 4):
        commit_step(run.checkpoints("onprem"), step)
    copy_checkpoints(run.services, attempt, "onprem", "cloud", run.said.append)
    run.services.site("cloud").checkpoints.delete([head_key(run.run)])
    copy_checkpoints(run.services, attempt, "onprem", "cloud", run.said.append)
    told = "2 steps copied from onprem to cloud, newest 4, 0 bytes: all their parts were there already"
    assert run.said[-1] == f"checkpoints of {run.run}: {told}"


def test_data_that_are_brought_say_how_far_they_are(
    open_run: Carry, make_job: MakeJob, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("spillway.runs.staging.PROGRESS_SECONDS", 0.0)
    run = open_run(make_job())
    there = run.services.site("cloud").datasets
    there.delete([entry.key for entry in there.list("digits/")])
    stage_datasets(run.services, run.job, "cloud", run.said.append)
    assert re.search(r"dataset digits: 1 of \d+ objects, ", run.story)


@pytest.mark.parametrize("loss", [lock, remove])
def test_a_lost_site_whose_credentials_are_gone_too_is_not_needed_by_a_run_that_has_all_at_its_own(
    installation: Installation, open_run: Carry, make_job: MakeJob, loss: Callable[..., None]
) -> None:
    run = open_run(make_job())
    bring_all(run)
    attempt = placed_in_the_cloud(run)
    loss(installation, run, "onprem_store", "onprem_store_public", "onprem_registry")

    staged = stage(run.services, attempt, run.said.append)

    assert (staged.state, staged.image_digest is not None) == (AttemptState.STAGED, True)
    assert "its home onprem cannot give it" in run.story
    assert "the verified copy at cloud is used" in run.story
    assert run.committed("cloud") == (4,)


def test_a_locked_home_is_told_where_the_site_does_not_have_what_is_needed(
    installation: Installation, open_run: Carry, make_job: MakeJob
) -> None:
    run = open_run(make_job())
    attempt = placed_in_the_cloud(run)
    run.services.site("cloud").datasets.delete([manifest_key("digits")])
    lock(installation, run, "onprem_store", "onprem_store_public", "onprem_registry")
    with pytest.raises(AccessDenied, match="onprem"):
        stage_datasets(run.services, run.job, "cloud", run.said.append)
    absent = replace(attempt, job=replace(run.job, image="train:never-pushed"))
    with pytest.raises(AccessDenied, match="onprem"):
        stage_image(run.services, absent, run.said.append)


def test_a_fault_of_the_site_itself_is_never_taken_for_one_of_the_home(
    installation: Installation, open_run: Carry, make_job: MakeJob
) -> None:
    run = open_run(make_job())
    bring_all(run)
    attempt = placed_in_the_cloud(run)
    lock(installation, run, "cloud_store", "cloud_registry")
    with pytest.raises(AccessDenied, match="cloud"):
        stage_datasets(run.services, run.job, "cloud", run.said.append)
    lock(installation, run, "onprem_store", "onprem_store_public", "onprem_registry")
    with pytest.raises(AccessDenied, match="cloud"):
        stage_image(run.services, attempt, run.said.append)
    with pytest.raises(AccessDenied, match="cloud"):
        stage_datasets(run.services, run.job, "cloud", run.said.append)


def test_a_tag_that_its_home_does_not_know_is_missing_even_where_the_site_has_one(
    open_run: Carry, make_job: MakeJob
) -> None:
    run = open_run(make_job())
    bring_all(run)
    attempt = placed_in_the_cloud(run)
    cloud = run.services.site("cloud").registry
    tag = run.job.image.partition(":")[2]
    cloud.put_manifest("train", "retired", cloud.manifest("train", tag))
    retired = replace(attempt, job=replace(run.job, image="train:retired"))
    with pytest.raises(Missing, match="image 'train:retired'"):
        stage_image(run.services, retired, run.said.append)


def test_data_that_may_not_be_at_the_site_is_refused_even_where_a_copy_is_and_its_home_is_lost(
    installation: Installation, open_run: Carry, make_job: MakeJob
) -> None:
    run = open_run(make_job())
    bring_all(run)
    file = installation.config / "datasets.yaml"
    file.write_text(file.read_text().replace("tier: public", "tier: core"))
    remove(installation, run, "onprem_store")
    services = installation.services()
    with pytest.raises(ResidencyRefused, match="'core' and may not be stored at 'cloud'"):
        stage_datasets(services, run.job, "cloud", run.said.append)
    assert [line.outcome for line in services.ledger.transfers()][-1] is TransferOutcome.REFUSED


def test_an_image_that_core_data_uses_too_is_refused_to_a_run_and_its_next_attempt_is_not_placed_there(
    open_run: Carry, make_job: MakeJob
) -> None:
    run = open_run(make_job())
    placed_in_the_cloud(run)
    core = make_job(name="core", tier=Tier.CORE)
    run.services = replace(run.services, image_uses=lambda: [image_use(run.job), image_use(core)])
    with pytest.raises(ResidencyRefused, match="job 'core' of core data uses it; give the other job an image"):
        run.advance()
    assert (run.attempts[-1].state, run.attempts[-1].outcome) == (AttemptState.SETTLED, Outcome.FAILED)
    images = [line for line in run.services.ledger.transfers(run.run) if line.kind is TransferKind.IMAGE]
    assert [(line.destination, line.outcome) for line in images] == [("cloud", TransferOutcome.REFUSED)]
    waiting = run.advance(restart=True)
    assert isinstance(waiting, Waiting)
    table = newest(run.services.ledger, run.run).decision.verdicts
    refused = {v.candidate.cluster for v in table if "residency" in {r.rule for r in v.rejections}}
    assert refused == {"cloud"}


def test_a_record_of_commits_that_is_damaged_at_another_site_is_not_passed_over(
    open_run: Carry, make_job: MakeJob
) -> None:
    run = open_run(make_job())
    bring_all(run)
    attempt = placed_in_the_cloud(run)
    run.services.site("onprem").checkpoints.put(head_key(run.run), b"{}", size_bytes=2)
    with pytest.raises(CorruptCheckpoint, match="HEAD is not valid"):
        stage(run.services, attempt, run.said.append)
