"""Real servers that are killed in the middle of what somebody does with them."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from threading import Event, Thread
from typing import Protocol

from spillway.stores import waiting
from spillway.testing.faulty_proxy import FaultyProxy


class Server(Protocol):
    """One that keeps what it has acknowledged."""

    def start(self) -> None: ...

    def kill(self) -> None: ...


@contextmanager
def killed_in_mid_run(
    server: Server, proxy: FaultyProxy, method: str, path: str, *, after: int, comes_back: bool
) -> Iterator[list[str]]:
    """The server is killed when it has done what a request asked for, the answer is lost; at the end it runs again.

    Args:
        method, path: of the requests that are meant.
        after: how many of them are answered before.
        comes_back: it is started as soon as somebody says that it is waited for, not at the end.
    Yields:
        What is said of waiting.
    """
    said, dead, waited_for = _Ear(), Event(), Event()
    said.heard = waited_for.set

    def kill(_: object) -> None:
        server.kill()
        dead.set()

    def revive() -> None:
        dead.wait()
        waited_for.wait()
        server.start()

    proxy.spoil(method, lambda answer: answer, times=after, path=path)
    proxy.spoil(method, kill, path=path)
    log = logging.getLogger(waiting.__name__)
    log.addHandler(said)
    reviving = Thread(target=revive, daemon=True)
    if comes_back:
        reviving.start()
    try:
        yield said.lines
        assert dead.is_set(), f"nobody asked {method} {path} more than {after} times"
    finally:
        log.removeHandler(said)
        proxy.forget()
        if dead.is_set():
            waited_for.set()
            if not comes_back:
                reviving.start()
            reviving.join()


class _Ear(logging.Handler):
    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.lines: list[str] = []
        self.heard: Callable[[], object] = bool

    def emit(self, record: logging.LogRecord) -> None:
        self.lines.append(record.getMessage())
        self.heard()


def puts_of(proxy: FaultyProxy, path: str) -> list[str]:
    """What was put and acknowledged below that path, with the number of the part where it was one."""
    puts = [line.removeprefix("PUT ") for line in proxy.answered if line.startswith("PUT ") and path in line]
    return [line.partition("&uploadId=")[0] for line in puts]
