"""Lean HTTP/1.1 over kept connections, for the many small requests to stores and registries; measured in docs/adr.

It knows what these answer with: bodies of a known length, chunked ones, and those that end with the connection.
Redirects, cookies, compression and proxies are none of its business.
"""

from __future__ import annotations

import contextlib
import select
import socket
import ssl
import weakref
from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from io import BufferedReader
from typing import Protocol, cast
from urllib.parse import urlsplit

from spillway.errors.counts import counted

CHUNK_BYTES = 1024**2
_LINE_MAX_BYTES = 65536
_HEADERS_MAX = 200
_BODILESS = frozenset({204, 304})


class Broken(Exception):
    """The exchange broke off: no connection, a reset, silence for too long, or an answer that is cut or no HTTP."""


class Reply(Protocol):
    """An answer whose body is still to be read; whoever does not read it to its end closes it."""

    status: int

    @property
    def headers(self) -> Mapping[str, str]:
        """By lower-case name."""

    def chunks(self, size: int = CHUNK_BYTES) -> Iterator[bytes]:
        """The body in chunks of at most that many bytes; raises Broken where it is shorter than promised."""

    def close(self) -> None:
        """Give it up; the connection with it, unless the body was read."""


@dataclass(frozen=True, slots=True)
class Origin:
    """Where a pool connects to: scheme, host and port of a URL."""

    tls: bool
    host: str
    port: int

    @classmethod
    def of(cls, url: str) -> Origin:
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise ValueError(f"expected http:// or https:// and a host, got '{url}'")
        tls = parts.scheme == "https"
        return cls(tls, parts.hostname, parts.port or (443 if tls else 80))


class HttpPool:
    """Connections to one origin; safe to share between threads, each of which gets one of its own."""

    def __init__(self, origin: Origin, *, tls: ssl.SSLContext | None, connect_seconds: float, silence_seconds: float):
        self._origin, self._tls = origin, tls
        self._connect_seconds, self._silence_seconds = connect_seconds, silence_seconds
        self._idle: deque[_Connection] = deque()

    def send(
        self,
        method: str,
        target: str,
        headers: Mapping[str, str],
        body: bytes | memoryview | Iterable[bytes],
        *,
        again: bool = True,
    ) -> PooledReply:
        """One exchange; on a kept connection that the server has closed meanwhile, another one.

        Args:
            body: in pieces only where the headers tell its length.
            again: False for what must not reach the server twice: where it is not sure that it did not, that is told.
        Raises:
            Broken: whether the server acted on the request is not known.
            ssl.SSLCertVerificationError: the server's certificate does not hold.
        """
        head = "".join([f"{method} {target} HTTP/1.1\r\n", *(f"{k}: {v}\r\n" for k, v in headers.items()), "\r\n"])
        while True:
            kept = self._take(at_rest=not again)
            connection = kept or self._connect()
            try:
                return PooledReply(self, connection, *connection.exchange(method, head.encode("latin-1"), body))
            except OSError as problem:
                connection.close()
                if kept is None or not again or not isinstance(problem, _Stale):
                    raise Broken(
                        f"the connection to {self._where} broke: {problem or type(problem).__name__}"
                    ) from None
            except BaseException:
                connection.close()
                raise

    def give_back(self, connection: _Connection) -> None:
        """The connection is at rest and may serve again."""
        self._idle.append(connection)

    @property
    def _where(self) -> str:
        return f"{self._origin.host}:{self._origin.port}"

    def _take(self, *, at_rest: bool) -> _Connection | None:
        """A kept connection; with ``at_rest`` one that the server is not known to have closed."""
        with contextlib.suppress(IndexError):
            while True:
                connection = self._idle.pop()
                if not at_rest or connection.at_rest:
                    return connection
                connection.close()
        return None

    def _connect(self) -> _Connection:
        address = (self._origin.host, self._origin.port)
        try:
            plain = socket.create_connection(address, timeout=self._connect_seconds)
            plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            secure = self._tls.wrap_socket(plain, server_hostname=self._origin.host) if self._tls else plain
        except ssl.SSLCertVerificationError:
            raise
        except OSError as problem:
            raise Broken(f"Could not connect to {self._where}: {problem}") from None
        secure.settimeout(self._silence_seconds)
        return _Connection(secure)


class _Stale(ConnectionError):
    """Not a byte came back: of a kept connection that means that the server had closed it before."""


class _Connection:
    def __init__(self, sock: socket.socket) -> None:
        self._socket = sock
        self.file = cast("BufferedReader", sock.makefile("rb", _LINE_MAX_BYTES))
        # Also where nobody closes it, as when its reply was dropped unread.
        self.close = weakref.finalize(self, _close, self.file, sock)

    @property
    def at_rest(self) -> bool:
        """Whether nothing has come that nobody asked for, as the end of the connection is."""
        poll = select.poll()
        poll.register(self._socket, select.POLLIN)
        return not poll.poll(0)

    def exchange(
        self, method: str, head: bytes, body: bytes | memoryview | Iterable[bytes]
    ) -> tuple[str, int, dict[str, str]]:
        """Send a request and read the head of the answer: the method, the status, the headers."""
        try:
            if not isinstance(body, (bytes, memoryview)):
                self._socket.sendall(head)
                for piece in body:
                    self._socket.sendall(piece)
            # A small request in one packet; a copy of a large one would cost more than a second packet.
            elif len(body) <= _LINE_MAX_BYTES:
                self._socket.sendall(head + bytes(body))
            else:
                self._socket.sendall(head)
                self._socket.sendall(body)
        except ConnectionError as problem:
            # It may have said why before it hung up.
            refused: ConnectionError | None = problem
        else:
            refused = None
        try:
            status = self._status()
            while status < 200:
                self._headers()
                status = self._status()
            return method, status, self._headers()
        except ConnectionError:
            if refused is not None:
                raise _Stale(str(refused)) from None
            raise

    def _status(self) -> int:
        try:
            line = self.file.readline(_LINE_MAX_BYTES)
        except ConnectionError as problem:
            raise _Stale(str(problem)) from None
        if not line:
            raise _Stale("it was closed without an answer")
        parts = line.split(None, 2)
        if len(parts) < 2 or not parts[0].startswith(b"HTTP/1.") or not parts[1].isdigit():
            raise OSError(f"expected an answer of HTTP/1.1, got {line[:80]!r}")
        return int(parts[1])

    def _headers(self) -> dict[str, str]:
        headers: dict[str, str] = {}
        for _ in range(_HEADERS_MAX):
            line = self.file.readline(_LINE_MAX_BYTES)
            if line in (b"\r\n", b"\n"):
                return headers
            name, colon, value = line.decode("latin-1").partition(":")
            if not colon:
                raise OSError(f"its answer is cut off in its headers, at {line[:80]!r}")
            headers[name.lower()] = value.strip()
        raise OSError(f"its answer has more than {_HEADERS_MAX} headers")


def _close(file: BufferedReader, sock: socket.socket) -> None:
    file.close()
    sock.close()


class PooledReply:
    """A ``Reply``; its connection goes back to the pool when the body was read."""

    def __init__(
        self, pool: HttpPool, connection: _Connection, method: str, status: int, headers: dict[str, str]
    ) -> None:
        self.status = status
        self.headers: Mapping[str, str] = headers
        self._pool, self._connection = pool, connection
        self._chunked = headers.get("transfer-encoding", "").lower() == "chunked"
        length = headers.get("content-length", "")
        self._left = int(length) if length.isdigit() and not self._chunked else None
        if method == "HEAD" or status in _BODILESS:
            self._left, self._chunked = 0, False
        self._open = True
        if self._left == 0:
            self._finish()

    def chunks(self, size: int = CHUNK_BYTES) -> Iterator[bytes]:
        try:
            yield from self._in_chunks() if self._chunked else self._plain(size)
        except (OSError, ValueError) as problem:
            raise Broken(f"the body broke off: {problem or type(problem).__name__}") from None
        finally:
            self.close()

    def close(self) -> None:
        if self._open:
            self._open = False
            self._connection.close()

    def _finish(self) -> None:
        if self._left is not None and self.headers.get("connection", "").lower() != "close":
            self._open = False
            self._pool.give_back(self._connection)
        else:
            self.close()

    def _plain(self, size: int) -> Iterator[bytes]:
        file = self._connection.file
        while self._open and self._left != 0:
            chunk = file.read(size if self._left is None else min(self._left, size))
            if self._left is not None:
                self._left -= len(chunk)
                if not chunk:
                    raise OSError(f"{counted(self._left, 'byte')} missing")
            elif not chunk:
                return
            if self._left == 0:
                self._finish()
            yield chunk

    def _in_chunks(self) -> Iterator[bytes]:
        file = self._connection.file
        while True:
            size = int(file.readline(_LINE_MAX_BYTES).partition(b";")[0] or b"-1", 16)
            if size == 0:
                while file.readline(_LINE_MAX_BYTES) not in (b"\r\n", b"\n", b""):
                    pass
                self._left = 0
                self._finish()
                return
            chunk = file.read(size) if size > 0 else b""
            if len(chunk) != max(size, 1) or not file.readline(_LINE_MAX_BYTES).endswith(b"\n"):
                raise OSError("a piece of it is missing")
            yield chunk
