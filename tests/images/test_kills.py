"""A mirroring that is killed at any moment: the next one completes it, and sends nothing again that had arrived."""

from __future__ import annotations

import os
import random
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path

import pytest

from spillway.images.gate import require_image
from spillway.images.mirror import image_tree
from spillway.images.repository import mirror_tags, plan_repository
from spillway.model import MirroredRepository
from spillway.registries.content import blobs
from spillway.registries.http import HttpRegistry
from spillway.testing.images import put_image
from spillway.testing.registry_server import RegistryServer

INCLUDE = Path(__file__).resolve().parents[2] / "include"
TAGS = [f"v{number}" for number in range(12)]
LAYER_BYTES = 1_500_000
LONGEST_SECONDS = 1.5
MIRRORING = """
import sys
from spillway.images.repository import mirror_tags, plan_repository
from spillway.model import MirroredRepository
from spillway.registries.http import HttpRegistry

repository, *ends = sys.argv[1:]
source, destination = (HttpRegistry(name=n, url=u, username=w, password=p) for n, u, w, p in zip(*[iter(ends)] * 4))
print("begins", flush=True)
plan = plan_repository(source, destination, MirroredRepository(repository=repository))
mirror_tags(source, destination, plan, refused={})
"""


def killed_mirroring(registries: Mapping[str, RegistryServer], repository: str, *, after_seconds: float) -> None:
    """Begin in a process of its own and kill that so long after its first request."""
    words = [word for s in registries.values() for word in (s.name, s.url, s.username, s.password)]
    with subprocess.Popen(
        [sys.executable, "-c", MIRRORING, repository, *words],
        env={**os.environ, "PYTHONPATH": str(INCLUDE)},
        stdout=subprocess.PIPE,
    ) as process:
        assert process.stdout is not None and process.stdout.readline() == b"begins\n"
        time.sleep(after_seconds)
        process.kill()


def arrived(source: HttpRegistry, destination: HttpRegistry, repository: str) -> tuple[int, int]:
    """The bytes of all layers and configurations of the source's tags, and of those that the destination has."""
    needed = {
        blob.digest: blob.size_bytes
        for tag in source.tags(repository)
        for manifest in image_tree(source, repository, tag)
        for blob in blobs(manifest)
    }
    there = {digest: size for digest, size in needed.items() if destination.has_blob(repository, digest)}
    return sum(needed.values()), sum(there.values())


def check_a_kill(registries: Mapping[str, RegistryServer], repository: str, chance: random.Random) -> None:
    source, destination = registries["onprem"].client(), registries["cloud"].client()
    for tag in TAGS:
        put_image(source, repository, tag, layer=chance.randbytes(LAYER_BYTES))
    for _ in range(2):
        killed_mirroring(registries, repository, after_seconds=chance.uniform(0, LONGEST_SECONDS))
        # A tag that the registry still writes for the dead process is listed before it leads anywhere.
        for digest in filter(None, [destination.resolve(repository, tag) for tag in destination.tags(repository)]):
            require_image(destination, repository, digest)
    whole_bytes, there_bytes = arrived(source, destination, repository)
    plan = plan_repository(source, destination, MirroredRepository(repository=repository))
    report = mirror_tags(source, destination, plan, refused={})
    assert report.ok
    assert report.bytes_copied <= whole_bytes - there_bytes  # what the registry had just received may be there since
    for tag in TAGS:
        assert destination.manifest(repository, tag) == source.manifest(repository, tag)


@pytest.mark.parametrize("seed", range(2))
def test_a_mirroring_that_is_killed_is_completed_by_the_next(
    registries: Mapping[str, RegistryServer], repository: str, seed: int
) -> None:
    check_a_kill(registries, repository, random.Random(seed))


def test_a_tag_that_a_registry_lists_and_that_leads_nowhere_is_brought(
    registries: Mapping[str, RegistryServer], repository: str
) -> None:
    source, destination = registries["onprem"].client(), registries["cloud"].client()
    for tag in ("cut", "whole"):
        put_image(source, repository, tag, layer=tag.encode())
    put_image(destination, repository, "whole", layer=b"whole")
    tags = registries["cloud"].state_dir / "images/docker/registry/v2/repositories" / repository / "_manifests/tags"
    (tags / "cut/current").mkdir(parents=True)  # as where the registry was cut off between the folder and its link
    assert sorted(destination.tags(repository)) == ["cut", "whole"] and destination.resolve(repository, "cut") is None
    rules = MirroredRepository(repository=repository)
    report = mirror_tags(source, destination, plan_repository(source, destination, rules), refused={})
    assert report.ok
    assert destination.manifest(repository, "cut") == source.manifest(repository, "cut")


@pytest.mark.chaos
@pytest.mark.parametrize("seed", range(100, 150))
def test_a_mirroring_that_is_killed_at_any_of_many_moments_is_completed_by_the_next(
    registries: Mapping[str, RegistryServer], repository: str, seed: int
) -> None:
    check_a_kill(registries, repository, random.Random(seed))
