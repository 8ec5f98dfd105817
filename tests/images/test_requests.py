"""What a mirroring asks of the destination, request by request."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping

import pytest

from spillway.images.repository import mirror_tags, plan_repository
from spillway.model import MirroredRepository
from spillway.registries.http import HttpRegistry
from spillway.testing.faulty_proxy import FaultyProxy, faulty_proxy
from spillway.testing.images import put_image
from spillway.testing.registry_server import RegistryServer


@pytest.fixture
def home(registries: Mapping[str, RegistryServer], repository: str) -> HttpRegistry:
    """Two tags with a layer of their own and the same configuration."""
    registry = registries["onprem"].client()
    for tag in ("v1", "v2"):
        put_image(registry, repository, tag, layer=tag.encode())
    return registry


@pytest.fixture
def proxy(registries: Mapping[str, RegistryServer]) -> Iterator[FaultyProxy]:
    with faulty_proxy(registries["cloud"].url) as passed:
        yield passed


def asked(
    proxy: FaultyProxy, server: RegistryServer, home: HttpRegistry, rules: MirroredRepository
) -> Counter[tuple[str, str]]:
    """How often each kind of request was made, by method and part of the interface, the challenge left out."""
    cloud = HttpRegistry(name="cloud", url=proxy.url, username=server.username, password=server.password)
    cloud.tags("nothing")
    proxy.requests.clear()
    assert mirror_tags(home, cloud, plan_repository(home, cloud, rules), refused={}).ok
    lines = [request.split() for request in proxy.requests]
    return Counter((method, path.split("/")[-2]) for method, path, *_ in lines)


@pytest.mark.parametrize("move_tags", [False, True], ids=["tags stay", "tags move"])
def test_a_tag_that_may_be_moved_is_not_looked_up_again_before_it_is_written(
    proxy: FaultyProxy, registries: Mapping[str, RegistryServer], home: HttpRegistry, repository: str, move_tags: bool
) -> None:
    rules = MirroredRepository(repository=repository, move_tags=move_tags)
    # Where no tag is moved, each is looked for once more before it is written.
    look = {} if move_tags else {("HEAD", "manifests"): 2}
    assert asked(proxy, registries["cloud"], home, rules) == {
        ("GET", "tags"): 1,
        ("HEAD", "blobs"): 4,
        ("POST", "uploads"): 4,
        ("PUT", "uploads"): 4,
        ("PUT", "manifests"): 2,
        **look,
    }
    assert asked(proxy, registries["cloud"], home, rules) == {("GET", "tags"): 1, ("HEAD", "manifests"): 2}


def test_what_a_broken_off_mirroring_left_is_not_sent_again(
    proxy: FaultyProxy, registries: Mapping[str, RegistryServer], home: HttpRegistry, repository: str
) -> None:
    cloud = registries["cloud"].client()
    put_image(cloud, repository, "v1", layer=b"v1")
    cloud.delete(repository, str(cloud.resolve(repository, "v1")))
    found = asked(proxy, registries["cloud"], home, MirroredRepository(repository=repository))
    assert (found["HEAD", "blobs"], found["POST", "uploads"], found["PUT", "uploads"]) == (4, 2, 2)
