"""Buckets in folders and on a real S3 server."""

from __future__ import annotations

from pathlib import Path

import pytest

from spillway.stores.base import ObjectStore
from spillway.stores.local import LocalStore
from spillway.testing.checkpoints import WatchedStore
from spillway.testing.s3_server import S3Server


@pytest.fixture
def store(tmp_path: Path) -> LocalStore:
    """An empty bucket in a folder."""
    return _folder(tmp_path / "onprem")


@pytest.fixture
def other_store(tmp_path: Path) -> LocalStore:
    """An empty bucket at another site."""
    return _folder(tmp_path / "cloud")


@pytest.fixture(params=["folder", "s3"])
def any_store(request: pytest.FixtureRequest, tmp_path: Path) -> ObjectStore:
    """An empty bucket of every kind."""
    if request.param == "folder":
        return _folder(tmp_path / "any")
    server: S3Server = request.getfixturevalue("s3_server")
    return server.store()


def _folder(path: Path) -> LocalStore:
    path.mkdir()
    return LocalStore(path)


@pytest.fixture
def watched(store: LocalStore) -> WatchedStore:
    """The ``store`` with its writes recorded and interruptible."""
    return WatchedStore(store)
