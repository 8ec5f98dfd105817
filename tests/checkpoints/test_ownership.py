"""Attempts that no longer own their run, and attempts that go back to an earlier step."""

import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from spillway.checkpoints.layout import manifest_key
from spillway.checkpoints.store import CheckpointStore
from spillway.errors import Fenced
from spillway.stores.base import ObjectStore
from spillway.stores.local import LocalStore
from spillway.testing.checkpoints import WatchedStore, commit_step, committed, contents

RUN = "llm-7b"


def test_a_zombie_that_wakes_late_commits_nothing(any_store: ObjectStore) -> None:
    checkpoints, zombie = CheckpointStore(any_store, RUN), CheckpointStore(any_store, RUN)
    checkpoints.fence(1)
    first = commit_step(zombie, 10)
    checkpoints.fence(2)
    second = commit_step(checkpoints, 20, attempt=2)
    before = contents(any_store)
    with pytest.raises(Fenced) as caught:
        commit_step(zombie, 30, parts={"weights.npy": b"other bytes"})
    assert (caught.value.attempt, caught.value.owner) == (1, 2)
    assert contents(any_store) == before
    assert checkpoints.manifests() == (first, second)


def test_a_zombie_that_is_fenced_between_its_last_two_writes_commits_nothing(
    watched: WatchedStore, store: LocalStore
) -> None:
    owner, zombie = CheckpointStore(store, RUN), CheckpointStore(watched, RUN)
    owner.fence(1)
    first = commit_step(zombie, 10)

    def fence_first(key: str) -> None:
        if key == "llm-7b/HEAD":
            owner.fence(2)

    watched.before = fence_first
    with pytest.raises(Fenced):
        commit_step(zombie, 20)
    assert owner.manifests() == (first,)
    assert owner.resume_point().manifest == first
    assert owner.head() is not None and committed(owner) == [(10, 1)]


def test_a_roll_back_computes_a_step_again_with_other_bytes(store: LocalStore) -> None:
    checkpoints = CheckpointStore(store, RUN)
    checkpoints.fence(1)
    first, old = commit_step(checkpoints, 20), commit_step(checkpoints, 30)
    checkpoints.fence(2)
    new = commit_step(checkpoints, 30, attempt=2, parts={"weights.npy": b"computed again"})
    assert checkpoints.manifests() == (first, old, new)
    assert checkpoints.resume_point().manifest == new


def test_a_later_attempts_lower_step_is_the_newest(store: LocalStore) -> None:
    checkpoints = CheckpointStore(store, RUN)
    checkpoints.fence(1)
    commit_step(checkpoints, 40)
    checkpoints.fence(2)
    rolled_back = commit_step(checkpoints, 30, attempt=2)
    head = checkpoints.head()
    assert head is not None
    assert (head.attempt, head.step, head.manifest) == (2, 30, manifest_key(RUN, 30, 2))
    assert checkpoints.resume_point().manifest == rolled_back


def test_attempts_that_race_commit_only_while_they_own_the_run(any_store: ObjectStore) -> None:
    CheckpointStore(any_store, RUN).fence(1)
    start = threading.Barrier(3)

    def work(attempt: int) -> None:
        own = CheckpointStore(any_store, RUN)
        start.wait()
        if attempt > 1:
            own.fence(attempt)
        for step in range(1, 4):
            commit_step(own, step, attempt=attempt)

    with ThreadPoolExecutor(3) as pool:
        outcomes = [pool.submit(work, attempt) for attempt in (1, 2, 3)]
    lost = [outcome.exception() for outcome in outcomes]
    assert lost[2] is None
    assert all(problem is None or isinstance(problem, Fenced) for problem in lost)
    seen = committed(CheckpointStore(any_store, RUN))
    assert [attempt for _, attempt in seen] == sorted(attempt for _, attempt in seen)
    assert seen[-3:] == [(1, 3), (2, 3), (3, 3)]
