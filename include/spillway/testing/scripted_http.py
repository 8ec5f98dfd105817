"""A scripted HTTP server, for what the real test registry cannot be told to do: tokens, rate limits, odd answers."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """A request that the server received."""

    method: str
    path: str
    headers: Mapping[str, str]
    body: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """What the server answers; ``cut_bytes`` ends the connection that many bytes before the body's end."""

    status: int = 200
    body: bytes = b""
    headers: Mapping[str, str] = field(default_factory=dict)
    cut_bytes: int = 0


class ScriptedServer:
    """Answers each request by the ``script``, and keeps what it was asked."""

    def __init__(self) -> None:
        self.calls: list[Call] = []
        self.script: Callable[[Call], Answer] = lambda call: Answer(status=404)
        outer = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def handle_any(self) -> None:
                length = int(self.headers.get("Content-Length") or 0)
                body = self.rfile.read(length)
                call = Call(method=self.command, path=self.path, headers=dict(self.headers), body=body)
                outer.calls.append(call)
                answer = outer.script(call)
                self.send_response(answer.status)
                for name, value in answer.headers.items():
                    self.send_header(name, value)
                self.send_header("Content-Length", str(len(answer.body)))
                self.end_headers()
                if self.command != "HEAD":
                    self.wfile.write(answer.body[: len(answer.body) - answer.cut_bytes])
                self.close_connection = bool(answer.cut_bytes)

            do_GET = do_HEAD = do_POST = do_PUT = do_DELETE = handle_any

            def log_message(self, format: str, *arguments: object) -> None:
                """Nothing: the calls are kept."""

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.02})
        self._thread.start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._server.server_port}"

    def close(self) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()
