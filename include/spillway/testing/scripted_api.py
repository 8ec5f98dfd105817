"""An HTTP server whose answers a test writes down beforehand: what a real API cannot be made to say on demand."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from spillway.clouds.kubernetes import client_from_kubeconfig


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """One scripted answer; ``status`` 0 closes the connection without one, ``cut`` sends only half of the body."""

    status: int = 200
    body: Any = field(default_factory=dict)
    headers: tuple[tuple[str, str], ...] = ()
    cut: bool = False


@dataclass(slots=True)
class ScriptedApi:
    """Gives its answers in order, the last one for ever, and remembers what it was asked and sent."""

    answers: list[Answer]
    url: str = ""
    asked: list[str] = field(default_factory=list)
    bodies: list[Any] = field(default_factory=list)

    def next_answer(self, request: str, body: bytes) -> Answer:
        self.asked.append(request)
        self.bodies.append(json.loads(body) if body else None)
        return self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]

    def client(self) -> Any:
        """An ``ApiClient`` of the official client for this server."""
        return client_from_kubeconfig(kubeconfig(self.url))


def kubeconfig(url: str) -> dict[str, Any]:
    """A kubeconfig with one context, ``here``."""
    return {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "here", "cluster": {"server": url}}],
        "users": [{"name": "here", "user": {"token": "not-a-secret"}}],
        "contexts": [{"name": "here", "context": {"cluster": "here", "user": "here"}}],
        "current-context": "here",
    }


@contextmanager
def scripted_api(*answers: Answer) -> Iterator[ScriptedApi]:
    """The running server for the length of a ``with`` block."""
    api = ScriptedApi(answers=list(answers))
    server = ThreadingHTTPServer(("127.0.0.1", 0), _handler(api))
    api.url = f"http://127.0.0.1:{server.server_address[1]}"
    threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
    try:
        yield api
    finally:
        server.shutdown()
        server.server_close()


def _handler(api: ScriptedApi) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        def answer(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            given = api.next_answer(f"{self.command} {self.path}", body)
            if given.status:
                sent = given.body if isinstance(given.body, bytes) else json.dumps(given.body).encode()
                self.send_response(given.status)
                for name, value in (*given.headers, ("Content-Length", str(len(sent)))):
                    self.send_header(name, value)
                self.end_headers()
                self.wfile.write(sent[: len(sent) // 2] if given.cut else sent)
            self.close_connection = True

        do_GET = do_POST = do_PUT = do_PATCH = do_DELETE = answer

        def log_message(self, format: str, *args: Any) -> None:
            """Tests print nothing."""

    return Handler
