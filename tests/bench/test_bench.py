"""Figures, a line each: ``NAME VALUE goal <=X ok|short``; ratios of one run, never part of the default tests."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from statistics import median

import pytest

from spillway.stores.local import LocalStore
from spillway.sync.execute import sync_dataset

ROUNDS = 5


def _line(name: str, value: float, goal: float) -> None:
    print(f"{name} {value:.3f} goal <={goal} {'ok' if value <= goal else 'short'}")


def _seconds(work: Callable[[], object]) -> float:
    began = time.perf_counter()
    work()
    return time.perf_counter() - began


@pytest.mark.slow
def test_a_sync_with_nothing_to_do_against_the_full_copy(tmp_path: Path) -> None:
    (tmp_path / "source").mkdir()
    source = LocalStore(tmp_path / "source")
    for number in range(500):
        source.put(f"data/{number:04d}", bytes(4096), size_bytes=4096)
    ratios = []
    for round_number in range(ROUNDS):
        folder = tmp_path / f"destination-{round_number}"
        folder.mkdir()
        destination = LocalStore(folder)

        def sync(to: LocalStore = destination) -> object:
            return sync_dataset(source=source, destination=to, dataset="d", prefix="data/")

        full, nothing = _seconds(sync), _seconds(sync)
        ratios.append(nothing / full)
    _line("dataset_noop_to_full_ratio", median(ratios), 0.5)
    assert median(ratios) < 1
