"""A bucket of a real server, straight and through a proxy that spoils answers."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from spillway.stores.s3 import S3Store
from spillway.testing.faulty_proxy import FaultyProxy, faulty_proxy
from spillway.testing.s3_server import S3Server


@pytest.fixture
def proxy(s3_server: S3Server) -> Iterator[FaultyProxy]:
    with faulty_proxy(s3_server.endpoint_url) as running:
        yield running


@pytest.fixture(scope="module")
def bucket(s3_server: S3Server) -> str:
    return s3_server.new_bucket()


@pytest.fixture
def direct(s3_server: S3Server, bucket: str) -> Iterator[S3Store]:
    store = s3_server.open(bucket)
    yield store
    store.delete([entry.key for entry in store.list()])


def through(proxy: FaultyProxy, server: S3Server, bucket: str, *, attempts: int) -> S3Store:
    return S3Store(name="s3://b@onprem", endpoint=server.endpoint(url=proxy.url, attempts=attempts), bucket=bucket)


@pytest.fixture
def store(proxy: FaultyProxy, s3_server: S3Server, bucket: str, direct: S3Store) -> S3Store:
    """The bucket through the proxy, one attempt a request."""
    return through(proxy, s3_server, bucket, attempts=1)


@pytest.fixture
def retrying(proxy: FaultyProxy, s3_server: S3Server, bucket: str, direct: S3Store) -> S3Store:
    return through(proxy, s3_server, bucket, attempts=3)
