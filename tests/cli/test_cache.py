"""``cache``: what a site keeps of core data is told and deleted."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
import yaml

from spillway.runs.sites import bucket
from spillway.stores.base import ObjectStore
from spillway.stores.encrypted_cache import EncryptedCache, key_of, prefix_of
from spillway.testing.command_line import Spillway
from spillway.testing.sandbox_server import Installation

READ = {"connection": "onprem_store_remote"}
CACHE = {"connection": "sandbox_cache_key", "max_gib": 0.5}


def core(name: str, **more: Any) -> dict[str, Any]:
    return {"name": name, "home": "onprem", "prefix": f"remote/{name}/", "tier": "core", "remote_read": READ, **more}


@pytest.fixture
def kept(installation: Installation) -> Iterator[ObjectStore]:
    """The cache of the cloud with two blocks of ``faces`` and one of ``voices``."""
    datasets = [core("faces", cache=CACHE), core("voices", cache=CACHE), core("plain")]
    (installation.config / "datasets.yaml").write_text(yaml.safe_dump({"datasets": datasets}))
    connect = installation.services().connect
    store = bucket(connect("cloud_store"), "cache", "cloud")
    store.delete([entry.key for entry in store.list()])
    key = key_of(connect("sandbox_cache_key").password or "")
    for name, blocks in (("faces", ("1", "2")), ("voices", ("1",))):
        cache = EncryptedCache(store, prefix=prefix_of(key, name), key=key, limit_bytes=1 << 20)
        for what in blocks:
            cache.put(what, b"x" * 72)
    yield store
    store.delete([entry.key for entry in store.list()])


def listed(spillway: Spillway) -> list[tuple[str, str, int, int, int]]:
    rows = json.loads(spillway("cache", "ls", "--json").out)
    return [(row["dataset"], row["site"], row["blocks"], row["bytes"], row["limit_bytes"]) for row in rows]


@pytest.mark.usefixtures("kept")
def test_it_lists_how_much_of_each_dataset_is_kept_where(spillway: Spillway) -> None:
    assert listed(spillway) == [("faces", "cloud", 2, 200, 1 << 29), ("voices", "cloud", 1, 100, 1 << 29)]


def test_a_dataset_is_purged_and_a_dry_run_changes_nothing(spillway: Spillway, kept: ObjectStore) -> None:
    dry = spillway("cache", "purge", "cloud", "faces", "--dry-run")
    assert (dry.out, len(list(kept.list()))) == ("would delete 2 objects, 200 bytes from the cache of cloud\n", 3)
    assert spillway("cache", "purge", "cloud", "faces").out == "deleted 2 objects, 200 bytes from the cache of cloud\n"
    assert [row[0] for row in listed(spillway) if row[2]] == ["voices"]
    assert spillway("cache", "purge", "cloud", "faces").out == "deleted 0 objects, 0 bytes from the cache of cloud\n"


def test_without_a_dataset_all_that_caches_have_written_goes_and_nothing_else(
    spillway: Spillway, kept: ObjectStore
) -> None:
    strangers = ["0123456789abcdef/HEAD", "llm-7b-1/parts/ab", "stranger"]
    for key in strangers:
        kept.put(key, b"x", size_bytes=1)
    answer = spillway("cache", "purge", "cloud")
    assert (answer.code, answer.out) == (1, "deleted 3 objects, 300 bytes from the cache of cloud\n")
    assert sorted(entry.key for entry in kept.list()) == strangers
    assert f"3 objects left alone that no cache has written: {', '.join(strangers)}" in answer.err


@pytest.fixture
def opted_out(installation: Installation, kept: ObjectStore) -> ObjectStore:
    """The same when nothing is declared of ``voices`` any more."""
    (installation.config / "datasets.yaml").write_text(yaml.safe_dump({"datasets": [core("faces", cache=CACHE)]}))
    return kept


@pytest.mark.usefixtures("opted_out")
def test_what_was_kept_before_an_opt_out_is_listed_without_a_name(spillway: Spillway) -> None:
    rows = json.loads(spillway("cache", "ls", "--json").out)
    assert [(row["dataset"], row["opted_in"], row["blocks"], row["limit_bytes"]) for row in rows] == [
        ("faces", True, 2, 1 << 29),
        (None, False, 1, None),
    ]
    assert rows[1]["used_at"] is not None
    assert spillway("cache", "ls").out.splitlines()[-1].startswith("(no longer opted in)  cloud  1       100    -")


def test_what_is_no_longer_opted_in_is_purged_alone_and_a_dry_run_changes_nothing(
    spillway: Spillway, opted_out: ObjectStore
) -> None:
    dry = spillway("cache", "purge", "cloud", "--withdrawn", "--dry-run")
    assert (dry.out, len(list(opted_out.list()))) == ("would delete 1 object, 100 bytes from the cache of cloud\n", 3)
    done = spillway("cache", "purge", "cloud", "--withdrawn")
    assert (done.code, done.out) == (0, "deleted 1 object, 100 bytes from the cache of cloud\n")
    assert listed(spillway) == [("faces", "cloud", 2, 200, 1 << 29)]
    assert spillway("cache", "purge", "cloud", "--withdrawn").out.startswith("deleted 0 objects")


def test_while_the_key_of_a_dataset_is_not_known_nothing_counts_as_withdrawn(
    spillway: Spillway, installation: Installation, opted_out: ObjectStore
) -> None:
    installation.connection("sandbox_cache_key", password="not a key")
    for words in (("ls", "--json"), ("purge", "cloud", "--withdrawn")):
        answer = spillway("cache", *words)
        assert (answer.code, "expected 64 hexadecimal digits" in answer.err, "opted_in" in answer.out) == (
            1,
            True,
            False,
        )
    assert len(list(opted_out.list())) == 3


@pytest.mark.usefixtures("kept")
@pytest.mark.parametrize(
    ("words", "problem"),
    [
        (
            ("cloud", "plain"),
            "the dataset 'plain' has no cache; what is kept from before it had none goes with --withdrawn",
        ),
        (("clowd",), "unknown cluster 'clowd'"),
        (("cloud", "facse"), "unknown dataset 'facse'"),
    ],
)
def test_what_has_no_cache_is_named(spillway: Spillway, words: tuple[str, ...], problem: str) -> None:
    answer = spillway("cache", "purge", *words)
    assert (answer.code, problem in answer.err) == (1, True)
