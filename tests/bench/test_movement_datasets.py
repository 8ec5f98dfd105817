"""Datasets between two stores against rclone, both as processes of their own."""

from __future__ import annotations

import hashlib
import random
from collections.abc import Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from pathlib import Path

import pytest

from spillway.model import KeyScope, SyncRecord
from spillway.sandbox.configuration import DATASET_BUCKET
from spillway.stores.base import ObjectStore
from spillway.stores.parts import RangedBody
from spillway.sync.manifest import StoredRecord, save_record, write_entries
from spillway.testing.linked_sites import Hook
from spillway.testing.made_up_server import made_up_entries, made_up_server
from spillway.testing.movement_sites import DATASET, PREFIX, RCLONE_TUNED, MovementSites
from spillway.testing.paired import Contender, measure, paired, scaled

KIB = 1024
SMALL_OBJECTS = scaled(10_000)
CHANGED_OBJECTS = scaled(100)
SMALL_BYTES = 16 * KIB
LARGE_BYTES = scaled(1024) * KIB**2
LISTED_OBJECTS = scaled(1_000_000)
RCLONE_BUCKET = "rclone"
ROUND_TRIP_SECONDS = 0.04


def small_keys() -> list[str]:
    return [f"{PREFIX}{number % 100:02}/{number:05}.bin" for number in range(SMALL_OBJECTS)]


def fill(store: ObjectStore, keys: Iterable[str], version: str) -> None:
    """Objects of content that is their own."""

    def put(key: str) -> None:
        store.put(key, hashlib.shake_256(f"{version} {key}".encode()).digest(SMALL_BYTES), size_bytes=SMALL_BYTES)

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(put, keys))


def contents(store: ObjectStore) -> Mapping[str, str]:
    """The etags below the prefix, which of these uploads in one piece are digests of their content."""
    return {entry.key: entry.etag for entry in store.list(PREFIX)}


@pytest.fixture(scope="module")
def home(movement_sites: MovementSites) -> ObjectStore:
    store = movement_sites.store("onprem")
    fill(store, small_keys(), "v1")
    movement_sites.servers["cloud"].store(RCLONE_BUCKET)
    return store


def ours(sites: MovementSites, **hooks: Hook) -> Contender:
    return sites.ours("sync", DATASET, "cloud", **hooks)


def theirs(sites: MovementSites, **hooks: Hook) -> Contender:
    ends = (f"onprem:{DATASET_BUCKET}/{PREFIX}", f"cloud:{RCLONE_BUCKET}/{PREFIX}")
    return sites.rclone("sync", *ends, *RCLONE_TUNED, **hooks)


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_ten_thousand_small_objects(movement_sites: MovementSites, home: ObjectStore) -> None:
    def whole(bucket: str) -> None:
        assert contents(movement_sites.store("cloud", bucket)) == contents(home)

    pairs = paired(
        "dataset_10k_full",
        ours(movement_sites, before=lambda: movement_sites.empty(DATASET_BUCKET), after=lambda: whole(DATASET_BUCKET)),
        theirs(movement_sites, before=lambda: movement_sites.empty(RCLONE_BUCKET), after=lambda: whole(RCLONE_BUCKET)),
    )
    pairs.report(wall=0.90, cpu=0.70, rss_mib=100)


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("far", [False, True], ids=["loopback", "40ms"])
def test_a_sync_with_nothing_to_do_and_one_of_a_hundredth(
    movement_sites: MovementSites, home: ObjectStore, far: bool
) -> None:
    where = "40ms" if far else "loopback"
    if far:
        movement_sites.far(round_trip_seconds=ROUND_TRIP_SECONDS)
    try:
        us, them = ours(movement_sites), theirs(movement_sites)
        for contender in (us, them):
            measure(contender)
        paired(f"dataset_10k_noop_{where}", us, them).report(wall=0.33 if far else 0.50)
        versions = iter(range(1000))

        def change() -> None:
            fill(home, small_keys()[:CHANGED_OBJECTS], f"{where} {next(versions)}")

        changed = paired(
            f"dataset_10k_1pct_{where}",
            ours(movement_sites, before=change),
            theirs(movement_sites, before=change),
        )
        changed.report(wall=0.45 if far else 0.50)
    finally:
        movement_sites.near()


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_two_large_objects(movement_sites: MovementSites) -> None:
    home, block = movement_sites.store("onprem"), random.Random(1).randbytes(16 * KIB**2)
    movement_sites.servers["cloud"].store(RCLONE_BUCKET)
    home.delete([entry.key for entry in home.list(PREFIX)])
    for number in range(2):
        body = RangedBody(LARGE_BYTES, lambda start, length: [block[:length]])
        home.put(f"{PREFIX}large-{number}", body, size_bytes=LARGE_BYTES)
    digest = sha256_of(home, f"{PREFIX}large-0")

    def verify(bucket: str) -> None:
        store = movement_sites.store("cloud", bucket)
        assert {sha256_of(store, f"{PREFIX}large-{number}") for number in range(2)} == {digest}

    pairs = paired(
        "dataset_2x1gib",
        ours(movement_sites, before=lambda: movement_sites.empty(DATASET_BUCKET), after=lambda: verify(DATASET_BUCKET)),
        movement_sites.rclone(
            "sync",
            f"onprem:{DATASET_BUCKET}/{PREFIX}",
            f"cloud:{RCLONE_BUCKET}/{PREFIX}",
            before=lambda: movement_sites.empty(RCLONE_BUCKET),
            after=lambda: verify(RCLONE_BUCKET),
        ),
    )
    pairs.report(wall=0.80, cpu=0.45)


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_a_sync_with_nothing_to_do_of_a_million_objects_that_are_made_up(memory: Path) -> None:
    with made_up_server("onprem", LISTED_OBJECTS) as home, made_up_server("cloud", LISTED_OBJECTS) as copy:
        sites = MovementSites(servers={"onprem": home, "cloud": copy}, folder=memory / "made-up")
        sites.folder.mkdir()
        sites.declare()
        there, here = sites.store("onprem"), sites.store("cloud")
        record = SyncRecord(
            dataset=DATASET, source=there.name, scope=KeyScope(prefix=PREFIX), whole=True, entries="",
            objects=0, size_bytes=0, versions="", verified_at=datetime.now(UTC),
        )  # fmt: skip
        recorded = write_entries(here, record, made_up_entries(LISTED_OBJECTS))
        save_record(here, recorded, over=StoredRecord())
        pairs = paired("dataset_1m_listed", ours(sites), theirs(sites))
    pairs.report(wall=1.0, rss_mib=300)


def sha256_of(store: ObjectStore, key: str) -> str:
    digest = hashlib.sha256()
    for chunk in store.read(key):
        digest.update(chunk)
    return digest.hexdigest()
