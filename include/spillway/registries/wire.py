"""Single exchanges over HTTP: with a registry, and with whom it sends its clients to for tokens and for blobs."""

from __future__ import annotations

import contextlib
import ssl
from collections.abc import Iterable, Iterator, Mapping
from functools import cached_property
from threading import Lock
from typing import TYPE_CHECKING
from urllib.parse import quote, urljoin, urlsplit

from spillway.stores.environment import environment_proxies
from spillway.stores.http_pool import CHUNK_BYTES, Broken, HttpPool, Origin, Reply

if TYPE_CHECKING:
    from spillway.stores.proxied import ProxiedSession

CONNECT_SECONDS = 10.0
READ_SECONDS = 60.0
REDIRECTS = (301, 302, 303, 307, 308)
MAX_REDIRECTS = 5
_UNQUOTED = "!#$%&'()*+,/:;=?@[]~"


class Answer:
    """An answer whose body is still to be read; ``headers`` are by lower-case name.

    Whoever does not read it to its end drains or closes it.
    """

    def __init__(self, reply: Reply) -> None:
        self._reply = reply
        self.status = reply.status
        self.headers: Mapping[str, str] = reply.headers

    @cached_property
    def data(self) -> bytes:
        """The whole body; raises Broken where it is cut off."""
        return b"".join(self._reply.chunks())

    def chunks(self, size_bytes: int = CHUNK_BYTES) -> Iterator[bytes]:
        """The body in pieces; raises Broken where it is cut off."""
        return self._reply.chunks(size_bytes)

    def drain(self) -> None:
        """Read what nobody needs, so that the connection serves the next request."""
        with contextlib.suppress(Broken):
            _ = self.data

    def close(self) -> None:
        """Give it up, with its connection unless it was read."""
        self._reply.close()


class Wire:
    """Connections to a registry and to whom it leads; safe to share between threads.

    Args:
        ca_file: who vouches for their certificates; whom the system trusts where it is None.
    """

    def __init__(self, ca_file: str | None) -> None:
        self._ca_file = ca_file
        self._lock = Lock()
        self._pools: dict[Origin, HttpPool | ProxiedSession] = {}

    def send(
        self,
        method: str,
        url: str,
        headers: Mapping[str, str],
        body: bytes | Iterable[bytes] | None = None,
    ) -> Answer:
        """The answer to a request; a GET follows redirects, but its password does not leave the origin.

        Only what reads is sent again where a kept connection turns out to be closed.

        Raises:
            Broken: there is none; whether the server acted on the request is not known.
            ssl.SSLCertVerificationError: the certificate does not hold.
            OSError: the file of certificates cannot be read.
        """
        headers = {"User-Agent": "spillway", "Accept-Encoding": "identity", **headers}
        if "Content-Length" not in headers and (body is not None or method in ("POST", "PUT", "PATCH")):
            headers["Content-Length"] = str(len(body) if isinstance(body, bytes) else 0)
        for _ in range(MAX_REDIRECTS + 1):
            origin = _origin(url)
            parts = urlsplit(url)
            target = quote(parts._replace(scheme="", netloc="", fragment="").geturl() or "/", safe=_UNQUOTED)
            host = parts.netloc.rpartition("@")[2]
            reply = self._pool(origin, f"{parts.scheme}://{host}").send(
                method,
                target,
                {"Host": host, **headers},
                b"" if body is None else body,
                again=method in ("GET", "HEAD"),
            )
            answer, location = Answer(reply), reply.headers.get("location")
            if method != "GET" or answer.status not in REDIRECTS or location is None:
                return answer
            answer.drain()
            url = urljoin(url, location)
            if _origin(url) != origin:
                headers = {name: value for name, value in headers.items() if name != "Authorization"}
        raise Broken(f"it sends from one address to the next, more than {MAX_REDIRECTS} times")

    def _pool(self, origin: Origin, url: str) -> HttpPool | ProxiedSession:
        with self._lock:
            if origin not in self._pools:
                self._pools[origin] = self._opened(origin, url)
            return self._pools[origin]

    def _opened(self, origin: Origin, url: str) -> HttpPool | ProxiedSession:
        tls = ssl.create_default_context(cafile=self._ca_file) if origin.tls else None
        proxies = environment_proxies(url)
        if urlsplit(url).scheme in proxies:
            from spillway.stores.proxied import ProxiedSession

            timeouts = (CONNECT_SECONDS, READ_SECONDS)
            trusted = self._ca_file or ssl.get_default_verify_paths().cafile or True
            return ProxiedSession(url, proxies, verify=trusted, timeouts=timeouts)
        return HttpPool(origin, tls=tls, connect_seconds=CONNECT_SECONDS, silence_seconds=READ_SECONDS)


def _origin(url: str) -> Origin:
    try:
        return Origin.of(url)
    except ValueError as problem:
        raise Broken(f"it leads to an address that is none: {problem}") from problem
