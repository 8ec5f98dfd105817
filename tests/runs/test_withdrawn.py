"""Secrets with which pods read a dataset at another site, and keep what they read, end with the opt-in."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import yaml

from spillway.clouds.kubernetes import KubernetesCluster
from spillway.errors import AccessDenied
from spillway.model import DatasetUse, JobSpec, Tier, VerdictKind
from spillway.runs.pod_access import access_objects, of_readers, store_names
from spillway.runs.services import Services
from spillway.runs.settling import Ended, settle
from spillway.runs.sweeping import Remedy, Swept, sweep
from spillway.testing.builders import attempt
from spillway.testing.carried_run import Carried
from spillway.testing.sandbox_server import Installation
from spillway.testing.sweeps import somebody

MakeJob = Callable[..., JobSpec]
Carry = Callable[[JobSpec], Carried]
DIGITS = {"name": "digits", "home": "onprem", "prefix": "digits/", "tier": "public"}
READ = {"remote_read": {"connection": "onprem_store_remote"}}
CACHE = {"cache": {"connection": "sandbox_cache_key", "max_gib": 1}}


def core(name: str, **opted_in: Any) -> dict[str, Any]:
    return {"name": name, "home": "onprem", "prefix": f"remote/{name}/", "tier": "core", **opted_in}


def job_of(dataset: str, make_job: MakeJob) -> JobSpec:
    return make_job(name="remote-digits", dataset=dataset, tier=Tier.CORE, image_tier=Tier.PUBLIC, gpu_model="H100")


def declare(installation: Installation, *datasets: dict[str, Any]) -> Services:
    (installation.config / "datasets.yaml").write_text(yaml.safe_dump({"datasets": [DIGITS, *datasets]}))
    return installation.services()


@pytest.fixture
def services(installation: Installation, make_job: MakeJob) -> Services:
    """Services of a cloud whose namespace has the Secrets of ``vault`` and ``faces``, each read through a cache."""
    made = declare(installation, core("vault", **READ, **CACHE), core("faces", **READ, **CACHE))
    for job in (job_of("vault", make_job), job_of("faces", make_job), make_job()):
        away = attempt(job=job)
        away = replace(away, candidate=replace(away.candidate, cluster="cloud", pool="gpu"))
        made.site("cloud").client.apply(access_objects(made, away))
    return made


def secrets(installation: Installation, services: Services) -> set[str]:
    """Those of this installation in the namespace of the cloud."""
    return {name for name in installation.secrets("cloud") if services.ledger.installation() in name}


def named(services: Services, dataset: str | None, *what: str) -> set[str]:
    names = store_names(services.ledger.installation(), of_readers(dataset) if dataset else "")
    return {names[one] for one in what}


def own(services: Services) -> set[str]:
    return {*named(services, None, "store"), f"spillway-registry-{services.ledger.installation()}"}


def swept(services: Services, *, dry_run: bool = False) -> set[tuple[str, bool]]:
    found: tuple[Swept, ...] = sweep(services, somebody, print, dry_run=dry_run)
    assert {(entry.cluster, entry.remedy) for entry in found} <= {("cloud", Remedy.REMOVED)}
    return {(entry.attempt, entry.done) for entry in found}


def test_what_is_opted_in_is_left_alone(installation: Installation, services: Services) -> None:
    before = secrets(installation, services)
    assert before == {
        *own(services),
        *named(services, "vault", "store", "cache"),
        *named(services, "faces", "store", "cache"),
    }
    assert swept(services) == set()
    assert secrets(installation, services) == before


def test_a_cache_that_is_taken_back_ends_with_its_key_and_a_dry_run_changes_nothing(
    installation: Installation, services: Services
) -> None:
    later = declare(installation, core("vault", **READ), core("faces", **READ, **CACHE))
    (going,) = named(services, "vault", "cache")
    before = secrets(installation, services)
    assert swept(later, dry_run=True) == {(going, False)}
    assert secrets(installation, services) == before
    assert swept(later) == {(going, True)}
    assert secrets(installation, services) == before - {going}
    assert swept(later) == set()


def test_a_dataset_that_is_not_declared_any_more_leaves_no_identity(
    installation: Installation, services: Services
) -> None:
    later = declare(installation, core("faces", **READ, **CACHE))
    going = named(services, "vault", "store", "cache")
    assert swept(later) == {(name, True) for name in going}
    assert secrets(installation, services) == {*own(services), *named(services, "faces", "store", "cache")}


def test_an_open_attempt_keeps_them_until_it_is_settled(
    installation: Installation, services: Services, open_run: Carry, make_job: MakeJob
) -> None:
    run = open_run(job_of("vault", make_job))
    placed = run.place()
    assert placed.candidate.cluster == "cloud"
    later = declare(installation, core("faces", **READ, **CACHE))
    assert swept(later) == set()
    settle(services, placed, Ended(kind=VerdictKind.LOST_NODE, reason="its node was lost"))
    assert swept(later) == {(name, True) for name in named(services, "vault", "store", "cache")}


def test_the_identity_for_public_parts_ends_when_its_site_names_none_and_no_open_attempt_has_it(
    installation: Installation, open_run: Carry, make_job: MakeJob
) -> None:
    mixed = {"name": "mixed", "home": "onprem", "prefix": "", "include": ["digits/*"]}
    made = declare(installation, mixed | {"rules": [{"prefix": "digits/", "tier": "public"}]})
    placed = open_run(make_job(datasets=(DatasetUse(name="mixed", part=Tier.PUBLIC),))).place()
    made.site("onprem").client.apply(access_objects(made, placed))
    (name,) = (f"{store}-public" for store in named(made, None, "store"))
    file = installation.config / "clusters.yaml"
    declared = yaml.safe_load(file.read_text())
    for cluster in declared["clusters"]:
        del cluster["object_store"]["public_pod_connection"]
    file.write_text(yaml.safe_dump(declared))
    later = installation.services()

    def gone(services: Services) -> list[tuple[str, bool]]:
        entries: tuple[Swept, ...] = sweep(services, somebody, print)
        return [(entry.attempt, entry.done) for entry in entries if entry.cluster == "onprem"]

    assert (gone(later), name in installation.secrets("onprem")) == ([], True)
    settle(made, placed, Ended(kind=VerdictKind.LOST_NODE, reason="its node was lost"))
    assert gone(made) == []
    assert gone(later) == [(name, True)]
    assert name not in installation.secrets("onprem")


@pytest.mark.parametrize("may_list", [False, True])
def test_a_cluster_that_does_not_let_them_be_removed_says_so(
    installation: Installation, services: Services, monkeypatch: pytest.MonkeyPatch, may_list: bool
) -> None:
    def refuse(cluster: KubernetesCluster, *_: Any) -> None:
        raise AccessDenied(f"cluster '{cluster.cluster.name}'", "403", fix="grant it")

    monkeypatch.setattr(KubernetesCluster, "withdraw" if may_list else "applied", refuse)
    later, said = declare(installation, core("faces", **READ, **CACHE)), list[str]()
    entries = sweep(later, somebody, said.append)
    assert [entry.done for entry in entries] == ([False, False] if may_list else [])
    assert ("could not be removed: " if may_list else "are left alone: ") in "\n".join(said)
    assert secrets(installation, services) >= named(services, "vault", "store", "cache")
