"""Whole repositories of images: where they go, what the transfer log says of them, and what stays."""

from __future__ import annotations

import json
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest

from spillway.config import Configuration, load_image_uses
from spillway.errors import InvalidImage, ResidencyRefused
from spillway.images.report import TagFate
from spillway.ledger import TransferKind, TransferOutcome, ledger_opener
from spillway.model import AttemptState, Cluster, JobSpec, MirroredRepository, RunPolicy, Tier
from spillway.registries.base import ImageRegistry, Manifest
from spillway.registries.content import children
from spillway.registries.digest import digest_of, label
from spillway.registries.layout import LayoutRegistry
from spillway.runs.distribution import Route, repository_routes
from spillway.runs.moving_images import copy_image, copy_repository
from spillway.runs.residency import core_images
from spillway.runs.services import Services, Site
from spillway.testing.builders import (
    NOW,
    cloud_cluster,
    image_use,
    job_spec,
    onprem_cluster,
    placement_policy,
)
from spillway.testing.folder_sites import folder_sites
from spillway.testing.images import OCI_INDEX, OCI_MANIFEST, descriptor, put_image, put_index
from spillway.testing.ledger_files import new_ledger
from spillway.testing.ledger_values import reserve

PUBLIC = MirroredRepository(repository="base", tier=Tier.PUBLIC)
CLUSTERS = {
    "onprem": onprem_cluster(),
    "cloud": cloud_cluster(),
    "vault": cloud_cluster(name="vault", residency=frozenset({Tier.CORE})),
}


@pytest.fixture
def services(tmp_path: Path) -> Services:
    """A home, a cloud site for public images and one for all; no job."""
    url = new_ledger(tmp_path / "ledger.db")
    configuration = Configuration(clusters=CLUSTERS, datasets={}, policy=placement_policy(), runs=RunPolicy())
    return Services(
        configuration=configuration,
        open_ledger=ledger_opener(lambda: url),
        open_site=folder_sites(tmp_path),
        image_uses=list,
        clock=lambda: NOW,
    )


@pytest.fixture
def home(services: Services) -> ImageRegistry:
    return services.site("onprem").registry


def declared(services: Services, *repositories: MirroredRepository) -> Services:
    known = {one.repository: one for one in repositories}
    return replace(services, configuration=replace(services.configuration, repositories=known))


def used_by(services: Services, job: JobSpec) -> Services:
    return replace(services, image_uses=lambda: [image_use(job)])


def logged(services: Services) -> list[tuple[TransferOutcome, str, Tier, str]]:
    lines = [line for line in services.ledger.transfers() if line.kind is TransferKind.IMAGE]
    return [(line.outcome, line.name, line.tier, line.destination) for line in lines]


def test_a_repository_belongs_at_each_of_its_sites_that_may_hold_its_tier(services: Services) -> None:
    core = MirroredRepository(repository="faces")
    chosen = replace(PUBLIC, repository="eval", sites=("vault", "onprem"))
    assert repository_routes(declared(services, PUBLIC, core, chosen)) == (
        Route(name="base", site="cloud", tier=Tier.PUBLIC),
        Route(name="base", site="vault", tier=Tier.PUBLIC),
        Route(name="eval", site="vault", tier=Tier.PUBLIC),
        Route(name="faces", site="vault", tier=Tier.CORE),
    )


def test_each_tag_that_moves_is_a_line_and_none_that_is_as_it_was(services: Services, home: ImageRegistry) -> None:
    digests = {put_image(home, "base", tag, layer=tag.encode()).digest for tag in ("v1", "v2")}
    assert copy_repository(services, PUBLIC, "cloud", dry_run=True).ok
    assert logged(services) == []
    assert copy_repository(services, PUBLIC, "cloud").ok
    lines = {(TransferOutcome.COPIED, label("base", digest), Tier.PUBLIC, "cloud") for digest in digests}
    assert set(logged(services)) == lines
    assert copy_repository(services, PUBLIC, "cloud").ok
    assert len(logged(services)) == 2


def test_a_layer_that_another_declared_repository_of_the_site_has_is_not_sent(
    services: Services, home: ImageRegistry
) -> None:
    both = declared(services, PUBLIC, replace(PUBLIC, repository="eval"))
    for name in ("base", "eval"):
        put_image(home, name, "v1", layer=bytes(2 * 2**20))
    assert copy_repository(both, PUBLIC, "cloud").bytes_copied > 2 * 2**20
    (outcome,) = copy_repository(both, replace(PUBLIC, repository="eval"), "cloud").outcomes
    assert (outcome.blobs_mounted, outcome.bytes_copied < 1000) == (1, True)


def test_fewer_platforms_are_logged_with_the_index_that_they_are_of(services: Services, home: ImageRegistry) -> None:
    index = put_index(home, "base", "v1")
    (outcome,) = copy_repository(services, replace(PUBLIC, platforms=("linux/amd64",)), "cloud").outcomes
    (line,) = services.ledger.transfers()
    assert (line.name, line.reason) == (label("base", str(outcome.digest)), f"fewer platforms of {index.digest}")


def test_a_core_repository_does_not_go_where_core_may_not_be(services: Services, home: ImageRegistry) -> None:
    put_image(home, "faces", "v1")
    with pytest.raises(ResidencyRefused, match=r"declare another tier in images\.yaml"):
        copy_repository(services, MirroredRepository(repository="faces"), "cloud")
    assert logged(services) == [(TransferOutcome.REFUSED, "faces", Tier.CORE, "cloud")]
    assert services.site("cloud").registry.tags("faces") == ()


@pytest.mark.parametrize("image", ["base:secret", "other:the-same-bytes"])
def test_a_tag_that_core_work_uses_by_whatever_name_stays_alone(
    services: Services, home: ImageRegistry, image: str
) -> None:
    secret = put_image(home, "base", "secret", layer=b"made from faces")
    put_image(home, "other", "the-same-bytes", layer=b"made from faces", labels={"tag": "secret"})
    put_image(home, "base", "open", layer=b"made from digits")
    core = used_by(services, job_spec(name="faces", image=image, tier=Tier.CORE))
    report = copy_repository(core, PUBLIC, "cloud")
    (failure,) = report.failures
    assert failure.startswith("secret: ") and "job 'faces' of core data uses it" in failure
    assert services.site("cloud").registry.tags("base") == ("open",)
    assert (TransferOutcome.REFUSED, label("base", secret.digest), Tier.CORE, "cloud") in logged(services)
    assert copy_repository(core, PUBLIC, "vault").ok


@pytest.mark.parametrize(("core", "public"), [("base:v2-amd64", "base:v2"), ("base:v2", "base:v2-amd64")])
def test_an_index_and_an_image_below_it_are_the_same_bytes(
    services: Services, home: ImageRegistry, core: str, public: str
) -> None:
    below = children(put_index(home, "base", "v2"))[0].digest
    home.put_manifest("base", "v2-amd64", home.manifest("base", below))
    put_image(home, "base", "open", layer=b"made from digits")
    mixed = used_by(services, job_spec(name="faces", image=core, tier=Tier.CORE))
    assert set(core_images(mixed, [public, f"base@{below}", "base:open"])) == {public, f"base@{below}"}
    with pytest.raises(ResidencyRefused, match="job 'faces' of core data uses it"):
        copy_image(mixed, *public.split(":"), "cloud", tier=Tier.PUBLIC)
    assert not copy_repository(mixed, PUBLIC, "cloud").ok
    assert services.site("cloud").registry.tags("base") == ("open",)


def test_an_index_that_cannot_be_read_is_only_its_own_problem_unless_core_work_uses_it(
    services: Services, home: ImageRegistry
) -> None:
    put_image(home, "base", "v1")
    body = json.dumps({"schemaVersion": 2, "mediaType": OCI_INDEX, "manifests": [{}]}).encode()
    broken = f"base@{digest_of(body)}"
    home.put_blob("base", digest_of(body), iter([body]), size_bytes=len(body))
    assert core_images(used_by(services, job_spec(image="base:v1", tier=Tier.CORE)), [broken]) == {}
    with pytest.raises(InvalidImage):
        core_images(used_by(services, job_spec(image=broken, tier=Tier.CORE)), ["base:v1"])


def stored(tmp_path: Path, canary: bytes) -> list[Path]:
    """The files of the cloud's registry that hold the canary."""
    return [
        file for file in (tmp_path / "cloud" / "images").rglob("*") if file.is_file() and canary in file.read_bytes()
    ]


@pytest.mark.parametrize("there_before", [False, True])
def test_what_belongs_to_a_core_image_stays_with_it(
    services: Services, home: ImageRegistry, tmp_path: Path, there_before: bool
) -> None:
    secret = put_image(home, "base", "secret", layer=b"made from faces")
    index = put_index(home, "base", "many")
    opened = put_image(home, "base", "open", layer=b"made from digits")
    if there_before:
        assert copy_repository(services, PUBLIC, "cloud").ok
    subjects = [secret.digest, index.digest, *(child.digest for child in children(index))]
    tags = [f"{subject.replace(':', '-')}{kind}" for subject in subjects for kind in ("", ".sig", ".att", ".sbom")]
    for tag in tags:
        put_image(home, "base", tag, layer=b"canary of %s" % tag.encode())
    signed = f"{opened.digest.replace(':', '-')}.sig"
    put_image(home, "base", signed, layer=b"signature of open")
    arm64 = f"base@{children(index)[2].digest}"
    uses = [image_use(job_spec(name=name, image=name, tier=Tier.CORE)) for name in ("base:secret", arm64)]
    report = copy_repository(replace(services, image_uses=lambda: uses), PUBLIC, "cloud")
    assert {outcome.tag for outcome in report.outcomes if outcome.fate is TagFate.REFUSED} >= set(tags)
    assert stored(tmp_path, b"signature of open") and not stored(tmp_path, b"canary")
    assert {"open", signed} <= set(services.site("cloud").registry.tags("base"))


class Listing(LayoutRegistry):
    """A layout that lists what refers to an image, as many registries do."""

    def referrers(self, repository: str, digest: str) -> Manifest:
        signature = put_image(self, repository, None, layer=b"canary of %s" % digest.encode())
        body = json.dumps({"schemaVersion": 2, "manifests": [descriptor(signature.body, OCI_MANIFEST)]}).encode()
        return Manifest(digest=digest_of(body), media_type=OCI_INDEX, body=body)


@pytest.mark.parametrize("there_before", [False, True])
def test_what_a_registry_lists_of_a_core_image_stays_with_it(
    services: Services, home: ImageRegistry, tmp_path: Path, there_before: bool
) -> None:
    secret = put_image(home, "base", "secret", layer=b"made from faces")
    opened = put_image(home, "base", "open", layer=b"made from digits")
    if there_before:
        assert copy_repository(services, PUBLIC, "cloud").ok
    services.forget("onprem")

    def open_site(cluster: Cluster) -> Site:
        site = services.open_site(cluster)
        return replace(site, registry=Listing(tmp_path / "onprem/images")) if cluster.name == "onprem" else site

    core = used_by(services, job_spec(image="base:secret", tier=Tier.CORE))
    copy_repository(replace(core, open_site=open_site), PUBLIC, "cloud")
    assert stored(tmp_path, b"canary of %s" % opened.digest.encode())
    assert not stored(tmp_path, b"canary of %s" % secret.digest.encode())


def test_while_a_job_file_cannot_be_read_no_tag_is_deleted(
    services: Services, home: ImageRegistry, tmp_path: Path
) -> None:
    for number in range(9):
        put_image(home, "base", f"v{number}", layer=b"layer %d" % number)
    put_image(services.site("vault").registry, "base", "old", layer=b"old")
    (tmp_path / "jobs").mkdir()
    (tmp_path / "jobs" / "broken.yaml").write_text("name: [")
    broken = replace(services, image_uses=partial(load_image_uses, tmp_path / "jobs", {}))
    report = copy_repository(broken, replace(PUBLIC, delete=True), "vault", delete_share_max=1.0)
    told = {one.tag: (one.fate, one.reason) for one in report.outcomes if one.tag == "old"}
    assert told["old"][0] is TagFate.UNCHANGED and "until this is repaired: broken.yaml" in told["old"][1]
    assert "old" in services.site("vault").registry.tags("base")


def test_a_tag_that_a_job_names_or_a_run_was_started_from_is_not_deleted(
    services: Services, home: ImageRegistry
) -> None:
    for number in range(20):
        put_image(home, "base", f"v{number}", layer=b"layer %d" % number)
    cloud = services.site("cloud").registry
    copy_repository(services, PUBLIC, "cloud")
    trained = put_image(cloud, "base", "trained", layer=b"trained")
    signed = f"{trained.digest.replace(':', '-')}.sig"
    for tag in (signed, "named", "old"):
        put_image(cloud, "base", tag, layer=tag.encode())
    attempt, _ = reserve(services.ledger, "digits-1", job_spec(image="base:trained"))
    assert attempt is not None
    services.ledger.advance(attempt, AttemptState.STAGED, image_digest=trained.digest)
    named = used_by(services, job_spec(name="other", image="base:named"))
    report = copy_repository(named, replace(PUBLIC, delete=True), "cloud")
    told = {one.tag: (one.fate, one.reason) for one in report.outcomes if not one.tag.startswith("v")}
    by_run = "run 'digits-1' is open or ended a short while ago, and was started from it"
    assert told == {
        "named": (TagFate.UNCHANGED, "job 'other' names it"),
        "trained": (TagFate.UNCHANGED, by_run),
        signed: (TagFate.UNCHANGED, by_run),
        "old": (TagFate.DELETED, "the source no longer has it"),
    }
