"""Core data that a pod in the cloud reads at its home, over the link: nothing of it is stored there, nor made of it.

The pods, stores and registries are the sandbox's.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import yaml

from spillway.checkpoints.progress import LINE_PREFIX
from spillway.errors import AccessDenied, ResidencyRefused, UnknownName
from spillway.ledger import TransferKind, TransferOutcome
from spillway.model import AttemptState, JobSpec, Outcome, Tier, VerdictKind
from spillway.runs.launching import ensure_pod, launch, rehearse
from spillway.runs.planning import plan
from spillway.runs.services import Services
from spillway.runs.settling import Ended, settle
from spillway.runs.sites import bucket
from spillway.runs.staging import stage
from spillway.sandbox.sample_data import digits_shards
from spillway.stores.base import read_all
from spillway.testing.carried_run import Carried
from spillway.testing.polling import eventually
from spillway.testing.sandbox_server import Installation

MakeJob = Callable[..., JobSpec]
Carry = Callable[[JobSpec], Carried]
DIGITS = {"name": "digits", "home": "onprem", "prefix": "digits/", "tier": "public"}
VAULT = {
    "name": "vault",
    "home": "onprem",
    "prefix": "remote/vault/",
    "tier": "core",
    "remote_read": {"connection": "onprem_store_remote"},
}
CORE: dict[str, Any] = {"name": "remote-digits", "dataset": "vault", "tier": Tier.CORE, "image_tier": Tier.PUBLIC}
SHARDS = {f"remote/vault/{name}": body for name, body in digits_shards(2).items()}


def declare(installation: Installation, *datasets: dict[str, Any]) -> None:
    (installation.config / "datasets.yaml").write_text(yaml.safe_dump({"datasets": [DIGITS, *datasets]}))


@pytest.fixture
def vault() -> dict[str, Any]:
    """The core dataset as it is declared."""
    return VAULT


@pytest.fixture
def services(installation: Installation, vault: dict[str, Any]) -> Iterator[Services]:
    """Services of sites of which the on-premises one holds a core dataset that may be read from the cloud."""
    declare(installation, vault)
    made = installation.services()
    store = made.site("onprem").datasets
    for key, body in SHARDS.items():
        store.put(key, body, size_bytes=len(body))
    yield made
    store.delete(SHARDS)


def stored(services: Services, site: str, run: str) -> list[str]:
    """The keys of the dataset's objects and of the run's at a site."""
    opened = services.site(site)
    data = [entry.key for entry in opened.datasets.list() if "vault" in entry.key]
    return data + [entry.key for entry in opened.checkpoints.list(f"{run}/")]


def test_a_core_job_trains_in_the_cloud_and_leaves_nothing_there(
    services: Services, start_run: Carry, make_job: MakeJob
) -> None:
    run = start_run(make_job(gpu_model="H100", **CORE))
    last = run.result()
    assert (last.candidate.cluster, last.outcome, last.first_step) == ("cloud", Outcome.SUCCEEDED, 1)
    assert stored(services, "cloud", run.run) == []
    assert run.committed("onprem") == (2, 4, 6)
    lines = [line for line in services.ledger.transfers(run.run) if line.kind is not TransferKind.IMAGE]
    found = [(line.name, line.tier, line.source, line.destination, line.outcome, line.size_bytes) for line in lines]
    size = sum(map(len, SHARDS.values()))
    assert found == [("vault", Tier.CORE, "onprem", "cloud", TransferOutcome.READ, size)]


@pytest.mark.parametrize("vault", [VAULT | {"cache": {"connection": "sandbox_cache_key", "max_gib": 1}}])
def test_what_one_pod_has_read_the_next_one_finds_in_the_cache_of_its_site_encrypted(
    services: Services, make_job: MakeJob, start_run: Carry
) -> None:
    kept = bucket(services.connect("cloud_store"), "cache", "cloud")
    told = []
    for _ in range(2):
        run = start_run(make_job(steps=2, gpu_model="H100", **CORE))
        told.append(cache_event(run))
    misses, hits = (told[0]["misses"], told[0]["hits"]), (told[1]["misses"], told[1]["hits"], told[1]["hit_rate"])
    assert (misses, hits) == ((2, 0), (0, 2, 1.0))
    assert stored(services, "cloud", run.run) == []
    found = [entry.key.encode() + read_all(kept, entry.key) for entry in kept.list()]
    assert len(found) >= len(SHARDS)
    lines = [line for body in SHARDS.values() for line in body.splitlines()[1:3]]
    assert not [text for text in found if b"vault" in text or b"shard" in text or any(line in text for line in lines)]
    assert "kept at 'cloud', encrypted" in str(services.ledger.transfers(run.run)[-1].reason)


def cache_event(run: Carried) -> dict[str, Any]:
    """What the pod of a run that succeeds says of its cache."""
    last = run.result()
    assert last.outcome is Outcome.SUCCEEDED
    lines = run.services.site("cloud").client.logs(last.label).lines
    events = [json.loads(line.partition(LINE_PREFIX)[2]) for line in lines if LINE_PREFIX in line]
    (event,) = [event for event in events if event["event"] == "cache"]
    return dict(event)


def test_a_run_goes_on_in_the_cloud_from_its_checkpoint_at_home_and_commits_there(
    services: Services, open_run: Carry, make_job: MakeJob
) -> None:
    run = open_run(make_job(steps=100_000, every=1, pace=0.1, **CORE))
    assert run.launched().candidate.cluster == "onprem"
    settle(services, run.attempts[-1], Ended(kind=VerdictKind.LOST_NODE, reason="node lost"))
    away = run.launched()
    assert (away.number, away.candidate.cluster) == (2, "cloud")
    resumed = away.resumed_from_step
    assert resumed in run.committed("onprem")
    eventually(lambda: run.committed("onprem")[-1], lambda step: step > (resumed or 0))
    assert stored(services, "cloud", run.run) == []


def test_without_the_opt_in_the_cloud_is_no_place_for_it(
    installation: Installation, services: Services, make_job: MakeJob
) -> None:
    job = make_job(gpu_model="H100", **CORE)
    assert "dataset vault would be read at onprem, over the link" in plan(services, job).text
    declare(installation, {key: value for key, value in VAULT.items() if key != "remote_read"})
    refused = plan(installation.services(), job)
    assert (refused.fails, "its data is of tier core, the site may store public" in refused.text) == (True, True)


def test_an_image_of_which_nobody_says_that_it_is_public_keeps_the_job_at_home(
    services: Services, make_job: MakeJob
) -> None:
    refused = plan(services, make_job(gpu_model="H100", **(CORE | {"image_tier": None})))
    assert refused.fails
    assert "its image is of tier core" in refused.text


def test_an_opt_in_that_is_withdrawn_before_the_launch_is_a_refusal_in_the_transfer_log(
    installation: Installation, services: Services, open_run: Carry, make_job: MakeJob
) -> None:
    run = open_run(make_job(gpu_model="H100", **CORE))
    staged = stage(services, run.place(), run.said.append)
    declare(installation, {key: value for key, value in VAULT.items() if key != "remote_read"})
    later = installation.services()
    for act in (lambda: stage(later, staged, run.said.append), lambda: launch(later, staged, run.said.append)):
        with pytest.raises(ResidencyRefused, match="let pods read it at its home with remote_read"):
            act()
    assert [(line.name, line.destination) for line in refusals(later, run.run)] == [("vault", "cloud")] * 2


@pytest.mark.parametrize("state", [AttemptState.STAGED, AttemptState.LAUNCHED])
@pytest.mark.parametrize("tier", [Tier.CORE, Tier.PUBLIC])
def test_a_dataset_that_is_not_declared_any_more_leaves_no_trace_of_its_job_in_the_cloud(
    installation: Installation, services: Services, open_run: Carry, make_job: MakeJob, state: AttemptState, tier: Tier
) -> None:
    run = open_run(make_job(gpu_model="H100", **(CORE if tier is Tier.CORE else {"dataset": "digits"})))
    waiting = stage(services, run.place(), run.said.append)
    if state is AttemptState.LAUNCHED:
        waiting = services.ledger.advance(waiting, state)
    (installation.config / "datasets.yaml").write_text(yaml.safe_dump({"datasets": []}))
    later = installation.services()
    for act in (launch, ensure_pod) if state is AttemptState.LAUNCHED else (launch,):
        with pytest.raises(UnknownName, match="unknown dataset"):
            act(later, waiting, run.said.append)
    assert list(later.site("cloud").checkpoints.list(f"{run.run}/")) == []
    assert installation.pods_ever(run.run) == ()


def test_a_site_that_may_not_hold_core_data_any_more_gets_no_pod_that_would_commit_there(
    installation: Installation, services: Services, open_run: Carry, make_job: MakeJob
) -> None:
    run = open_run(make_job(dataset=None, tier=Tier.CORE))
    staged = stage(services, run.place(), run.said.append)
    assert staged.candidate.cluster == "onprem"
    declare(installation)
    file = installation.config / "clusters.yaml"
    clusters = yaml.safe_load(file.read_text())
    next(c for c in clusters["clusters"] if c["name"] == "onprem")["residency"] = ["public"]
    file.write_text(yaml.safe_dump(clusters))
    later = installation.services()
    for act in (lambda: launch(later, staged, run.said.append), lambda: rehearse(later, staged)):
        with pytest.raises(ResidencyRefused, match=f"checkpoint '{run.run}' is of tier 'core'"):
            act()
    assert [(line.kind, line.destination) for line in refusals(later, run.run)] == [("checkpoint", "onprem")] * 2
    assert list(later.site("onprem").checkpoints.list(f"{run.run}/")) == []


def refusals(services: Services, run: str) -> list[Any]:
    return [line for line in services.ledger.transfers(run) if line.outcome is TransferOutcome.REFUSED]


def test_the_identity_reads_its_dataset_only_and_writes_no_data(installation: Installation, services: Services) -> None:
    written = json.loads(installation.connections.read_text())["onprem_store_remote"]
    installation.connection("onprem_store", login=written["login"], password=written["password"])
    theirs = installation.services().site("onprem").datasets
    key = next(iter(SHARDS))
    assert read_all(theirs, key) == SHARDS[key]
    services.site("onprem").datasets.put("faces/1", b"core", size_bytes=4)
    try:
        with pytest.raises(AccessDenied):
            read_all(theirs, "faces/1")
        with pytest.raises(AccessDenied):
            theirs.put("remote/vault/new", b"x", size_bytes=1)
    finally:
        services.site("onprem").datasets.delete(["faces/1"])
