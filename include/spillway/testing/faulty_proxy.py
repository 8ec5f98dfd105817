"""An HTTP proxy before a real server, which spoils chosen answers as no server does on demand, or adds TLS."""

from __future__ import annotations

import http.client
import ssl
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Lock, Thread
from typing import TypeAlias, TypeVar
from urllib.parse import urlsplit

from spillway.sandbox.certificates import KeyPair


@dataclass(frozen=True, slots=True)
class Answer:
    """What goes back to the client. ``sent`` is how much of the body does, None for all of it."""

    status: int
    body: bytes = b""
    headers: tuple[tuple[str, str], ...] = ()
    sent: int | None = None


Spoil = Callable[[Answer], Answer | None]
"""Gives the answer to send instead, or None to hang up without one; the server has done its work already."""


T = TypeVar("T")
Fault: TypeAlias = tuple[str, str, T]
"""Method, part of the path, and what is done about one such request."""


def _next(faults: list[Fault[T]], method: str, path: str) -> Fault[T] | None:
    """The first fault that is meant for the request; it is used up."""
    for index, fault in enumerate(faults):
        if fault[0] == method and fault[1] in path:
            return faults.pop(index)
    return None


def xml_error(status: int, code: str, *headers: tuple[str, str]) -> Answer:
    """An error as S3 servers tell it."""
    body = f"<Error><Code>{code}</Code><Message>as told</Message></Error>".encode()
    return Answer(status, body, (("Content-Type", "application/xml"), *headers))


class FaultyProxy:
    """Relays to ``upstream``; ``url`` is where clients talk to it."""

    def __init__(self, upstream: str) -> None:
        self._upstream = urlsplit(upstream).netloc
        self._spoilt: list[Fault[Spoil]] = []
        self._refused: list[Fault[Answer | None]] = []
        self._damaged: list[str] = []
        self._lock = Lock()
        self.url = ""
        self.requests: list[str] = []
        """``METHOD /path?query`` of each, in the order in which they came, those that were refused included."""
        self.answered: list[str] = []
        """The same of each whose success went back to the client, in that order."""
        self.bytes_received = 0

    def spoil(self, method: str, spoil: Spoil, *, times: int = 1, path: str = "") -> None:
        """Spoil the answers to the next requests of this method whose path has that part."""
        self._spoilt.extend([(method, path, spoil)] * times)

    def refuse(self, method: str, answer: Answer | None, *, times: int = 1, path: str = "") -> None:
        """Give this answer, or hang up, without asking the server."""
        self._refused.extend([(method, path, answer)] * times)

    def damage(self, method: str, *, times: int = 1) -> None:
        """Let the bodies of the next requests of this method arrive with other bytes."""
        self._damaged.extend([method] * times)

    def forget(self) -> None:
        """Spoil nothing more, and begin the list of requests anew."""
        with self._lock:
            self._spoilt.clear()
            self._refused.clear()
            self.requests.clear()

    def answer(self, method: str, path: str, headers: dict[str, str], body: bytes) -> Answer | None:
        with self._lock:
            self.requests.append(f"{method} {path}")
            self.bytes_received += len(body)
            refused = _next(self._refused, method, path)
            if method in self._damaged and body:
                self._damaged.remove(method)
                body = bytes([body[0] ^ 1]) + body[1:]
        if refused is not None:
            return refused[2]
        upstream = http.client.HTTPConnection(self._upstream, timeout=30)
        try:
            upstream.request(method, path, body, headers)
            reply = upstream.getresponse()
            answer = Answer(reply.status, reply.read(), tuple(reply.getheaders()))
        except (OSError, http.client.HTTPException):  # the server is away, which the client is to see as such
            return None
        finally:
            upstream.close()
        with self._lock:
            fault = _next(self._spoilt, method, path)
        return fault[2](answer) if fault else answer


class _Server(ThreadingHTTPServer):
    def __init__(self, proxy: FaultyProxy) -> None:
        super().__init__(("127.0.0.1", 0), _Relay)
        self.proxy = proxy


class _Relay(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: _Server

    def relay(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        sent = {name for name in self.headers if name.lower() != "expect"}
        headers = {name: ", ".join(self.headers.get_all(name, [])) for name in sent}
        answer = self.server.proxy.answer(self.command, self.path, headers, body)
        self.close_connection = True
        if answer is None:
            return
        self.send_response_only(answer.status)
        for name, value in answer.headers:
            if name.lower() not in ("content-length", "connection", "transfer-encoding"):
                self.send_header(name, value)
        announced = dict(answer.headers).get("Content-Length", "0") if self.command == "HEAD" else len(answer.body)
        self.send_header("Content-Length", str(announced))
        self.send_header("Connection", "close")
        self.end_headers()
        if answer.status < 300:
            self.server.proxy.answered.append(f"{self.command} {self.path}")
        self.wfile.write(answer.body[: answer.sent])

    do_GET = do_PUT = do_POST = do_PATCH = do_DELETE = do_HEAD = relay

    def log_message(self, format: str, *args: object) -> None:
        """Say nothing."""


@contextmanager
def faulty_proxy(upstream: str, *, tls: KeyPair | None = None) -> Iterator[FaultyProxy]:
    """A running proxy for the length of a ``with`` block; with a certificate its clients speak TLS to it."""
    proxy = FaultyProxy(upstream)
    server = _Server(proxy)
    if tls is not None:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(tls.certificate, tls.key)
        server.socket = context.wrap_socket(server.socket, server_side=True, do_handshake_on_connect=False)
    proxy.url = f"http{'s' if tls else ''}://127.0.0.1:{server.server_address[1]}"
    thread = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
    thread.start()
    try:
        yield proxy
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
