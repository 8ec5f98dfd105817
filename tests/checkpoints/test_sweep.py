"""A sweep beside slow links and wrong clocks."""

from __future__ import annotations

import os
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from spillway.checkpoints import claims, sweep
from spillway.checkpoints.claims import SWEEP_LIFE, Sweep, read_sweep, write_sweep
from spillway.checkpoints.layout import part_key, sha256_of, sweep_key
from spillway.checkpoints.prune import PruneReport
from spillway.checkpoints.store import CheckpointStore
from spillway.checkpoints.sweep import SweepReport
from spillway.model import ObjectInfo
from spillway.runs.retention import summary
from spillway.stores.local import LocalStore
from spillway.testing.checkpoints import WatchedStore, commit_step

RUN = "llm-7b"
LEFT_OVERS = 60


class FarStore(WatchedStore):
    """A store for whose every answer the clock of the test, and no other, goes on by ``seconds``."""

    def __init__(self, inner: LocalStore, seconds: float) -> None:
        super().__init__(inner)
        self.seconds, self.requests = seconds, list[str]()

    def monotonic(self) -> float:
        return len(self.requests) * self.seconds

    def head(self, key: str) -> ObjectInfo | None:
        self.requests.append(f"head {key}")
        return super().head(key)

    def read(self, key: str, **wanted: Any) -> Iterator[bytes]:
        self.requests.append(f"read {key}")
        return super().read(key, **wanted)


def left_overs(store: LocalStore) -> None:
    """Parts that no step has, an hour old, beside a committed step."""
    checkpoints = CheckpointStore(store, RUN)
    checkpoints.fence(1)
    commit_step(checkpoints, 10)
    for number in range(LEFT_OVERS):
        body = f"left over {number}".encode()
        key = part_key(RUN, sha256_of(body))
        store.put(key, body, size_bytes=len(body))
        made = Path(store.name.removeprefix("file://")) / key
        os.utime(made, (made.stat().st_mtime - 3600,) * 2)


def swept(store: FarStore, monkeypatch: pytest.MonkeyPatch) -> SweepReport:
    monkeypatch.setattr(sweep, "time", store)
    return sweep.sweep(CheckpointStore(store, RUN), now=datetime.now(UTC))


def test_by_a_made_up_clock_a_slow_link_makes_batches_smaller_and_everything_goes(
    store: LocalStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    left_overs(store)
    far = FarStore(store, seconds=1.0)
    report = swept(far, monkeypatch)
    assert (report.parts, report.late) == (LEFT_OVERS, 0)
    assert len(list(store.list(f"{RUN}/parts/"))) == 1
    assert len([request for request in far.requests if "/manifests/" in request]) == 1, "it never changes"


def test_by_a_made_up_clock_a_link_that_is_too_slow_leaves_the_parts_and_says_so(
    store: LocalStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    left_overs(store)
    report = swept(FarStore(store, seconds=20.0), monkeypatch)
    assert report == SweepReport(late=LEFT_OVERS)
    assert len(list(store.list(f"{RUN}/parts/"))) == LEFT_OVERS + 1
    told = summary(PruneReport(swept=report))
    assert told == f"{LEFT_OVERS} parts left, the store answers too slowly to delete them safely"


@pytest.mark.parametrize(("age", "goes_on"), [(timedelta(0), False), (SWEEP_LIFE + timedelta(seconds=1), True)])
def test_another_sweep_is_dead_when_it_is_by_the_stores_clock_too(
    store: LocalStore, age: timedelta, goes_on: bool
) -> None:
    left_overs(store)
    another = Sweep(by="another", parts=(sha256_of(b"theirs"),))
    write_sweep(store, RUN, another, replacing=None)
    file = Path(store.name.removeprefix("file://")) / sweep_key(RUN)
    os.utime(file, (file.stat().st_mtime - age.total_seconds(),) * 2)
    an_hour_fast = datetime.now(UTC) + timedelta(hours=1)
    report = sweep.sweep(CheckpointStore(store, RUN), now=an_hour_fast)
    assert (report.busy, report.parts) == ((False, LEFT_OVERS) if goes_on else (True, 0))
    assert read_sweep(store, RUN) == (None if goes_on else another)
    assert [entry.key for entry in store.list(f"{RUN}/SWEEP")] == ([] if goes_on else [sweep_key(RUN)])


class LateStore(WatchedStore):
    """A store whose clock is ten minutes behind that of this process."""

    def head(self, key: str) -> ObjectInfo | None:
        info = super().head(key)
        return info and info._replace(modified_at=info.modified_at and info.modified_at - timedelta(minutes=10))


@pytest.mark.parametrize(("age", "waits"), [(timedelta(0), True), (SWEEP_LIFE + timedelta(minutes=1), False)])
def test_a_writer_goes_by_the_stores_clock_when_it_waits_for_a_sweep(
    store: LocalStore, monkeypatch: pytest.MonkeyPatch, age: timedelta, waits: bool
) -> None:
    late = LateStore(store)
    checkpoints = CheckpointStore(late, RUN)
    checkpoints.fence(1)
    write_sweep(late, RUN, Sweep(by="another", parts=(sha256_of(b"mine"),)), replacing=None)
    file = Path(store.name.removeprefix("file://")) / sweep_key(RUN)
    os.utime(file, (file.stat().st_mtime - age.total_seconds(),) * 2)
    waited: list[float] = []

    class Clock:
        monotonic = staticmethod(lambda: 0.0)

        @staticmethod
        def sleep(seconds: float) -> None:
            waited.append(seconds)
            store.delete([sweep_key(RUN)])

    monkeypatch.setattr(claims, "time", Clock)
    commit_step(checkpoints, 10, parts={"weights": b"mine"})
    assert bool(waited) is waits
    assert checkpoints.resume_point().step == 10
