"""Processes that use one ledger at the same moment."""

from __future__ import annotations

import multiprocessing
from collections.abc import Callable
from typing import Any

from spillway.ledger import Ledger, open_ledger


def in_processes(count: int, url: str, work: Callable[[Ledger, int], None]) -> None:
    """Run the work in processes that begin at the same moment; each must end well."""
    fork = multiprocessing.get_context("fork")
    start = fork.Barrier(count)

    def body(number: int, barrier: Any) -> None:
        ledger = open_ledger(url)
        barrier.wait(30)
        work(ledger, number)

    processes = [fork.Process(target=body, args=(number, start)) for number in range(count)]
    for process in processes:
        process.start()
    for process in processes:
        process.join(60)
    assert [process.exitcode for process in processes] == [0] * count
