"""The same images mirrored by us and by skopeo: equal bytes, and fewer requests at both registries."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

import pytest
import yaml

from spillway.images.mirror import image_tree
from spillway.images.repository import mirror_tags, plan_repository
from spillway.model import MirroredRepository
from spillway.registries.base import Manifest
from spillway.registries.http import HttpRegistry
from spillway.testing.faulty_proxy import faulty_proxy
from spillway.testing.image_sites import skopeo_sync
from spillway.testing.images import put_image, put_index
from spillway.testing.paired import measure
from spillway.testing.registry_server import RegistryServer

TAGS = ("v1", "v2", "multi", "signed")


def everything(registry: HttpRegistry, repository: str) -> Mapping[str, list[Manifest]]:
    """All that each tag means, byte for byte."""
    return {tag: list(image_tree(registry, repository, tag)) for tag in sorted(registry.tags(repository))}


@pytest.fixture
def home(registries: Mapping[str, RegistryServer], repository: str) -> HttpRegistry:
    registry = registries["onprem"].client()
    image = put_image(registry, repository, "v1", layer=b"shared")
    put_image(registry, repository, "v2", layer=b"shared", architecture="arm64")
    put_index(registry, repository, "multi")
    put_image(registry, repository, f"{image.digest.replace(':', '-')}.sig", layer=b"signature")
    return registry


def test_every_manifest_is_byte_equal_to_what_skopeo_makes_with_fewer_requests_at_both_ends(
    registries: Mapping[str, RegistryServer], home: HttpRegistry, repository: str, tmp_path: Path
) -> None:
    onprem, cloud = registries["onprem"], registries["cloud"]
    ours, theirs = [], []
    with faulty_proxy(onprem.url) as source, faulty_proxy(cloud.url) as destination:

        def asked(mirroring: Callable[[], object]) -> list[int]:
            """The requests at both ends."""
            mirroring()
            counts = [len(source.requests), len(destination.requests)]
            source.requests.clear(), destination.requests.clear()
            return counts

        def mirror_ourselves() -> None:
            ends = [
                HttpRegistry(name=s.name, url=proxy.url, username=s.username, password=s.password, prefix=prefix)
                for s, proxy, prefix in ((onprem, source, ""), (cloud, destination, "ours"))
            ]
            plan = plan_repository(*ends, MirroredRepository(repository=repository, move_tags=True))
            assert mirror_tags(*ends, plan, refused={}).ok

        def mirror_by_skopeo() -> None:
            wanted = {source.url.removeprefix("http://"): {"tls-verify": False, "images": {repository: []}}}
            (tmp_path / "sync.yaml").write_text(yaml.safe_dump(wanted))
            measure(
                skopeo_sync(
                    tmp_path,
                    *("--src", "yaml", "--src-creds", f"{onprem.username}:{onprem.password}"),
                    *("--dest", "docker", "--dest-creds", f"{cloud.username}:{cloud.password}"),
                    str(tmp_path / "sync.yaml"),
                    f"{destination.url.removeprefix('http://')}/skopeo/train",
                )
            )

        for change in (None, None, b"a layer that has changed"):
            if change:
                put_image(home, repository, "v2", layer=change, architecture="arm64")
            ours.append(asked(mirror_ourselves))
            theirs.append(asked(mirror_by_skopeo))
    everything_at_home = everything(home, repository)
    assert len(everything_at_home) == 4
    assert everything(cloud.client(prefix="ours"), repository) == everything_at_home
    assert everything(cloud.client(prefix="skopeo"), repository) == everything_at_home
    assert all(few < many for pair in zip(ours, theirs, strict=True) for few, many in zip(*pair, strict=True))
