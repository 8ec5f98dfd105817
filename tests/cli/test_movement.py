"""``sync`` and ``images``: what is missing moves once, a dry run moves nothing, residency is kept."""

from __future__ import annotations

import pytest
import yaml

from spillway.runs.services import Services
from spillway.stores.base import ObjectStore
from spillway.testing.command_line import Spillway
from spillway.testing.sandbox_server import Installation

IMAGE = "train:numpy2.4.6-py3.11"


@pytest.fixture
def empty_cloud(services: Services) -> ObjectStore:
    """The cloud's dataset bucket, without any object."""
    store = services.site("cloud").datasets
    store.delete([entry.key for entry in store.list()])
    return store


def keys(store: ObjectStore) -> set[str]:
    return {entry.key for entry in store.list("digits/")}


def test_a_dry_run_of_a_sync_copies_nothing(spillway: Spillway, services: Services, empty_cloud: ObjectStore) -> None:
    answer = spillway("sync", "digits", "cloud", "--dry-run")
    assert answer.code == 0
    assert answer.out.count("would be copied") == 8
    assert answer.out.splitlines()[-1].startswith("dataset digits from onprem to cloud: would copy 8 objects, ")
    assert (keys(empty_cloud), services.ledger.transfers()) == (set(), ())


def test_a_second_sync_copies_nothing(spillway: Spillway, services: Services, empty_cloud: ObjectStore) -> None:
    first, second = spillway("sync", "digits", "cloud"), spillway("sync", "digits", "cloud")
    assert (first.code, second.code) == (0, 0)
    assert "copied 8 objects, " in first.out and first.out.endswith("; 0 unchanged\n")
    assert second.out == "dataset digits from onprem to cloud: copied 0 objects, 0 bytes; 8 unchanged\n"
    assert keys(empty_cloud) == keys(services.site("onprem").datasets)


def test_a_dataset_at_its_home_has_nothing_to_do(spillway: Spillway) -> None:
    answer = spillway("sync", "digits", "onprem")
    assert (answer.code, answer.out) == (0, "dataset digits is at home at onprem: nothing to do\n")


def test_core_data_does_not_leave_its_home(
    installation: Installation, spillway: Spillway, empty_cloud: ObjectStore
) -> None:
    file = installation.config / "datasets.yaml"
    file.write_text(file.read_text().replace("tier: public", "tier: core"))
    answer = spillway("sync", "digits", "cloud")
    assert answer.code == 1
    assert "is of tier 'core' and may not be stored at 'cloud' (its home is 'onprem')" in answer.err
    assert keys(empty_cloud) == set()


def test_an_image_moves_once_and_a_dry_run_moves_nothing(spillway: Spillway, services: Services) -> None:
    assert spillway("images", IMAGE, "onprem").out == f"image {IMAGE} is at home at onprem: nothing to do\n"
    planned = spillway("images", IMAGE, "cloud", "--tier", "public", "--dry-run")
    assert planned.code == 0 and planned.out.startswith(f"would mirror {IMAGE} to cloud (sha256:")
    assert services.ledger.transfers() == ()
    assert spillway("images", IMAGE, "cloud", "--tier", "public").code == 0
    again = spillway("images", IMAGE, "cloud", "--tier", "public")
    assert again.out.endswith(" is at cloud: 0 bytes moved\n")
    digests = {services.site(site).registry.resolve(*IMAGE.split(":")) for site in ("onprem", "cloud")}
    assert len(digests) == 1 and None not in digests


@pytest.mark.parametrize(
    ("job_tier", "words", "code"),
    [
        pytest.param(None, (), 1, id="no job names it: core unless said otherwise"),
        pytest.param("core", ("--tier", "public"), 1, id="a job of core data names it"),
        pytest.param("public", (), 0, id="only jobs of public data name it"),
    ],
)
def test_an_image_goes_where_the_data_of_its_jobs_may_go(
    spillway: Spillway,
    installation: Installation,
    change_job: object,
    job_tier: str | None,
    words: tuple[str, ...],
    code: int,
) -> None:
    assert callable(change_job)
    file = installation.config / "datasets.yaml"
    file.write_text(yaml.safe_dump({"datasets": []}))
    change_job(image=IMAGE if job_tier else "train:another", dataset=None, tier=job_tier)
    answer = spillway("images", IMAGE, "cloud", *words, "--dry-run")
    assert answer.code == code
    assert ("may not be stored at 'cloud'" in answer.err) is (code == 1)
