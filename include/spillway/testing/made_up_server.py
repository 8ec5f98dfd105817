"""An S3 server of as many objects as wanted, each of whose facts follow from its number: none of them takes space.

    python -m spillway.testing.made_up_server OBJECTS

Every bucket has the same ones below ``data/``, in the order of keys; what is put beside them is kept in memory.
"""

from __future__ import annotations

import hashlib
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs, unquote, urlsplit

from spillway.model import SyncedObject
from spillway.sandbox.objectstore import ADMIN_ACTIONS, REGION, Identity
from spillway.stores.entries import Entry
from spillway.stores.s3 import S3Endpoint, S3Store

PREFIX = "data/"
SIZE_BYTES = 1000
_PAGE = 1000
_MODIFIED = "2026-01-02T03:04:05Z"


def key_of(number: int) -> str:
    return f"{PREFIX}{number // 1000:04}/{number:07}.bin"


def etag_of(number: int) -> str:
    return f"{number:032x}"


def made_up_entries(objects: int) -> Iterator[Entry]:
    """What a sync between two of these servers would record."""
    for number in range(objects):
        yield key_of(number), SyncedObject(SIZE_BYTES, etag_of(number), etag_of(number))


class MadeUpServer:
    """A running server; whatever the keys, it lets everybody in."""

    region = REGION

    def __init__(self, name: str, endpoint_url: str) -> None:
        self.name, self.endpoint_url = name, endpoint_url
        self.admin = self.trainer = Identity(name="any", access_key="any", secret_key="any", actions=ADMIN_ACTIONS)

    def store(self, bucket: str) -> S3Store:
        """The bucket."""
        endpoint = S3Endpoint(url=self.endpoint_url, region=REGION, access_key="any", secret_key="any")
        return S3Store(name=f"s3://{bucket}@{self.name}", endpoint=endpoint, bucket=bucket)


@contextmanager
def made_up_server(name: str, objects: int) -> Iterator[MadeUpServer]:
    """A server of its own process for the length of a ``with`` block."""
    argv = [sys.executable, "-m", "spillway.testing.made_up_server", str(objects)]
    with subprocess.Popen(argv, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            yield MadeUpServer(name, f"http://127.0.0.1:{int(process.stdout.readline())}")
        finally:
            process.terminate()


def _number_of(key: str) -> int:
    return int(key[-11:-4])


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    wbufsize = -1
    objects = 0
    kept: dict[str, bytes] = {}  # noqa: RUF012

    def do_GET(self) -> None:
        url = urlsplit(self.path)
        query = {name: values[0] for name, values in parse_qs(url.query, keep_blank_values=True).items()}
        key = unquote(url.path).partition("/")[2].partition("/")[2]
        if key:
            self._object(key, self.kept.get(self.path))
        else:
            self._answer(200, self._page(query).encode(), {"content-type": "application/xml"})

    def do_HEAD(self) -> None:
        key = unquote(self.path).partition("/")[2].partition("/")[2]
        number = _number_of(key) if key[-11:-4].isdigit() else -1
        if 0 <= number < self.objects and key == key_of(number):
            self._answer(200, None, {"etag": f'"{etag_of(number)}"', "content-length": str(SIZE_BYTES)})
        else:
            self._answer(404, None, {"content-length": "0"})

    def do_PUT(self) -> None:
        body = self.rfile.read(int(self.headers.get("content-length", "0")))
        self.kept[self.path] = body
        self._answer(200, b"", {"etag": f'"{hashlib.md5(body, usedforsecurity=False).hexdigest()}"'})

    def _object(self, key: str, body: bytes | None) -> None:
        if body is None:
            self._answer(404, b"<Error><Code>NoSuchKey</Code></Error>", {})
        else:
            self._answer(200, body, {"etag": f'"{hashlib.md5(body, usedforsecurity=False).hexdigest()}"'})

    def _page(self, query: dict[str, str]) -> str:
        after = query.get("continuation-token") or query.get("marker")
        begin = _number_of(after) + 1 if after else 0
        below = PREFIX.startswith(query.get("prefix", "")) or query.get("prefix", "").startswith(PREFIX)
        end = min(begin + _PAGE, self.objects) if below else begin
        entries = "".join(
            f"<Contents><Key>{key_of(n)}</Key><LastModified>{_MODIFIED}</LastModified><ETag>&quot;{etag_of(n)}&quot;</ETag>"
            f"<Size>{SIZE_BYTES}</Size><StorageClass>STANDARD</StorageClass></Contents>"
            for n in range(begin, end)
        )
        more = below and end < self.objects
        name = "NextContinuationToken" if query.get("list-type") == "2" else "NextMarker"
        following = f"<{name}>{key_of(end - 1)}</{name}>" if more else ""
        return (
            f"<?xml version='1.0' encoding='UTF-8'?><ListBucketResult><IsTruncated>{str(more).lower()}</IsTruncated>"
            f"<KeyCount>{end - begin}</KeyCount>{following}{entries}</ListBucketResult>"
        )

    def _answer(self, status: int, body: bytes | None, headers: dict[str, str]) -> None:
        self.send_response(status)
        self.send_header("last-modified", "Fri, 02 Jan 2026 03:04:05 GMT")
        for name, value in headers.items():
            self.send_header(name, value)
        if body is not None:
            self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body or b"")
        self.wfile.flush()

    def log_message(self, *_: object) -> None:
        """Say nothing."""


if __name__ == "__main__":
    _Handler.objects = int(sys.argv[1])
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Handler)
    print(server.server_port, flush=True)
    server.serve_forever()
