"""Whether a process is ready is asked of servers that may be killed in mid-answer: that is a no, never an error."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from pathlib import Path

import pytest

from spillway.sandbox.airflow import component_is_healthy
from spillway.sandbox.certificates import issue
from spillway.sandbox.kube.process import api_answers
from spillway.sandbox.process import http_answers


@pytest.fixture(params=[b"no HTTP at all\r\n\r\n", b"HTTP/1.1 500 no\r\n\r\n", b"HTTP/1.1 200 OK\r\n"
                        b"Content-Length: 900\r\n\r\n{"], ids=["no-http", "error", "cut-off"])  # fmt: skip
def url(request: pytest.FixtureRequest) -> Iterator[str]:
    """A server that gives each caller these bytes and hangs up."""
    with closing(socket.create_server(("127.0.0.1", 0))) as server:

        def answer() -> None:
            caller, _ = server.accept()
            with caller, suppress(ConnectionError):  # of a caller that has lost its patience
                caller.recv(65536)
                caller.sendall(request.param)

        thread = threading.Thread(target=answer, daemon=True)
        thread.start()
        yield f"http://127.0.0.1:{server.getsockname()[1]}"
        thread.join(60)


@pytest.mark.parametrize(
    "ready",
    [
        pytest.param(lambda url, folder: component_is_healthy(url, "scheduler"), id="airflow"),
        pytest.param(lambda url, folder: http_answers(url, statuses=(401,)), id="registry"),
        pytest.param(lambda url, folder: api_answers(url, issue(folder).ca_file) and False, id="kubernetes"),
    ],
)
def test_a_broken_answer_is_no_readiness(ready: Callable[[str, Path], bool], url: str, tmp_path: Path) -> None:
    assert ready(url, tmp_path) is False
