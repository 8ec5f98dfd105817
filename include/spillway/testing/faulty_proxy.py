"""An HTTP proxy before a real server that spoils chosen answers, for faults that no server gives on demand."""

from __future__ import annotations

import http.client
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Lock, Thread
from urllib.parse import urlsplit


@dataclass(frozen=True, slots=True)
class Answer:
    """What goes back to the client. ``sent`` is how much of the body does, None for all of it."""

    status: int
    body: bytes = b""
    headers: tuple[tuple[str, str], ...] = ()
    sent: int | None = None


Spoil = Callable[[Answer], Answer | None]
"""Gives the answer to send instead, or None to hang up without one; the server has done its work already."""


class FaultyProxy:
    """Relays to ``upstream``; ``url`` is where clients talk to it."""

    def __init__(self, upstream: str) -> None:
        self._upstream = urlsplit(upstream).netloc
        self._faults: list[tuple[str, Spoil]] = []
        self._lock = Lock()
        self.url = ""

    def spoil(self, method: str, spoil: Spoil, *, times: int = 1) -> None:
        """Spoil the answers to the next requests of this method."""
        self._faults.extend([(method, spoil)] * times)

    def answer(self, method: str, path: str, headers: dict[str, str], body: bytes) -> Answer | None:
        upstream = http.client.HTTPConnection(self._upstream, timeout=30)
        try:
            upstream.request(method, path, body, headers)
            reply = upstream.getresponse()
            answer = Answer(reply.status, reply.read(), tuple(reply.getheaders()))
        finally:
            upstream.close()
        spoil = self._next_fault(method)
        return spoil(answer) if spoil else answer

    def _next_fault(self, method: str) -> Spoil | None:
        with self._lock:
            for index, (wanted, spoil) in enumerate(self._faults):
                if wanted == method:
                    del self._faults[index]
                    return spoil
        return None


class _Server(ThreadingHTTPServer):
    def __init__(self, proxy: FaultyProxy) -> None:
        super().__init__(("127.0.0.1", 0), _Relay)
        self.proxy = proxy


class _Relay(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: _Server

    def relay(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        headers = {name: value for name, value in self.headers.items() if name.lower() != "expect"}
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
        self.wfile.write(answer.body[: answer.sent])

    do_GET = do_PUT = do_POST = do_DELETE = do_HEAD = relay

    def log_message(self, format: str, *args: object) -> None:
        """Say nothing."""


@contextmanager
def faulty_proxy(upstream: str) -> Iterator[FaultyProxy]:
    """A running proxy for the length of a ``with`` block."""
    proxy = FaultyProxy(upstream)
    server = _Server(proxy)
    proxy.url = f"http://127.0.0.1:{server.server_address[1]}"
    thread = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
    thread.start()
    try:
        yield proxy
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
