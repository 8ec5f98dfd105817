"""Mirroring the tags of a repository between real registries."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace
from pathlib import Path

import pytest

from spillway.errors import DeletesRefused, Missing, Unreachable
from spillway.images.gate import require_image
from spillway.images.mirror import image_tree
from spillway.images.report import RepositoryReport, TagFate
from spillway.images.repository import mirror_tags, plan_repository
from spillway.model import MirroredRepository
from spillway.registries.base import ImageRegistry
from spillway.registries.digest import digest_of
from spillway.registries.http import HttpRegistry
from spillway.registries.layout import LayoutRegistry
from spillway.testing.images import put_image, put_index


def sync(
    source: ImageRegistry,
    destination: ImageRegistry,
    rules: MirroredRepository,
    *,
    siblings: Collection[str] = (),
    dry_run: bool = False,
    verify: bool = False,
) -> RepositoryReport:
    plan = plan_repository(source, destination, rules, verify=verify)
    return mirror_tags(source, destination, plan, refused={}, siblings=siblings, dry_run=dry_run)


def fates(report: RepositoryReport) -> dict[str, TagFate]:
    return {outcome.tag: outcome.fate for outcome in report.outcomes}


@pytest.fixture
def rules(repository: str) -> MirroredRepository:
    return MirroredRepository(repository=repository)


def lose(root: Path, repository: str, body: bytes) -> None:
    (root / repository / "blobs/sha256" / digest_of(body).removeprefix("sha256:")).unlink()


@pytest.fixture
def broken(tmp_path: Path, repository: str) -> LayoutRegistry:
    """Five tags, the third of which has lost its layer."""
    registry = LayoutRegistry(tmp_path)
    for number in range(1, 6):
        put_image(registry, repository, f"v{number}", layer=b"layer of %d" % number)
    lose(tmp_path, repository, b"layer of 3")
    return registry


def test_one_broken_tag_is_named_and_keeps_no_other_from_being_mirrored(
    broken: LayoutRegistry, cloud: HttpRegistry, rules: MirroredRepository
) -> None:
    report = sync(broken, cloud, rules)
    assert sorted(cloud.tags(rules.repository)) == ["v1", "v2", "v4", "v5"]
    (failure,) = report.failures
    assert failure.startswith("v3: ") and digest_of(b"layer of 3") in failure
    assert not report.ok


def test_the_next_run_moves_only_what_was_broken(
    broken: LayoutRegistry, cloud: HttpRegistry, rules: MirroredRepository
) -> None:
    sync(broken, cloud, rules)
    broken.put_blob(rules.repository, digest_of(b"layer of 3"), iter([b"layer of 3"]), size_bytes=10)
    report = sync(broken, cloud, rules)
    assert fates(report) == {f"v{n}": TagFate.COPIED if n == 3 else TagFate.UNCHANGED for n in range(1, 6)}
    assert report.ok


def test_a_layer_that_many_tags_share_is_sent_once(
    onprem: HttpRegistry, cloud: HttpRegistry, rules: MirroredRepository
) -> None:
    for number in range(6):
        put_image(onprem, rules.repository, f"v{number}", layer=bytes(100_000))
    report = sync(onprem, cloud, rules)
    assert report.count(TagFate.COPIED) == 6
    assert sum(outcome.blobs_copied for outcome in report.outcomes) == 7
    for number in range(6):
        assert cloud.manifest(rules.repository, f"v{number}") == onprem.manifest(rules.repository, f"v{number}")


def test_a_layer_that_another_repository_of_the_destination_has_is_not_sent(
    onprem: HttpRegistry, cloud: HttpRegistry, rules: MirroredRepository
) -> None:
    layer = bytes(2 * 2**20)
    put_image(onprem, rules.repository, "v1", layer=layer)
    put_image(cloud, f"{rules.repository}-base", "v1", layer=layer)
    planned = sync(onprem, cloud, rules, siblings=[f"{rules.repository}-base"], dry_run=True)
    report = sync(onprem, cloud, rules, siblings=["no/such", f"{rules.repository}-base"])
    (outcome,) = report.outcomes
    assert (outcome.blobs_mounted, report.bytes_copied < 1000) == (1, True)
    assert planned.bytes_copied == report.bytes_copied
    require_image(cloud, rules.repository, str(outcome.digest))


def test_a_dry_run_gives_the_same_fates_and_changes_nothing(
    onprem: HttpRegistry, cloud: HttpRegistry, rules: MirroredRepository
) -> None:
    put_image(onprem, rules.repository, "v1", layer=b"new")
    put_image(cloud, rules.repository, "v1", layer=b"old")
    put_index(onprem, rules.repository, "v2")
    planned = sync(onprem, cloud, rules, dry_run=True)
    assert cloud.tags(rules.repository) == ("v1",)
    assert planned.outcomes == sync(onprem, cloud, rules).outcomes
    assert fates(planned) == {"v1": TagFate.CONFLICT, "v2": TagFate.COPIED}


def test_an_index_that_lost_a_child_at_the_destination_is_repaired(
    tmp_path: Path, onprem: HttpRegistry, rules: MirroredRepository
) -> None:
    destination = LayoutRegistry(tmp_path)
    index = put_index(onprem, rules.repository, "v1")
    sync(onprem, destination, rules)
    lose(tmp_path, rules.repository, list(image_tree(onprem, rules.repository, index.digest))[2].body)
    assert fates(sync(onprem, destination, rules)) == {"v1": TagFate.COPIED}
    assert fates(sync(onprem, destination, rules)) == {"v1": TagFate.UNCHANGED}
    require_image(destination, rules.repository, index.digest)


def test_a_layer_that_the_destination_lost_is_found_where_all_is_verified(
    tmp_path: Path, onprem: HttpRegistry, rules: MirroredRepository
) -> None:
    destination = LayoutRegistry(tmp_path)
    put_image(onprem, rules.repository, "v1", layer=b"lost")
    sync(onprem, destination, rules)
    lose(tmp_path, rules.repository, b"lost")
    assert fates(sync(onprem, destination, rules)) == {"v1": TagFate.UNCHANGED}
    assert sync(onprem, destination, rules, verify=True).bytes_copied == 4


def test_signatures_go_with_the_images_that_go_and_with_those_below_them(
    tmp_path: Path, cloud: HttpRegistry, rules: MirroredRepository
) -> None:
    source = LayoutRegistry(tmp_path)
    image = put_image(source, rules.repository, "v1")
    left_out = put_image(source, rules.repository, "nightly", layer=b"nightly")
    below = next(image_tree(source, rules.repository, put_index(source, rules.repository, "v2").digest))
    signed = {name: f"{m.digest.replace(':', '-')}.sig" for name, m in [("v1", image), ("no", left_out), ("v2", below)]}
    for name, tag in signed.items():
        put_image(source, rules.repository, tag, layer=b"signature of %s" % name.encode())
    rules = replace(rules, tags=("v*",))
    report = sync(source, cloud, rules)
    assert sorted(cloud.tags(rules.repository)) == sorted(["v1", "v2", signed["v1"], signed["v2"]])
    reasons = {outcome.tag: outcome.reason for outcome in report.outcomes if outcome.fate is TagFate.SKIPPED}
    assert reasons == {
        "nightly": "matches none of the wanted patterns",
        signed["no"]: "belongs to an image that is not mirrored",
    }
    assert report.ok


def test_fewer_platforms_have_a_digest_of_their_own_beside_the_one_of_the_source(
    onprem: HttpRegistry, cloud: HttpRegistry, rules: MirroredRepository
) -> None:
    index = put_index(onprem, rules.repository, "v1")
    rules = replace(rules, platforms=("linux/arm64",))
    (first,) = sync(onprem, cloud, rules).outcomes
    (second,) = sync(onprem, cloud, rules).outcomes
    assert (first.fate, second.fate) == (TagFate.COPIED, TagFate.UNCHANGED)
    assert first.digest == second.digest == cloud.resolve(rules.repository, "v1") != index.digest
    assert first.source_digest == second.source_digest == index.digest
    assert len(list(image_tree(cloud, rules.repository, str(first.digest)))) == 3  # arm64, its attestation, the index
    require_image(cloud, rules.repository, str(first.digest))


def test_another_image_under_the_tag_is_no_smaller_index_and_stays_unless_tags_may_be_moved(
    onprem: HttpRegistry, cloud: HttpRegistry, rules: MirroredRepository
) -> None:
    put_index(onprem, rules.repository, "v1")
    other = put_image(cloud, rules.repository, "v1", layer=b"of somebody else")
    rules = replace(rules, platforms=("linux/arm64",))
    (outcome,) = sync(onprem, cloud, rules).outcomes
    assert (outcome.fate, outcome.digest) == (TagFate.CONFLICT, other.digest)
    assert cloud.resolve(rules.repository, "v1") == other.digest
    (outcome,) = sync(onprem, cloud, replace(rules, move_tags=True)).outcomes
    assert (outcome.fate, outcome.digest) == (TagFate.COPIED, cloud.resolve(rules.repository, "v1"))


def test_a_tag_without_one_of_its_platforms_fails_and_says_which_it_has(
    onprem: HttpRegistry, cloud: HttpRegistry, rules: MirroredRepository
) -> None:
    put_index(onprem, rules.repository, "v1")
    put_image(onprem, rules.repository, "v2")
    report = sync(onprem, cloud, replace(rules, platforms=("linux/amd64", "linux/riscv64")))
    (failure,) = report.failures
    assert "its index has no linux/riscv64; its platforms: linux/amd64, linux/arm64" in failure
    assert cloud.tags(rules.repository) == ("v2",)


def test_a_repository_that_does_not_exist_is_no_success(
    onprem: HttpRegistry, cloud: HttpRegistry, rules: MirroredRepository
) -> None:
    with pytest.raises(Missing, match=f"repository '{rules.repository}' is not in registry onprem"):
        sync(onprem, cloud, rules)


def test_a_registry_that_does_not_answer_ends_the_mirroring(
    onprem: HttpRegistry, rules: MirroredRepository, no_pauses: None
) -> None:
    put_image(onprem, rules.repository, "v1")
    with pytest.raises(Unreachable):
        sync(onprem, HttpRegistry(name="cloud", url="http://127.0.0.1:1"), rules)


@pytest.fixture
def eleven(onprem: HttpRegistry, cloud: HttpRegistry, rules: MirroredRepository) -> None:
    """Eleven tags at the destination, of which the source has ten."""
    for number in range(10):
        put_image(onprem, rules.repository, f"v{number}", layer=b"layer %d" % number)
    sync(onprem, cloud, rules)
    put_image(cloud, rules.repository, "v-old", layer=b"old")


@pytest.mark.usefixtures("eleven")
def test_a_tag_that_the_source_deleted_is_deleted_only_where_the_rules_say_so(
    onprem: HttpRegistry, cloud: HttpRegistry, rules: MirroredRepository
) -> None:
    for tag in ("by-hand", "v-old-dev"):
        put_image(cloud, rules.repository, tag, layer=tag.encode())
    assert fates(sync(onprem, cloud, rules))["v-old"] is TagFate.UNCHANGED
    deleting = replace(rules, tags=("v*",), exclude=("*-dev",), delete=True)
    assert fates(sync(onprem, cloud, deleting, dry_run=True))["v-old"] is TagFate.DELETED
    assert "v-old" in cloud.tags(rules.repository)
    report = sync(onprem, cloud, deleting)
    assert (report.ok, fates(report)["v-old"]) == (True, TagFate.DELETED)
    left = ["by-hand", "v-old-dev", *(f"v{number}" for number in range(10))]
    assert sorted(cloud.tags(rules.repository)) == left


@pytest.mark.usefixtures("eleven")
def test_a_deleted_tag_whose_image_has_another_one_stays_where_both_would_go(
    onprem: HttpRegistry, cloud: HttpRegistry, rules: MirroredRepository
) -> None:
    cloud.put_manifest(rules.repository, "by-hand", cloud.manifest(rules.repository, "v-old"))
    report = sync(onprem, cloud, replace(rules, tags=("v*",), delete=True))
    (failure,) = report.failures
    assert failure.startswith("v-old: ") and failure.endswith("which belongs to the tag by-hand too")
    assert {"v-old", "by-hand"} <= set(cloud.tags(rules.repository))


@pytest.mark.usefixtures("eleven")
def test_an_image_below_an_index_that_stays_is_not_deleted_with_its_tag(
    onprem: HttpRegistry, cloud: HttpRegistry, rules: MirroredRepository
) -> None:
    index = put_index(onprem, rules.repository, "v-all")
    sync(onprem, cloud, rules)
    cloud.put_manifest(rules.repository, "v-amd64", next(image_tree(cloud, rules.repository, index.digest)))
    report = sync(onprem, cloud, replace(rules, delete=True))
    (failure,) = report.failures
    assert failure.startswith("v-amd64: ") and failure.endswith("which belongs to the tag v-all too")
    require_image(cloud, rules.repository, index.digest)


@pytest.mark.usefixtures("eleven")
def test_a_signature_is_deleted_with_its_image_and_only_then(
    onprem: HttpRegistry, cloud: HttpRegistry, rules: MirroredRepository
) -> None:
    by_hand = put_image(cloud, rules.repository, "by-hand", layer=b"by hand")
    digests = {tag: cloud.resolve(rules.repository, tag) for tag in ("v1", "v-old")} | {"by-hand": by_hand.digest}
    signed = {tag: f"{str(digest).replace(':', '-')}.sig" for tag, digest in digests.items()}
    for tag in signed.values():
        put_image(cloud, rules.repository, tag, layer=b"made there")
    assert sync(onprem, cloud, replace(rules, tags=("v*",), delete=True)).ok
    left = set(cloud.tags(rules.repository))
    assert left == {"by-hand", signed["by-hand"], signed["v1"], *(f"v{number}" for number in range(10))}


def test_a_source_that_lost_its_tags_deletes_none(
    tmp_path: Path, cloud: HttpRegistry, rules: MirroredRepository
) -> None:
    put_image(cloud, rules.repository, "v1")
    with pytest.raises(DeletesRefused, match="the source lists no tags"):
        sync(LayoutRegistry(tmp_path), cloud, replace(rules, delete=True))
    assert cloud.tags(rules.repository) == ("v1",)


def test_nothing_is_deleted_in_a_run_in_which_a_tag_fails(
    broken: LayoutRegistry, cloud: HttpRegistry, rules: MirroredRepository
) -> None:
    for number in range(5):
        put_image(broken, rules.repository, f"w{number}")
    put_image(cloud, rules.repository, "v-old", layer=b"old")
    sync(broken, cloud, rules)
    report = sync(broken, cloud, replace(rules, delete=True))
    assert fates(report)["v-old"] is TagFate.UNCHANGED
    assert "v-old" in cloud.tags(rules.repository)
