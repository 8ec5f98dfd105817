"""A sync whose process is killed anywhere ends, when it is run again, as if nothing had happened.

The seed of the random points is printed and can be given: SPILLWAY_KILL_SEED=7
"""

from __future__ import annotations

import os
import random
from collections import Counter
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from spillway.stores.base import OWN_PREFIX, ObjectStore, read_all
from spillway.sync.manifest import load_record, verified_copies
from spillway.testing.dying_sync import CALLS, DATASET, PREFIX, killed_sync, open_end, sync
from spillway.testing.s3_server import S3Server

End = Mapping[str, Any]
NewEnd = Callable[[], End]


@pytest.fixture(params=["folders", "s3"])
def new_end(request: pytest.FixtureRequest, tmp_path: Path) -> NewEnd:
    """Makes empty stores that another process can open."""
    numbers = iter(range(10_000))
    if request.param == "folders":

        def folder() -> End:
            made = tmp_path / f"store-{next(numbers)}"
            made.mkdir()
            return {"folder": str(made)}

        return folder
    servers: Mapping[str, S3Server] = request.getfixturevalue("s3_sites")
    server = servers["cloud"]

    def bucket() -> End:
        who = server.admin
        keys = {"access_key": who.access_key, "secret_key": who.secret_key}
        where = {"endpoint_url": server.endpoint_url, "region": server.region}
        return {"name": "killed", "bucket": server.new_bucket(), **where, **keys}

    return bucket


def fill(store: ObjectStore, contents: Mapping[str, bytes]) -> None:
    for key, content in contents.items():
        store.put(f"{PREFIX}{key}", content, size_bytes=len(content))


class Trial:
    """A destination that was whole before much of the source changed, and what a sync to it has sent so far."""

    def __init__(self, source: End, destination: End, log: Path) -> None:
        self.ends = {"source": source, "destination": destination}
        self.store = open_end(**destination)
        self.log = log

    def sync(self) -> None:
        sync(self.ends, self.log)

    def killed(self, at: int) -> bool:
        return killed_sync(self.ends, self.log, kill_at=at)

    @property
    def lines(self) -> list[str]:
        return self.log.read_text().splitlines()

    @property
    def sent(self) -> Counter[str]:
        return Counter(line for line in self.lines if not line.startswith(CALLS))

    def state(self) -> tuple[object, ...]:
        record = load_record(self.store, DATASET).record
        assert record is not None
        facts = (record.objects, record.size_bytes, record.versions, record.whole)
        data = {e.key: read_all(self.store, e.key) for e in self.store.list() if not e.key.startswith(OWN_PREFIX)}
        return data, facts, read_all(self.store, record.entries), verified_copies(self.store)


def old(source: ObjectStore) -> None:
    fill(source, {f"{n:02}": b"old %d" % n for n in range(24)})


def new(source: ObjectStore) -> None:
    fill(source, {f"{n:02}": b"new %d" % n for n in range(0, 24, 2)} | {f"new-{n}": b"%d" % n for n in range(6)})
    source.delete([f"{PREFIX}{n:02}" for n in (1, 3, 5)])


def kill_again_and_again(new_end: NewEnd, folder: Path, kills: int) -> None:
    """Each destination is synced by a process that is killed, then by another, until ``kills`` have died."""
    seed = int(os.environ.get("SPILLWAY_KILL_SEED", random.randrange(10**6)))
    print(f"SPILLWAY_KILL_SEED={seed}")
    chance, source = random.Random(seed), new_end()
    died = 0
    undisturbed = Trial(source, new_end(), folder / "undisturbed")
    trials = [Trial(source, new_end(), folder / f"log-{n}") for n in range(max(1, kills // 2))]
    old(open_end(**source))
    for trial in (undisturbed, *trials):
        trial.sync()
        trial.log.write_text("")
    new(open_end(**source))
    undisturbed.sync()
    expected, calls = undisturbed.state(), int(undisturbed.lines[-1].removeprefix(CALLS))
    for trial in trials:
        for kill_at in (chance.randint(1, calls), chance.randint(1, calls // 2)):
            died += trial.killed(at=kill_at)
        trial.sync()
        assert trial.state() == expected, f"SPILLWAY_KILL_SEED={seed}"
        assert not [key for key, times in trial.sent.items() if times > 1], f"SPILLWAY_KILL_SEED={seed}"
    assert died


def test_a_few_kills_at_random_points_leave_no_trace(new_end: NewEnd, tmp_path: Path) -> None:
    kill_again_and_again(new_end, tmp_path, kills=4)


@pytest.mark.chaos
@pytest.mark.timeout(1800)
def test_fifty_kills_at_random_points_leave_no_trace(new_end: NewEnd, tmp_path: Path) -> None:
    kill_again_and_again(new_end, tmp_path, kills=50)
