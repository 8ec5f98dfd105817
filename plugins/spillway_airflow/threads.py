"""Where triggers do their blocking calls: never on the triggerer's event loop, and not on its few default threads.

A cluster that does not answer holds a thread for as long as its time-out; with the default pool half a dozen such
calls would keep every other pod of the triggerer from being looked at. Those who wait for a place, hundreds of runs in
a busy time, stand in line for one reading of the clusters, and have a few threads of their own for it.
"""

from __future__ import annotations

import asyncio
import contextvars
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any, ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")

THREADS = 64
WAITING_THREADS = 4
_POOL = ThreadPoolExecutor(THREADS, thread_name_prefix="spillway-trigger")
_OF_WAITING = ThreadPoolExecutor(WAITING_THREADS, thread_name_prefix="spillway-waiting")


async def in_thread(call: Callable[P, T], *arguments: P.args, **named: P.kwargs) -> T:
    """What the call gives, made in a thread that logs where its caller logs."""
    return await _made(_POOL, call, *arguments, **named)


async def in_waiting_thread(call: Callable[P, T], *arguments: P.args, **named: P.kwargs) -> T:
    """The same, for a call that stands in line with many others for one answer."""
    return await _made(_OF_WAITING, call, *arguments, **named)


async def _made(pool: ThreadPoolExecutor, call: Callable[P, T], *arguments: P.args, **named: P.kwargs) -> T:
    context = contextvars.copy_context()
    prepared: Callable[[], Any] = partial(context.run, call, *arguments, **named)
    result: T = await asyncio.get_running_loop().run_in_executor(pool, prepared)
    return result
