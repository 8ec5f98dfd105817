"""``preflight`` tries the identity that pods reach a cache with: all that they do there, and nothing beside it."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest
import yaml

from spillway.commands.cache_rights import cache_gaps
from spillway.preflight import PROBE_PREFIX, Gap
from spillway.stores.s3 import S3Store
from spillway.testing.command_line import Spillway
from spillway.testing.sandbox_server import Installation

VAULT = {
    "name": "vault",
    "home": "onprem",
    "prefix": "remote/vault/",
    "tier": "core",
    "remote_read": {"connection": "onprem_store_remote"},
    "cache": {"connection": "sandbox_cache_key", "max_gib": 1},
}


@pytest.fixture(autouse=True)
def cached(installation: Installation) -> Iterator[None]:
    """A core dataset with a cache; nothing that was tried is left in the buckets of its site."""
    (installation.config / "datasets.yaml").write_text(yaml.safe_dump({"datasets": [VAULT]}))
    site = installation.services().site("cloud")
    stores = (site.datasets, site.checkpoints)
    yield
    assert [entry.key for store in stores for entry in store.list(PROBE_PREFIX)] == []


def gaps(installation: Installation) -> list[Gap]:
    services = installation.services()
    return list(cache_gaps(services.configuration, services.connect))


def become(installation: Installation, like: str) -> None:
    written = json.loads(installation.connections.read_text())[like]
    installation.connection("cloud_store_cache", login=written["login"], password=written["password"])


def test_an_identity_that_reaches_the_cache_and_nothing_else_of_its_site_is_no_gap(installation: Installation) -> None:
    assert gaps(installation) == []


def test_the_identity_of_pods_is_none_for_the_cache(installation: Installation) -> None:
    become(installation, "cloud_store_pods")
    refused, datasets, checkpoints = gaps(installation)
    assert (refused.part, refused.checked, "Connection 'cloud_store_cache'" in refused.fix) == (
        "bucket cache (cache)",
        True,
        True,
    )
    who = "the identity of Connection 'cloud_store_cache', which is for the cache, can"
    assert [(gap.cluster, gap.part, gap.problem, gap.checked) for gap in (datasets, checkpoints)] == [
        ("cloud", "bucket datasets (cache)", f"{who} list, read objects there", True),
        ("cloud", "bucket checkpoints (cache)", f"{who} list, read, overwrite, delete objects there", True),
    ]
    assert datasets.fix.startswith("let it reach bucket cache alone")


def test_an_identity_that_makes_no_room_in_the_cache_is_a_gap(
    installation: Installation, monkeypatch: pytest.MonkeyPatch
) -> None:
    delete = S3Store.delete
    monkeypatch.setattr(S3Store, "delete", lambda store, keys: dict.fromkeys(delete(store, keys) or keys, "made up"))
    problems = [(gap.part, gap.problem) for gap in gaps(installation)]
    assert ("bucket cache (cache)", "the identity of Connection 'cloud_store_cache' cannot delete objects there") in (
        problems
    )


def test_what_its_site_does_not_let_be_tried_is_told(installation: Installation) -> None:
    written = json.loads(installation.connections.read_text())["cloud_store_pods"]
    installation.connection("cloud_store", login=written["login"], password=written["password"])
    (gap,) = gaps(installation)
    assert (gap.part, gap.checked, "Connection 'cloud_store'" in gap.fix) == ("bucket datasets (cache)", False, True)
    assert gap.problem.startswith("not checked what the identity of Connection 'cloud_store_cache'")


def test_preflight_tells_of_a_cache_without_a_key_or_a_bucket(installation: Installation, spillway: Spillway) -> None:
    installation.connection("sandbox_cache_key", password="not a key")
    file = installation.config / "clusters.yaml"
    file.write_text(file.read_text().replace("cache_bucket: cache", "cache_bucket: nowhere"))
    answer = spillway("preflight", "--json")
    found = {(gap["cluster"], gap["part"]): gap["problem"] for gap in json.loads(answer.out) if gap["checked"]}
    expected = [
        ("onprem", "dataset vault (cache)"),
        *((site, "bucket nowhere (cache)") for site in ("onprem", "cloud")),
    ]
    assert (answer.code, [*found]) == (1, expected)
    assert "expected 64 hexadecimal digits" in found["onprem", "dataset vault (cache)"]
    assert "not a key" not in answer.out
