"""The S3 store against a real server: the contract, and what only S3 has."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from spillway.errors import AccessDenied, Missing
from spillway.sandbox.objectstore import Identity
from spillway.stores.base import read_all
from spillway.stores.s3 import S3Store
from spillway.testing.contracts import FlatKeysContract, ObjectStoreContract
from spillway.testing.s3_server import S3Server


@pytest.fixture(scope="module")
def bucket(s3_server: S3Server) -> str:
    return s3_server.new_bucket()


@pytest.fixture
def store(s3_server: S3Server, bucket: str) -> Iterator[S3Store]:
    store = s3_server.open(bucket)
    yield store
    assert store.delete([entry.key for entry in store.list()]) == {}


class TestContract(ObjectStoreContract, FlatKeysContract):
    pass


EVERY_CALL = {
    "list": lambda store: list(store.list()),
    "head": lambda store: store.head("x"),
    "read": lambda store: read_all(store, "x"),
    "put": lambda store: store.put("x", b"1", size_bytes=1),
    "put in parts": lambda store: store.put("x", b"1" * (17 * 1024**2), size_bytes=17 * 1024**2),
    "put if absent": lambda store: store.put("x", b"1", size_bytes=1, if_absent=True),
    "put if it matches": lambda store: store.put("x", b"1", size_bytes=1, if_match="0" * 32),
    "delete": lambda store: store.delete(["x"]),
}
every_call = pytest.mark.parametrize("call", EVERY_CALL.values(), ids=EVERY_CALL.keys())


@every_call
def test_a_missing_bucket_is_named(s3_server: S3Server, call) -> None:
    with pytest.raises(Missing, match="bucket 'no-such-bucket' is not in s3://no-such-bucket@onprem; create it"):
        call(s3_server.open("no-such-bucket"))


@every_call
def test_a_wrong_secret_key_is_access_denied(s3_server: S3Server, bucket: str, call) -> None:
    admin = s3_server.admin
    wrong = Identity(name="x", access_key=admin.access_key, secret_key="wrong-secret-0123456789", actions=())
    with pytest.raises(AccessDenied, match=r"s3://.*@onprem refused the credentials: .*check the access key"):
        call(s3_server.open(bucket, identity=wrong))


@every_call
def test_an_unknown_access_key_is_access_denied(s3_server: S3Server, bucket: str, call) -> None:
    unknown = Identity(name="x", access_key="AKNOBODY", secret_key="some-secret-0123456789", actions=())
    with pytest.raises(AccessDenied):
        call(s3_server.open(bucket, identity=unknown))
