"""``images sync``: what is declared or asked for goes by digest, once, where its tier may be stored."""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable

import pytest
import yaml

from spillway.ledger import TransferKind, TransferOutcome
from spillway.registries.digest import digest_of
from spillway.runs.services import Services
from spillway.testing.command_line import Spillway
from spillway.testing.images import put_image
from spillway.testing.sandbox_server import Installation

IMAGE = "train:numpy2.4.6-py3.11"


def test_an_image_moves_once_and_a_dry_run_moves_nothing(spillway: Spillway, services: Services) -> None:
    assert spillway("images", "sync", IMAGE, "onprem").out == f"image {IMAGE} is at home at onprem: nothing to do\n"
    assert json.loads(spillway("images", "sync", IMAGE, "onprem", "--json").out) == []
    planned = spillway("images", "sync", IMAGE, "cloud", "--tier", "public", "--dry-run")
    assert planned.code == 0 and planned.out.startswith(f"would mirror {IMAGE} to cloud (sha256:")
    assert services.ledger.transfers() == ()
    assert spillway("images", "sync", IMAGE, "cloud", "--tier", "public").code == 0
    again = spillway("images", "sync", IMAGE, "cloud", "--tier", "public")
    assert again.out.endswith(" is at cloud: 0 bytes moved\n")
    digests = {services.site(site).registry.resolve(*IMAGE.split(":")) for site in ("onprem", "cloud")}
    assert len(digests) == 1 and None not in digests


def test_an_image_that_does_not_exist_is_told_as_such_before_its_tier_is_asked(spillway: Spillway) -> None:
    answer = spillway("images", "sync", "train:nope", "cloud")
    assert answer.code == 1 and answer.err.startswith("spillway: image 'train:nope' is not in registry onprem (")
    assert answer.err.endswith(f"; its tags: {IMAGE.partition(':')[2]}\n")


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
    services: Services,
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
    answer = spillway("images", "sync", IMAGE, "cloud", *words, "--dry-run")
    assert answer.code == code
    assert ("may not be stored at 'cloud'" in answer.err) is (code == 1)
    refused = [(TransferKind.IMAGE, TransferOutcome.REFUSED, "cloud")] * code
    assert [(line.kind, line.outcome, line.destination) for line in services.ledger.transfers()] == refused


@pytest.fixture
def declare(installation: Installation) -> Callable[..., str]:
    """Declares a repository, of its own for the test, with these fields; gives its name."""
    repository = f"base/{uuid.uuid4().hex[:8]}"

    def write(**fields: object) -> str:
        declared = {"images": [{"repository": repository, "tier": "public"} | fields]}
        (installation.config / "images.yaml").write_text(yaml.safe_dump(declared))
        return repository

    return write


def test_everything_that_is_declared_goes_and_a_broken_part_keeps_no_other(
    spillway: Spillway, services: Services, declare: Callable[..., str], change_job: Callable[..., None]
) -> None:
    repository = declare(tags=["v*"])
    change_job(image="train:not-pushed-yet")
    registry = services.site("onprem").registry
    for tag in ("v1", "v2", "nightly"):
        put_image(registry, repository, tag, layer=tag.encode())
    planned = spillway("images", "sync", "--dry-run", "--json")
    assert services.site("cloud").registry.tags(repository) == ()
    answer = spillway("images", "sync")
    assert (planned.code, answer.code) == (1, 1)
    assert sorted(services.site("cloud").registry.tags(repository)) == ["v1", "v2"]
    assert f"repository {repository} to cloud: 2 copied, 1 skipped; " in answer.out
    assert "image 'train:not-pushed-yet' is not in registry onprem" in answer.err
    found = {line["name"]: line for line in json.loads(planned.out)}
    assert found["train:not-pushed-yet"]["problem"] in answer.err
    fates = {outcome["tag"]: outcome["fate"] for outcome in found[repository]["outcomes"]}
    assert fates == {"nightly": "skipped", "v1": "copied", "v2": "copied"}
    moved = [line for line in services.ledger.transfers() if line.outcome is TransferOutcome.COPIED]
    assert {line.name for line in moved} == {
        f"{repository}@{registry.resolve(repository, tag)}" for tag in ("v1", "v2")
    }


def test_one_repository_may_be_asked_for_and_a_second_run_moves_nothing(
    spillway: Spillway, services: Services, declare: Callable[..., str]
) -> None:
    repository = declare()
    put_image(services.site("onprem").registry, repository, "v1")
    first, second = spillway("images", "sync", repository), spillway("images", "sync", repository, "cloud", "--verify")
    assert (first.code, second.code) == (0, 0)
    assert second.out == f"repository {repository} to cloud: 1 unchanged; 0 bytes\n"


def test_a_layer_that_a_site_has_lost_is_looked_for_where_that_is_asked_for(
    spillway: Spillway, services: Services, installation: Installation, declare: Callable[..., str]
) -> None:
    repository = declare()
    put_image(services.site("onprem").registry, repository, "v1", layer=b"lost")
    assert spillway("images", "sync", repository).code == 0
    stored = installation.sandbox.state / "cloud/registry/images/docker/registry/v2/repositories" / repository
    (stored / "_layers/sha256" / digest_of(b"lost").removeprefix("sha256:") / "link").unlink()
    for words, said in (((), "1 unchanged; 0 bytes"), (("--verify",), "1 copied; 4 bytes")):
        answer = spillway("images", "sync", repository, *words)
        assert answer.out.endswith(f"repository {repository} to cloud: {said}\n")


def test_more_tags_than_the_guard_allows_are_deleted_only_where_somebody_says_how_many(
    spillway: Spillway, services: Services, declare: Callable[..., str]
) -> None:
    repository = declare(delete=True)
    home, cloud = (services.site(site).registry for site in ("onprem", "cloud"))
    for number in range(3):
        put_image(home, repository, f"v{number}", layer=b"%d" % number)
    put_image(cloud, repository, "gone", layer=b"gone")
    put_image(cloud, repository, "v0", layer=b"0")
    refused = spillway("images", "sync", repository)
    assert (refused.code, "this would delete 1 of 2 tags (50%)" in refused.err) == (1, True)
    assert spillway("images", "sync", repository, "--delete-up-to", "50", "--dry-run").code == 0
    assert sorted(cloud.tags(repository)) == ["gone", "v0"]
    assert spillway("images", "sync", repository, "--delete-up-to", "50").code == 0
    assert sorted(cloud.tags(repository)) == ["v0", "v1", "v2"]


def test_a_tag_that_core_work_uses_stays_and_the_others_go(
    spillway: Spillway, services: Services, declare: Callable[..., str], change_job: Callable[..., None]
) -> None:
    repository = declare()
    registry = services.site("onprem").registry
    put_image(registry, repository, "secret", layer=b"made from faces")
    registry.put_manifest(repository, "same-bytes", registry.manifest(repository, "secret"))
    put_image(registry, repository, "open", layer=b"made from digits")
    change_job(image=f"{repository}:secret", dataset=None, tier="core")
    answer = spillway("images", "sync", repository)
    assert answer.code == 1
    assert services.site("cloud").registry.tags(repository) == ("open",)
    assert "2 tags of repository" in answer.err and "of core data uses it" in answer.err
    refused = [line for line in services.ledger.transfers() if line.outcome is TransferOutcome.REFUSED]
    assert {(line.tier, line.destination) for line in refused} == {("core", "cloud")}
