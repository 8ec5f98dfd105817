"""Threads that whoever is told to end does not wait for."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

LEAVE_SECONDS = 1.0
"""What threads are given to end by themselves before they are left behind."""


def told_to_end(kind: type[BaseException] | None) -> bool:
    """Whether a block ends because its process or its task is to: Ctrl-C, SIGTERM, a time-out of Airflow."""
    return kind is not None and not issubclass(kind, Exception)


@contextmanager
def worker_threads(count: int, name: str) -> Iterator[ThreadPoolExecutor]:
    """A pool; a block that fails drops what has not begun, and waits for the rest unless it is told to end.

    What is left behind then may be cut anywhere, as by a lost machine: it has to be such that this does no harm.
    """
    pool = ThreadPoolExecutor(count, thread_name_prefix=name)
    try:
        yield pool
    except BaseException as problem:
        pool.shutdown(wait=not told_to_end(type(problem)), cancel_futures=True)
        raise
    pool.shutdown()


def leave(threads: Iterable[threading.Thread]) -> None:
    """Wait a moment for them, all together."""
    until = time.monotonic() + LEAVE_SECONDS
    for thread in threads:
        if thread is not threading.current_thread():
            thread.join(max(0.0, until - time.monotonic()))
