"""A job that reads several datasets: each is staged, verified and told to its pod, or nothing starts."""

from __future__ import annotations

import base64
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
import yaml

from spillway.checkpoints.store import ResumePoint
from spillway.errors import Missing
from spillway.ledger import TransferKind
from spillway.model import DatasetUse, Tier
from spillway.runs.launching import pod_environment
from spillway.runs.planning import plan
from spillway.runs.pod_access import access_objects
from spillway.runs.services import Services
from spillway.runs.staging import stage
from spillway.testing.carried_run import Carried
from spillway.testing.sandbox_server import Installation
from spillway.trainer.contract import read_contract
from spillway.trainer.data import object_versions

DIGITS = {"name": "digits", "home": "onprem", "prefix": "digits/", "tier": "public"}
LETTERS = {"name": "letters", "home": "onprem", "prefix": "public/letters/", "tier": "public"}
KEY = "public/letters/a"
BOTH = (DatasetUse(name="digits"), DatasetUse(name="letters"))


@pytest.fixture
def services(installation: Installation) -> Iterator[Services]:
    (installation.config / "datasets.yaml").write_text(yaml.safe_dump({"datasets": [DIGITS, LETTERS]}))
    made = installation.services()
    made.site("onprem").datasets.put(KEY, b"letter", size_bytes=6)
    yield made
    for site in ("onprem", "cloud"):
        made.site(site).datasets.delete([KEY])


def test_each_is_brought_there_verified_and_found_by_its_name_with_the_identity_of_the_pod(
    services: Services, open_run: Any, make_job: Any
) -> None:
    run: Carried = open_run(make_job(gpu_model="H100", datasets=BOTH))
    attempt = stage(services, run.place(), run.said.append)
    lines = [line for line in services.ledger.transfers(run.run) if line.kind is TransferKind.DATASET]
    assert [(line.name, line.destination) for line in lines] == [("digits", "cloud"), ("letters", "cloud")]

    environment = pod_environment(services, attempt, ResumePoint(manifest=None), None)
    for secret in access_objects(services, attempt):
        for name, value in secret["data"].items() if secret["kind"] == "Secret" else ():
            environment |= {name: base64.b64decode(value).decode()}
    contract = read_contract(environment)
    data = contract.store.bucket(contract.dataset_bucket)
    assert list(object_versions(data, contract.dataset_of("letters"))) == [KEY]
    assert object_versions(data, contract.dataset_of(None)) == object_versions(data, contract.dataset_of("digits"))


def test_one_that_is_nowhere_starts_nothing(services: Services, open_run: Any, make_job: Any) -> None:
    services.site("onprem").datasets.delete([KEY])
    run: Carried = open_run(make_job(gpu_model="H100", datasets=BOTH))
    with pytest.raises(Missing, match="dataset 'letters' is not in"):
        stage(services, run.place(), run.said.append)
    assert run.attempts[-1].image_digest is None


def test_where_one_is_core_the_job_is_for_sites_that_may_store_it(
    installation: Installation, make_job: Any, services: Services
) -> None:
    core = LETTERS | {"tier": "core", "remote_read": {"connection": "onprem_store_remote"}}
    (installation.config / "datasets.yaml").write_text(yaml.safe_dump({"datasets": [DIGITS, core]}))
    job = replace(make_job(gpu_model="H100", datasets=BOTH), tier=Tier.CORE, image_tier=Tier.PUBLIC)
    told = plan(installation.services(), job)
    assert told.fails
    assert "it reads digits of onprem, letters of onprem, and over the link a job reads one dataset alone" in told.text
