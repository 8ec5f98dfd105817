"""A job that reads the public part of a mixed dataset alone: in the cloud, and beside the core data at its home."""

from __future__ import annotations

import base64
from collections.abc import Iterator
from typing import Any

import pytest
import yaml

from spillway.errors import AccessDenied, ResidencyRefused
from spillway.ledger import TransferOutcome
from spillway.model import Attempt, AttemptState, DatasetUse, Tier, VerdictKind
from spillway.runs.launching import launch
from spillway.runs.pod_access import access_objects
from spillway.runs.services import Services
from spillway.runs.settling import Ended, settle
from spillway.runs.sites import bucket
from spillway.runs.staging import stage
from spillway.stores.base import read_all
from spillway.stores.entries import read_copy
from spillway.sync.manifest import manifest_key
from spillway.testing.carried_run import Carried
from spillway.testing.polling import eventually
from spillway.testing.sandbox_server import Installation

DIGITS = {"name": "digits", "home": "onprem", "prefix": "digits/", "tier": "public"}
MIXED: dict[str, Any] = {
    "name": "mixed",
    "home": "onprem",
    "prefix": "",
    "include": ["digits/*", "faces/*"],
    "rules": [{"prefix": "digits/", "tier": "public"}],
}
PART: dict[str, Any] = {"datasets": (DatasetUse(name="mixed", part=Tier.PUBLIC),)}
CORE_KEY = "faces/no-digits.csv"


def declare(installation: Installation, *datasets: dict[str, Any]) -> None:
    (installation.config / "datasets.yaml").write_text(yaml.safe_dump({"datasets": [DIGITS, *datasets]}))


@pytest.fixture
def services(installation: Installation) -> Iterator[Services]:
    """Services of sites of which the on-premises one holds a core object that no training could read as digits."""
    declare(installation, MIXED)
    made = installation.services()
    store = made.site("onprem").datasets
    store.put(CORE_KEY, b"core", size_bytes=4)
    yield made
    store.delete([CORE_KEY])


def identity_of(services: Services, attempt: Attempt) -> str:
    secret = next(
        one for one in access_objects(services, attempt) if "SPILLWAY_STORE_ACCESS_KEY" in one.get("data", {})
    )
    return base64.b64decode(secret["data"]["SPILLWAY_STORE_ACCESS_KEY"]).decode()


def test_a_run_begins_beside_the_core_data_without_reading_it_and_goes_on_in_the_cloud(
    services: Services, open_run: Any, make_job: Any
) -> None:
    run: Carried = open_run(make_job(steps=100_000, every=1, pace=0.1, **PART))
    first = run.launched()
    assert (first.candidate.cluster, identity_of(services, first)) == ("onprem", "onprem-public-pods")
    store = services.site("onprem").datasets
    recorded = {key for key, _ in read_copy(store, manifest_key("mixed@public"))}
    assert recorded == {entry.key for entry in store.list("digits/")}
    theirs = bucket(services.connect("onprem_store_public_pods"), "datasets", "onprem")
    with pytest.raises(AccessDenied):
        read_all(theirs, CORE_KEY)
    eventually(lambda: run.committed("onprem"), bool)

    settle(services, first, Ended(kind=VerdictKind.LOST_NODE, reason="node lost"))
    away = run.launched()
    assert (away.candidate.cluster, identity_of(services, away)) == ("cloud", "cloud-pods")
    assert away.resumed_from_step in run.committed("cloud")
    there = services.site("cloud").datasets
    assert {key for key, _ in read_copy(there, manifest_key("mixed"))} == recorded
    assert list(there.list("faces/")) == []


@pytest.mark.parametrize(
    ("loss", "expected"),
    [
        ("rules", "make no object public any more"),
        ("folder", "1 object of it left public by its rules"),
        ("identity", "name public_pod_connection"),
    ],
)
def test_a_part_that_is_no_more_or_could_not_be_read_alone_is_refused_at_the_launch(
    installation: Installation, services: Services, open_run: Any, make_job: Any, loss: str, expected: str
) -> None:
    run: Carried = open_run(make_job(**PART))
    store = services.site("onprem").datasets
    if loss == "folder":
        store.put("digits/shut/1", b"core by now", size_bytes=11)
    staged = stage(services, run.place(), run.said.append)
    assert staged.candidate.cluster == "onprem"
    if loss == "rules":
        declare(installation, MIXED | {"rules": [], "include": ["faces/*"], "prefix": "faces/"})
    elif loss == "folder":
        store.delete(["digits/shut/1"])
        declare(installation, MIXED | {"rules": [*MIXED["rules"], {"prefix": "digits/shut/", "tier": "core"}]})
    else:
        file = installation.config / "clusters.yaml"
        clusters = yaml.safe_load(file.read_text())
        for cluster in clusters["clusters"]:
            del cluster["object_store"]["public_pod_connection"]
        file.write_text(yaml.safe_dump(clusters))
    later = installation.services()
    with pytest.raises(ResidencyRefused, match=expected):
        launch(later, staged, run.said.append)
    assert later.ledger.attempt(run.run, 1).state is AttemptState.STAGED
    (line,) = [line for line in later.ledger.transfers(run.run) if line.outcome is TransferOutcome.REFUSED]
    assert (line.name, line.tier, line.destination) == ("mixed", Tier.CORE, "onprem")
