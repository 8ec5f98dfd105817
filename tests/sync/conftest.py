"""Two stores to sync between, of either kind, that count what is asked of them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from threading import Lock
from typing import Any

import pytest

from spillway.model import ObjectInfo
from spillway.stores.base import ObjectStore, OpenedObject, Upload, read_all
from spillway.stores.local import LocalStore
from spillway.sync.execute import SyncReport, sync_dataset
from spillway.sync.report import ObjectOutcome
from spillway.testing.s3_server import S3Server


class WatchedStore:
    """A real store that counts calls; ``before`` is called with the method and the key first and may raise."""

    def __init__(self, store: ObjectStore) -> None:
        self.store = store
        self.calls: Counter[str] = Counter()
        self._lock = Lock()
        self.before: Callable[[str, str], None] = lambda method, key: None

    def _saw(self, method: str, key: str) -> None:
        with self._lock:
            self.calls[method] += 1
        self.before(method, key)

    @property
    def name(self) -> str:
        return self.store.name

    def list(self, prefix: str = "") -> Iterator[ObjectInfo]:
        self._saw("list", prefix)
        return self.store.list(prefix)

    def head(self, key: str) -> ObjectInfo | None:
        self._saw("head", key)
        return self.store.head(key)

    def tags(self, key: str) -> Mapping[str, str]:
        self._saw("tags", key)
        return self.store.tags(key)

    def read(self, key: str, **wanted: Any) -> Iterator[bytes]:
        self._saw("read", key)
        return self.store.read(key, **wanted)

    def open(self, key: str) -> OpenedObject:
        self._saw("read", key)
        return self.store.open(key)

    def put(self, key: str, body: bytes | Iterable[bytes], **wanted: Any) -> ObjectInfo:
        self._saw("put", key)
        return self.store.put(key, body, **wanted)

    def delete(self, keys: Iterable[str]) -> Mapping[str, str]:
        self._saw("delete", "")
        return self.store.delete(keys)

    def uploads(self, prefix: str = "") -> Iterator[Upload]:
        return self.store.uploads(prefix)

    def abort(self, upload: Upload) -> None:
        self.store.abort(upload)


class Ends:
    """A dataset ``digits`` under ``digits/`` at home, and the place that it is synced to."""

    def __init__(self, home: ObjectStore, cloud: ObjectStore) -> None:
        self.home, self.cloud = WatchedStore(home), WatchedStore(cloud)
        self.outcomes: list[ObjectOutcome] = []

    def fill(self, contents: Mapping[str, bytes]) -> None:
        for key, content in contents.items():
            self.home.store.put(f"digits/{key}", content, size_bytes=len(content))

    def sync(self, **wanted: Any) -> SyncReport:
        """Sync with fresh counters."""
        self.home.calls.clear()
        self.cloud.calls.clear()
        self.outcomes = []
        settings = {"prefix": "digits/", "on_outcome": self.outcomes.append, **wanted}
        return sync_dataset(source=self.home, destination=self.cloud, dataset="digits", **settings)

    def fates(self) -> dict[str, str]:
        """What became of each object, by key."""
        return {outcome.key.removeprefix("digits/"): outcome.fate.value for outcome in self.outcomes}

    def at_cloud(self) -> dict[str, bytes]:
        """What lies there, without Spillway's own records."""
        store = self.cloud.store
        keys = [entry.key for entry in store.list() if not entry.key.startswith(".spillway/")]
        return {key.removeprefix("digits/"): read_all(store, key) for key in keys}


@pytest.fixture(scope="session")
def s3_buckets(s3_sites: Mapping[str, S3Server]) -> Mapping[str, str]:
    return {name: server.new_bucket() for name, server in s3_sites.items()}


@pytest.fixture
def s3_ends(s3_sites: Mapping[str, S3Server], s3_buckets: Mapping[str, str]) -> Iterator[Ends]:
    home, cloud = (s3_sites[name].open(s3_buckets[name]) for name in ("onprem", "cloud"))
    yield Ends(home, cloud)
    for store in (home, cloud):
        assert store.delete([entry.key for entry in store.list()]) == {}


@pytest.fixture
def tag(s3_sites: Mapping[str, S3Server], s3_buckets: Mapping[str, str]) -> Callable[..., None]:
    """Gives an object at home exactly these tags."""
    client = s3_sites["onprem"].client()

    def tag(key: str, **tags: str) -> None:
        written = {"TagSet": [{"Key": name, "Value": value} for name, value in tags.items()]}
        client.put_object_tagging(Bucket=s3_buckets["onprem"], Key=f"digits/{key}", Tagging=written)

    return tag


@pytest.fixture
def local_ends(tmp_path: Path) -> Ends:
    for name in ("home", "cloud"):
        (tmp_path / name).mkdir()
    return Ends(LocalStore(tmp_path / "home"), LocalStore(tmp_path / "cloud"))


@pytest.fixture(params=["s3", "local"])
def ends(request: pytest.FixtureRequest) -> Ends:
    chosen: Ends = request.getfixturevalue(f"{request.param}_ends")
    return chosen
