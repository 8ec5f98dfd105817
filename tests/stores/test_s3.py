"""The S3 store against a real server: the contract, and what only S3 has."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

import spillway
from spillway.errors import AccessDenied, ConfigError, KeyRefused, Missing, Unreachable
from spillway.sandbox.objectstore import Identity
from spillway.stores import parts, s3_deletes, s3_listing
from spillway.stores.base import read_all
from spillway.stores.parts import MIB
from spillway.stores.s3 import S3Store, open_store
from spillway.testing.contracts import FlatKeysContract, ObjectStoreContract, chunked, sha256_hex
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
    large_bytes = 6 * MIB
    keeps_tags = True

    @pytest.fixture(autouse=True)
    def small_parts(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Parts as small as the protocol has them, so that two of them are soon sent."""
        monkeypatch.setattr(parts, "SINGLE_MAX_BYTES", MIB)
        monkeypatch.setattr(parts, "PART_WISH_BYTES", 5 * MIB)


EVERY_CALL = {
    "list": lambda store: list(store.list()),
    "head": lambda store: store.head("x"),
    "tags": lambda store: store.tags("x"),
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


def test_a_server_that_is_down_is_unreachable(own_s3_server: S3Server) -> None:
    bucket = own_s3_server.new_bucket()
    store = S3Store(name=f"s3://{bucket}@own", endpoint=own_s3_server.endpoint(attempts=1), bucket=bucket)
    store.put("x", b"kept", size_bytes=4)
    own_s3_server.kill()
    for call in EVERY_CALL.values():
        with pytest.raises(Unreachable, match=r"s3://.*@own is unreachable: Could not connect"):
            call(store)
    own_s3_server.start()
    assert read_all(own_s3_server.open(bucket), "x") == b"kept"


def test_a_server_that_cleans_up_keys_is_found_out_and_keeps_no_trace_of_it(store: S3Store) -> None:
    for key in ("a//b", "../c", "content/"):
        with pytest.raises(KeyRefused, match=r"this server cleans up backslashes and empty, '.' and '..' segments"):
            store.put(key, b"x", size_bytes=1)
    assert list(store.list()) == []


def test_the_sha256_that_another_tool_had_the_server_compute_is_known(
    s3_server: S3Server, store: S3Store, bucket: str
) -> None:
    s3_server.client().put_object(Bucket=bucket, Key="x", Body=b"hello", ChecksumAlgorithm="SHA256")
    head = store.head("x")
    assert head is not None
    assert head.sha256 == sha256_hex(b"hello")


@pytest.mark.parametrize("noted", ["", "short", "Z" * 64])
def test_a_note_that_is_no_sha256_is_not_believed(s3_server: S3Server, store: S3Store, bucket: str, noted: str) -> None:
    s3_server.client().put_object(Bucket=bucket, Key="x", Body=b"hello", Metadata={"sha256": noted})
    head = store.head("x")
    assert head is not None
    assert head.sha256 is None


def test_a_large_body_of_unknown_digest_is_stored_and_its_digest_returned(store: S3Store) -> None:
    content = b"x" * (17 * 1024**2)
    stored = store.put("x", chunked(content, 1024**2), size_bytes=len(content))
    head = store.head("x")
    assert head is not None
    assert (stored.sha256, head.sha256, head.etag) == (sha256_hex(content), None, stored.etag)


def test_objects_of_several_pages_and_requests_are_listed_and_deleted(
    s3_server: S3Server, store: S3Store, bucket: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(s3_deletes, "_BATCH", 2)
    monkeypatch.setattr(s3_listing, "_LISTED_AT_ONCE", 2)
    paged = s3_server.open(bucket)
    keys = {f"d/{number}" for number in range(5)}
    for key in keys:
        store.put(key, b"", size_bytes=0)
    listed = [entry.key for entry in paged.list("d/")]
    assert (len(listed), set(listed)) == (5, keys)
    assert paged.delete(keys) == {}
    assert list(store.list()) == []


@pytest.mark.slow
def test_more_objects_than_a_page_or_a_request_holds_are_listed_and_deleted(store: S3Store) -> None:
    keys = {f"d/{number:04}" for number in range(1005)}
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda key: store.put(key, b"", size_bytes=0), keys))
    listed = [entry.key for entry in store.list("d/")]
    assert (len(listed), set(listed)) == (1005, keys)
    assert store.delete(keys) == {}
    assert list(store.list()) == []


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"endpoint_url": "not a url"}, "connection: not a url: not an endpoint URL"),
        ({"access_key": ""}, "the access key or the secret key is empty"),
        ({"secret_key": ""}, "the access key or the secret key is empty"),
    ],
)
def test_a_connection_that_cannot_work_is_refused_before_any_request(wrong: dict[str, str], message: str) -> None:
    settings = {
        "endpoint_url": "http://127.0.0.1:1",
        "region": "us-east-1",
        "access_key": "AK",
        "secret_key": "secret",
        **wrong,
    }
    with pytest.raises(ConfigError, match=message):
        open_store(name="cloud", bucket="b", **settings)


def test_the_store_needs_nothing_beyond_its_client_library_in_a_training_image() -> None:
    program = (
        "import sys, spillway.stores.s3, spillway.stores.local\n"
        "words = ('spillway.model.', 'spillway.errors.')\n"
        "own = [m for m in sys.modules if m.startswith('spillway.') and not m.startswith(words)]\n"
        "print(sorted(own))\n"
        "heavy = {'airflow', 'sqlalchemy', 'pydantic', 'kubernetes', 'aiohttp', 'numpy', 'mypy_boto3_s3', 'boto3'}\n"
        "assert not heavy & set(sys.modules), heavy & set(sys.modules)"
    )
    include = Path(spillway.__file__).parent.parent
    done = subprocess.run(
        [sys.executable, "-c", program], env={"PYTHONPATH": str(include)}, capture_output=True, text=True, check=True
    )
    assert ast.literal_eval(done.stdout) == [
        "spillway.errors",
        "spillway.model",
        "spillway.stores",
        "spillway.stores.base",
        "spillway.stores.environment",
        "spillway.stores.http_pool",
        "spillway.stores.local",
        "spillway.stores.local_drafts",
        "spillway.stores.local_keys",
        "spillway.stores.parts",
        "spillway.stores.patience",
        "spillway.stores.s3",
        "spillway.stores.s3_answers",
        "spillway.stores.s3_conditions",
        "spillway.stores.s3_deletes",
        "spillway.stores.s3_endpoint",
        "spillway.stores.s3_keys",
        "spillway.stores.s3_listing",
        "spillway.stores.s3_requests",
        "spillway.stores.signing",
        "spillway.stores.waiting",
        "spillway.threads",
    ]
