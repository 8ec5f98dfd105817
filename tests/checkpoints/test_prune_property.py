"""A prune and a commit whose requests come in any order: the step that was committed has all its parts."""

from __future__ import annotations

import itertools
import tempfile
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from spillway.checkpoints import claims, parts
from spillway.checkpoints.layout import part_key, sha256_of
from spillway.checkpoints.prune import prune
from spillway.checkpoints.replicate import replicate
from spillway.checkpoints.store import CheckpointStore
from spillway.model import ObjectInfo, Retention
from spillway.stores.local import LocalStore
from spillway.testing.checkpoints import WatchedStore, commit_step

RUN = "llm-7b"
LAST = Retention(last=1, best=0, minimum_age=timedelta(0))
BODIES = [b"only of step 10", b"of both steps", b"only of step 20", b"of nobody", b"new"]
EARLIER = {10: (b"only of step 10", b"of both steps"), 20: (b"of both steps", b"only of step 20")}
WHO = ("writer", "pruner")


class Turns:
    """Lets two threads make one request after the other, in a given order; whoever has ended is passed over."""

    def __init__(self) -> None:
        self._turn = threading.Condition()
        self.wanted: dict[str, str] = {}
        """What each thread does next, such as ``put HEAD``."""
        self._ended: set[str] = set()
        self._next: str | None = None

    def take(self, who: str, request: str) -> None:
        with self._turn:
            self.wanted[who] = request
            self._turn.notify_all()
            self._turn.wait_for(lambda: self._next == who)
            self._next = None
            del self.wanted[who]

    def end(self, who: str) -> None:
        with self._turn:
            self._ended.add(who)
            self._turn.notify_all()

    def give(self, who: str) -> str | None:
        """Let ``who`` make one request, once it wants to; gives the one that comes next, None after the last."""
        with self._turn:
            self._turn.wait_for(lambda: who in self.wanted or who in self._ended)
            if who not in self._ended:
                self._next = who
                self._turn.notify_all()
                self._turn.wait_for(lambda: who in self._ended or (self._next is None and who in self.wanted))
            return self.wanted.get(who)

    @property
    def over(self) -> bool:
        return len(self._ended) == 2


class TurnStore(WatchedStore):
    """A store each of whose requests waits for its turn."""

    def __init__(self, inner: LocalStore, turns: Turns, who: str) -> None:
        super().__init__(inner)
        self._turns, self._who = turns, who

    def _take(self, verb: str, key: str) -> None:
        self._turns.take(self._who, f"{verb} {key.split('/')[1]}")

    def list(self, prefix: str = "") -> Iterator[ObjectInfo]:
        self._take("list", prefix)
        return iter(list(super().list(prefix)))

    def head(self, key: str) -> ObjectInfo | None:
        self._take("head", key)
        return super().head(key)

    def read(self, key: str, **wanted: Any) -> Iterator[bytes]:
        self._take("read", key)
        return iter(list(super().read(key, **wanted)))

    def put(self, key: str, body: bytes | Iterable[bytes], **fields: Any) -> ObjectInfo:
        whole = body if isinstance(body, bytes) else b"".join(body)
        self._take("put", key)
        return super().put(key, whole, **fields)

    def delete(self, keys: Iterable[str]) -> Mapping[str, str]:
        wanted = list(keys)
        self._take("delete", wanted[0])
        return super().delete(wanted)


@pytest.fixture(autouse=True)
def _one_request_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parts, "PARTS_AT_ONCE", 1)
    monkeypatch.setattr(claims, "_POLL_SECONDS", 0.0)


def a_run(folder: Path) -> LocalStore:
    folder.mkdir()
    store = LocalStore(folder)
    checkpoints = CheckpointStore(store, RUN)
    checkpoints.fence(1)
    for step, bodies in EARLIER.items():
        commit_step(checkpoints, step, parts={f"{number}": body for number, body in enumerate(bodies)})
    left_over = b"of nobody"
    store.put(part_key(RUN, sha256_of(left_over)), left_over, size_bytes=len(left_over))
    return store


class Race:
    """A writer that commits step 30 with the given parts, and a prune, both at their first request."""

    def __init__(self, folder: Path, kind: str, bodies: Iterable[bytes]) -> None:
        self.store, self.turns = a_run(folder / "site"), Turns()
        self.raised: list[BaseException] = []
        new = {f"part {number}": body for number, body in enumerate(bodies)}
        writer, pruner = (CheckpointStore(TurnStore(self.store, self.turns, who), RUN) for who in WHO)
        later = datetime.now(UTC) + timedelta(minutes=1)
        works: dict[str, Callable[[], object]] = {
            "writer": lambda: commit_step(writer, 30, parts=new),
            "pruner": lambda: prune(pruner, LAST, now=later, grace=timedelta(0)),
        }
        if kind == "copy":
            other = CheckpointStore(a_run(folder / "other"), RUN)
            commit_step(other, 30, parts=new)
            works["writer"] = lambda: replicate(other, writer)
        self._threads = [threading.Thread(target=self._run, args=work, daemon=True) for work in works.items()]
        for thread in self._threads:
            thread.start()

    def _run(self, who: str, work: Callable[[], object]) -> None:
        try:
            work()
        except BaseException as problem:
            self.raised.append(problem)
        finally:
            self.turns.end(who)

    def finish(self, first: str = "pruner") -> None:
        """Let ``first`` make a hundred requests, both go on in turns to their end, and check what is left."""
        for who in itertools.chain([first] * 100, itertools.cycle(WHO)):
            self.turns.give(who)
            if self.turns.over:
                break
        for thread in self._threads:
            thread.join()
        assert self.raised == []
        survivor = CheckpointStore(self.store, RUN)
        point, head = survivor.resume_point(), survivor.head()
        assert (point.step, point.rejected) == (30, ())
        assert head is not None
        for entry in head.committed:
            assert CheckpointStore(self.store, RUN).parts.problems(survivor.manifest(entry).parts) == []


@pytest.mark.parametrize("kind", ["commit", "copy"])
@pytest.mark.parametrize(
    ("request_of_the_pruner", "time"),
    [("list parts", 1), ("put SWEEP", 1), ("list claims", 4), ("delete parts", 1)],
    ids=["before it looks", "before it announces", "before it looks again", "before it deletes"],
)
def test_a_prune_that_is_overtaken_by_a_commit_takes_none_of_its_parts(
    tmp_path: Path, kind: str, request_of_the_pruner: str, time: int
) -> None:
    """The prune stops before one of its requests, the commit makes some of its own, then the prune goes on."""
    for requests in range(1, 12):
        (tmp_path / str(requests)).mkdir()
        race = Race(tmp_path / str(requests), kind, [b"of nobody", b"new"])
        for _ in range(time):
            while race.turns.give("pruner") != request_of_the_pruner:
                assert not race.turns.over
        for _ in range(requests):
            race.turns.give("writer")
        race.finish()


orders = st.lists(st.tuples(st.sampled_from(WHO), st.integers(1, 12)), max_size=8).map(
    lambda stretches: [who for who, requests in stretches for _ in range(requests)]
)


@given(
    order=orders,
    bodies=st.lists(st.sampled_from(BODIES), min_size=1, max_size=3, unique=True),
    kind=st.sampled_from(["commit", "copy"]),
)
@settings(max_examples=30)
def test_whatever_the_order_of_their_requests_a_commit_loses_no_part_to_a_prune(
    order: list[str], bodies: list[bytes], kind: str
) -> None:
    with tempfile.TemporaryDirectory() as folder:
        race = Race(Path(folder), kind, bodies)
        for who in order:
            race.turns.give(who)
        race.finish()
