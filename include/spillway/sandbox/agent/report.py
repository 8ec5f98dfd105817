"""Telling the API server, however long it is away."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine, Iterator
from typing import Any

from spillway.sandbox.agent.client import UNAVAILABLE, ApiFailure

log = logging.getLogger(__name__)

Call = Callable[[], Coroutine[Any, Any, Any]]

_BACK_OFF_SECONDS = (0.5, 1, 2, 4, 8)
_GONE = frozenset({404, 409})


class StatusReport:
    """Delivers the newest status to the API server, however long that is away; older ones in between are skipped."""

    def __init__(self, send: Call) -> None:
        self._send = send
        self._wanted = self._delivered = 0
        self._closed = False
        self._changed = asyncio.Condition()
        self._task = asyncio.create_task(self._run())

    async def push(self, *, wait: bool = False) -> None:
        """Have the present status sent; with ``wait``, return when it was delivered, or at once after ``close``."""
        async with self._changed:
            self._wanted += 1
            mine = self._wanted
            self._changed.notify_all()
            if wait:
                await self._changed.wait_for(lambda: self._closed or self._delivered >= mine)

    async def _run(self) -> None:
        while True:
            async with self._changed:
                await self._changed.wait_for(lambda: self._wanted > self._delivered)
                sending = self._wanted
            await persist(self._send)
            async with self._changed:
                self._delivered = sending
                self._changed.notify_all()

    async def close(self) -> None:
        """Send nothing more and let nobody wait for it."""
        self._task.cancel()
        async with self._changed:
            self._closed = True
            self._changed.notify_all()


async def persist(call: Call) -> None:
    """Call until the API server has answered; that the object is gone or another one is an answer too."""
    for pause in back_off():
        try:
            await call()
            return
        except ApiFailure as problem:
            if problem.status in _GONE:
                return
            log.warning("the API server refused: %s", problem)
        except UNAVAILABLE as problem:
            log.warning("the API server is away: %r", problem)
        await asyncio.sleep(pause)


def back_off() -> Iterator[float]:
    """Seconds to wait before each next try, for ever."""
    yield from _BACK_OFF_SECONDS
    while True:
        yield _BACK_OFF_SECONDS[-1]
