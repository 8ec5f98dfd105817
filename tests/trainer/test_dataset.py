"""The data set as training code gets it: all of one version, and nothing that is not data."""

import json
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from spillway.errors import BadData, KeepsChanging
from spillway.stores.base import ObjectStore, read_all
from spillway.stores.local import LocalStore
from spillway.sync.execute import sync_dataset
from spillway.sync.manifest import manifest_key
from spillway.testing.checkpoints import WatchedStore
from spillway.testing.training import PREFIX, Train, TrainingSite, load_digits
from spillway.trainer.contract import read_contract
from spillway.trainer.session import Session
from spillway.trainer.stop import StopSignal


class ChangingStore(WatchedStore):
    """A real store; ``after_read`` is called when an object has been read."""

    after_read: Callable[[], None] = staticmethod(lambda: None)

    def read(self, key: str, **wanted: Any) -> Iterator[bytes]:
        yield from super().read(key, **wanted)
        self.after_read()


def session(site: TrainingSite, data: ObjectStore, **variables: str) -> Session:
    contract = read_contract(site.environment(**variables))
    return Session(contract, StopSignal(), data=data, checkpoints=site.checkpoints)


def write(store: ObjectStore, version: bytes) -> None:
    for key in [entry.key for entry in store.list(PREFIX)]:
        store.put(key, version, size_bytes=len(version))


def test_a_data_set_that_changes_while_it_is_read_is_read_again_and_never_mixed(any_site: TrainingSite) -> None:
    store = ChangingStore(any_site.data)
    write(store, b"old")
    versions = iter([b"new"])

    def change() -> None:
        for version in versions:
            write(store, version)

    store.after_read = change
    assert set(session(any_site, store).dataset().values()) == {b"new"}


def test_a_data_set_that_never_stops_changing_is_named(site: TrainingSite) -> None:
    store = ChangingStore(site.data)
    versions = (b"%d" % number for number in range(1000))
    store.after_read = lambda: write(store, next(versions))
    with pytest.raises(
        KeepsChanging, match=r"data set 'digits/' of file://.* went on changing while it was read for \d s"
    ):
        session(site, store, SPILLWAY_STORE_PATIENCE_SECONDS="0").dataset()


@pytest.mark.parametrize("fault", ["removed at its home", "changed at its home, and the next copy is under way"])
def test_a_copy_is_read_as_it_was_verified_and_not_as_what_lies_there(
    any_site: TrainingSite, tmp_path: Path, fault: str
) -> None:
    (tmp_path / "home").mkdir()
    home = LocalStore(tmp_path / "home")
    load_digits(home)
    sync = partial(sync_dataset, source=home, destination=any_site.data, dataset="digits", prefix=PREFIX)
    first, *rest = sorted(entry.key for entry in home.list(PREFIX))
    sync()
    copied = session(any_site, any_site.data, SPILLWAY_DATASET_RECORD=manifest_key("digits"))
    if fault == "removed at its home":
        home.delete([first])
        sync()
        assert any_site.data.head(first) is not None
        assert list(copied.dataset()) == [key.removeprefix(PREFIX) for key in rest]
    else:
        any_site.data.put(first, b"newer", size_bytes=5)
        copied.stop.requested_at = 0.0
        with pytest.raises(KeepsChanging):
            copied.dataset()


def test_a_copy_that_is_renewed_for_long_ends_the_attempt_as_the_platforms_fault(
    site: TrainingSite, train: Train, tmp_path: Path
) -> None:
    (tmp_path / "home").mkdir()
    load_digits(LocalStore(tmp_path / "home"))
    sync_dataset(source=LocalStore(tmp_path / "home"), destination=site.data, dataset="digits", prefix=PREFIX)
    write(site.data, b"newer")
    ended = train(site, SPILLWAY_DATASET_RECORD=manifest_key("digits"), SPILLWAY_STORE_PATIENCE_SECONDS="0")
    assert ended.exit_code == 74
    assert "data set 'digits/' of " in ended.stderr
    assert "went on changing while it was read" in ended.stderr


def test_spillways_own_records_are_no_part_of_a_data_set_that_is_the_whole_bucket(site: TrainingSite) -> None:
    site.data.put(".spillway/sync/digits.json", b"{}", size_bytes=2)
    found = session(site, site.data, SPILLWAY_DATASET_PREFIX="").dataset()
    assert found == {key: read_all(site.data, key) for key in sorted(entry.key for entry in site.data.list(PREFIX))}


def test_patterns_leave_out_the_same_at_the_data_sets_home_as_in_its_copies(site: TrainingSite, tmp_path: Path) -> None:
    (tmp_path / "cloud").mkdir()
    cloud = LocalStore(tmp_path / "cloud")
    for key in ("a.csv", "b.csv", "b.txt", "tmp/c.csv"):
        site.data.put(f"open/{key}", key.encode(), size_bytes=len(key))
    rules = {"include": ("*.csv",), "exclude": ("tmp/*",)}
    sync_dataset(source=site.data, destination=cloud, dataset="open", prefix="open/", **rules)
    patterns = {f"SPILLWAY_DATASET_{name.upper()}": json.dumps(words) for name, words in rules.items()}
    told = {"SPILLWAY_DATASET_PREFIX": "open/", **patterns}
    at_home = session(site, site.data, **told).dataset()
    assert at_home == session(site, cloud, **told, SPILLWAY_DATASET_RECORD=manifest_key("open")).dataset()
    assert set(at_home) == {"a.csv", "b.csv"}


@pytest.fixture
def copied(site: TrainingSite, tmp_path: Path) -> TrainingSite:
    """A site with a copy of the data set, and its record."""
    (tmp_path / "home").mkdir()
    load_digits(LocalStore(tmp_path / "home"))
    sync_dataset(source=LocalStore(tmp_path / "home"), destination=site.data, dataset="digits", prefix=PREFIX)
    return site


def rewrite_record(site: TrainingSite, change: Callable[[bytes], bytes]) -> None:
    body = change(read_all(site.data, manifest_key("digits")))
    site.data.put(manifest_key("digits"), body, size_bytes=len(body))


def test_an_image_that_is_older_than_the_platform_reads_the_record_of_a_copy_all_the_same(copied: TrainingSite) -> None:
    rewrite_record(copied, lambda body: json.dumps({**json.loads(body), "of_a_later_release": [1]}).encode())
    found = session(copied, copied.data, SPILLWAY_DATASET_RECORD=manifest_key("digits")).dataset()
    assert found == session(copied, copied.data).dataset()


@pytest.mark.parametrize(
    "damage",
    [lambda body: body[:-9], lambda body: b"[]", lambda body: b"{}", lambda body: b'{"entries": 7}'],
    ids=["cut off", "a list", "empty", "names no list"],
)
def test_a_record_of_the_copy_that_is_damaged_is_bad_data_with_what_to_do(
    copied: TrainingSite, train: Train, damage: Callable[[bytes], bytes]
) -> None:
    rewrite_record(copied, damage)
    ended = train(copied, SPILLWAY_DATASET_RECORD=manifest_key("digits"))
    assert (ended.exit_code, "sync the data set to this site again" in ended.stderr) == (65, True), ended.stderr


def test_a_list_of_the_copy_that_is_cut_off_is_bad_data_with_what_to_do(copied: TrainingSite) -> None:
    (listed,) = (entry.key for entry in copied.data.list(".spillway/entries/"))
    whole = read_all(copied.data, listed)
    copied.data.put(listed, whole[:-9], size_bytes=len(whole) - 9)
    with pytest.raises(BadData, match="it is cut off; sync the data set to this site again"):
        session(copied, copied.data, SPILLWAY_DATASET_RECORD=manifest_key("digits")).dataset()
