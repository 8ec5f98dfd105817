"""The S3 store against a real server: the contract, and what only S3 has."""

from __future__ import annotations

import pytest
from spillway.stores.base import ObjectStore
from spillway.testing.contracts import FlatKeysContract, ObjectStoreContract
from spillway.testing.s3_server import S3Server


@pytest.fixture
def store(s3_server: S3Server) -> ObjectStore:
    return s3_server.store()


class TestContract(ObjectStoreContract, FlatKeysContract):
    pass
