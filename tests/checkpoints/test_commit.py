import hashlib
import json
from collections.abc import Iterator
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from threading import Barrier

import pytest

from spillway.checkpoints.layout import Head, claim_key, manifest_key, part_key
from spillway.checkpoints.parts import PARTS_AT_ONCE
from spillway.checkpoints.store import CheckpointStore
from spillway.errors import CheckpointConflict, CorruptCheckpoint, Fenced, Missing, Unreachable
from spillway.model import CheckpointManifest, CheckpointPart
from spillway.stores.base import ObjectStore, read_all
from spillway.stores.local import LocalStore
from spillway.testing.builders import NOW
from spillway.testing.checkpoints import WatchedStore, commit_step, committed, contents

RUN = "llm-7b"


def test_a_run_that_nobody_fenced_has_no_head_and_takes_no_commit(any_store: ObjectStore) -> None:
    checkpoints = CheckpointStore(any_store, RUN)
    assert checkpoints.head() is None
    with pytest.raises(Missing, match="written before an attempt is launched"):
        commit_step(checkpoints, 10)
    assert contents(any_store) == {}


def test_a_fence_makes_an_attempt_the_owner_and_keeps_what_is_committed(any_store: ObjectStore) -> None:
    checkpoints = CheckpointStore(any_store, RUN)
    assert checkpoints.fence(1) == Head(run=RUN, attempt=1)
    commit_step(checkpoints, 10)
    before = checkpoints.head()
    assert before is not None
    assert checkpoints.fence(3) == replace(before, attempt=3)
    assert checkpoints.head() == replace(before, attempt=3)


def test_the_same_fence_again_writes_nothing(watched: WatchedStore) -> None:
    checkpoints = CheckpointStore(watched, RUN)
    checkpoints.fence(2)
    checkpoints.fence(2)
    assert watched.writes == ["llm-7b/HEAD"]


def test_an_older_attempt_cannot_take_the_run_back(any_store: ObjectStore) -> None:
    checkpoints = CheckpointStore(any_store, RUN)
    checkpoints.fence(2)
    with pytest.raises(Fenced) as caught:
        checkpoints.fence(1)
    assert (caught.value.attempt, caught.value.owner) == (1, 2)
    assert checkpoints.head() == Head(run=RUN, attempt=2)


def test_of_two_first_fences_at_once_the_newer_attempt_owns_the_run(watched: WatchedStore, store: LocalStore) -> None:
    def overtake(key: str) -> None:
        watched.before = lambda key: None
        CheckpointStore(store, RUN).fence(2)

    watched.before = overtake
    with pytest.raises(Fenced):
        CheckpointStore(watched, RUN).fence(1)
    assert CheckpointStore(store, RUN).head() == Head(run=RUN, attempt=2)


def test_a_commit_gives_the_manifest_that_readers_find(any_store: ObjectStore, tmp_path: Path) -> None:
    file = tmp_path / "optimizer.bin"
    file.write_bytes(b"from a file")
    checkpoints = CheckpointStore(any_store, RUN)
    checkpoints.fence(1)
    manifest = checkpoints.commit(
        step=10,
        attempt=1,
        world_size=4,
        parts={"weights.npy": b"from memory", "optimizer.bin": file},
        data_cursor={"epoch": 1},
        metrics={"loss": [[10, 0.25]]},
        now=NOW,
    )
    sums = [hashlib.sha256(body).hexdigest() for body in (b"from memory", b"from a file")]
    assert manifest == CheckpointManifest(
        run=RUN,
        step=10,
        attempt=1,
        world_size=4,
        parts=(
            CheckpointPart(name="weights.npy", size_bytes=11, sha256=sums[0]),
            CheckpointPart(name="optimizer.bin", size_bytes=11, sha256=sums[1]),
        ),
        data_cursor={"epoch": 1},
        metrics={"loss": [[10, 0.25]]},
        created_at=NOW,
    )
    assert CheckpointStore(any_store, RUN).manifests() == (manifest,)
    assert read_all(any_store, part_key(RUN, sums[1])) == b"from a file"


def test_head_records_the_digest_of_the_manifest(store: LocalStore) -> None:
    checkpoints = CheckpointStore(store, RUN)
    checkpoints.fence(1)
    commit_step(checkpoints, 10)
    head = json.loads(read_all(store, "llm-7b/HEAD"))
    body = read_all(store, manifest_key(RUN, 10, 1))
    assert head == {
        "format": 1,
        "attempt": 1,
        "step": 10,
        "manifest": "llm-7b/manifests/000000000010-000001.json",
        "committed": [{"step": 10, "attempt": 1, "sha256": hashlib.sha256(body).hexdigest()}],
    }


def test_parts_are_sent_several_at_once(watched: WatchedStore) -> None:
    together = Barrier(PARTS_AT_ONCE, timeout=60)
    checkpoints = CheckpointStore(watched, RUN)
    checkpoints.fence(1)
    watched.before = lambda key: together.wait() if "/parts/" in key else None
    manifest = commit_step(checkpoints, 10, parts={f"shard-{n}": b"%d" % n for n in range(PARTS_AT_ONCE)})
    assert checkpoints.parts.problems(manifest.parts) == []


def test_committing_the_same_again_changes_nothing(any_store: ObjectStore) -> None:
    checkpoints = CheckpointStore(any_store, RUN)
    checkpoints.fence(1)
    first = commit_step(checkpoints, 10)
    before = contents(any_store)
    assert commit_step(CheckpointStore(any_store, RUN), 10, now=NOW + timedelta(hours=1)) == first
    assert contents(any_store) == before


def test_another_content_for_a_committed_step_is_refused(any_store: ObjectStore) -> None:
    checkpoints = CheckpointStore(any_store, RUN)
    checkpoints.fence(1)
    first = commit_step(checkpoints, 10)
    with pytest.raises(CheckpointConflict, match="holds another content of that step"):
        commit_step(checkpoints, 10, parts={"weights.npy": b"other"})
    assert checkpoints.manifests() == (first,)


def test_an_attempt_does_not_go_back(store: LocalStore) -> None:
    checkpoints = CheckpointStore(store, RUN)
    checkpoints.fence(1)
    commit_step(checkpoints, 20)
    with pytest.raises(CheckpointConflict, match="step 20 of attempt 1 is committed already"):
        commit_step(checkpoints, 10)
    assert committed(checkpoints) == [(20, 1)]


def test_parts_that_did_not_change_are_not_sent_again(watched: WatchedStore) -> None:
    checkpoints = CheckpointStore(watched, RUN)
    checkpoints.fence(1)
    commit_step(checkpoints, 10, parts={"frozen": b"the same", "adapter": b"10"})
    watched.writes.clear()
    commit_step(checkpoints, 20, parts={"frozen": b"the same", "adapter": b"20"})
    adapter = part_key(RUN, hashlib.sha256(b"20").hexdigest())
    assert watched.writes == [claim_key(RUN, 20, 1), adapter, manifest_key(RUN, 20, 1), "llm-7b/HEAD"]


def test_a_damaged_part_is_replaced_when_its_bytes_are_committed_again(store: LocalStore) -> None:
    checkpoints = CheckpointStore(store, RUN)
    checkpoints.fence(1)
    commit_step(checkpoints, 10, parts={"weights.npy": b"good"})
    store.put(part_key(RUN, hashlib.sha256(b"good").hexdigest()), b"evil", size_bytes=4)
    later = CheckpointStore(store, RUN)
    later.fence(2)
    again = commit_step(later, 10, attempt=2, parts={"weights.npy": b"good"})
    assert CheckpointStore(store, RUN).resume_point().manifest == again


@pytest.mark.parametrize("body", [b"{", b'{"format":1}'], ids=["torn", "empty"])
def test_a_damaged_head_stops_everything_instead_of_starting_anew(store: LocalStore, body: bytes) -> None:
    store.put("llm-7b/HEAD", body, size_bytes=len(body))
    checkpoints = CheckpointStore(store, RUN)
    for action in (
        checkpoints.head,
        checkpoints.resume_point,
        lambda: checkpoints.fence(2),
        lambda: commit_step(checkpoints, 1),
    ):
        with pytest.raises(CorruptCheckpoint, match="HEAD is not valid"):
            action()
    assert contents(store) == {"llm-7b/HEAD": body}


WRITES_OF_A_COMMIT = 5


def _fail_at(watched: WatchedStore, number: int, *, applied: bool) -> None:
    """Let the given write (from 1) fail, before it is applied or after it."""
    left: Iterator[int] = iter(range(1, 100))

    def fail(key: str) -> None:
        if next(left) == number:
            raise Unreachable(watched.name, "the connection was reset")

    if applied:
        watched.after = fail
    else:
        watched.before = fail


@pytest.mark.parametrize("applied", [False, True], ids=["write lost", "answer lost"])
@pytest.mark.parametrize("number", range(1, WRITES_OF_A_COMMIT + 1))
def test_a_commit_that_dies_at_any_write_shows_nothing_and_is_completed_by_a_retry(
    watched: WatchedStore, store: LocalStore, number: int, applied: bool
) -> None:
    parts = {"weights.npy": b"weights", "optimizer.npy": b"optimizer"}
    checkpoints = CheckpointStore(watched, RUN)
    checkpoints.fence(1)
    first = commit_step(checkpoints, 10)
    _fail_at(watched, number, applied=applied)
    with pytest.raises(Unreachable):
        commit_step(checkpoints, 20, parts=parts)
    whole = applied and number == WRITES_OF_A_COMMIT
    assert committed(CheckpointStore(store, RUN)) == ([(10, 1), (20, 1)] if whole else [(10, 1)])
    assert CheckpointStore(store, RUN).resume_point().step == (20 if whole else 10)
    second = commit_step(CheckpointStore(store, RUN), 20, parts=parts, now=NOW + timedelta(minutes=1))
    assert CheckpointStore(store, RUN).manifests() == (first, second)
    assert CheckpointStore(store, RUN).resume_point().manifest == second


def test_a_step_whose_head_never_moved_stays_out_when_a_later_one_is_committed(
    watched: WatchedStore, store: LocalStore
) -> None:
    checkpoints = CheckpointStore(watched, RUN)
    checkpoints.fence(1)
    _fail_at(watched, 4, applied=False)
    with pytest.raises(Unreachable):
        commit_step(checkpoints, 10)
    commit_step(checkpoints, 20)
    assert committed(CheckpointStore(store, RUN)) == [(20, 1)]
    with pytest.raises(CorruptCheckpoint, match="is not committed"):
        checkpoints.committed_manifest(manifest_key(RUN, 10, 1))
