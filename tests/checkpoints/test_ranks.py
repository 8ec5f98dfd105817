"""One step from several ranks: each sends its own parts, rank 0 commits, and what was sent in vain joins nothing."""

from __future__ import annotations

import multiprocessing
import os
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta

import pytest

from spillway.checkpoints.claims import CLAIM_LIFE
from spillway.checkpoints.layout import claim_key, part_key, sha256_of
from spillway.checkpoints.store import CheckpointStore
from spillway.checkpoints.sweep import sweep
from spillway.errors import CheckpointConflict, Fenced, Missing
from spillway.model import CheckpointManifest, CheckpointPart
from spillway.stores.base import ObjectStore
from spillway.stores.local import LocalStore
from spillway.testing.checkpoints import WatchedStore, commit_step

RUN = "llm-7b"
RANKS = 3
DIED = 9
NOW = datetime(2026, 1, 5, 12, tzinfo=UTC)
AT_ONCE = timedelta(0)


def shards(rank: int, step: int) -> dict[str, bytes]:
    """What a rank has of a step: of two shards one changes with the step."""
    return {f"{rank}.trained": b"%d at %d" % (rank, step), f"{rank}.frozen": b"%d" % rank}


def sent_by(store: ObjectStore, rank: int, step: int, attempt: int = 1) -> tuple[CheckpointPart, ...]:
    """What a rank, with a client of its own, sends."""
    return CheckpointStore(store, RUN).send(step=step, attempt=attempt, rank=rank, parts=shards(rank, step))


def committed_by(store: ObjectStore, sent: Sequence[CheckpointPart], step: int, attempt: int = 1) -> CheckpointManifest:
    """The commit of rank 0, with what the others have told it."""
    return commit_step(
        CheckpointStore(store, RUN),
        step,
        attempt=attempt,
        world_size=RANKS,
        parts={**shards(0, step), **{part.name: part for part in sent}},
    )


def parts_of(store: ObjectStore) -> set[str]:
    return {info.key.rpartition("/")[2] for info in store.list(f"{RUN}/parts/")}


def claims_of(store: ObjectStore) -> list[str]:
    return sorted(info.key for info in store.list(f"{RUN}/claims/"))


def test_a_step_has_the_parts_of_all_ranks_and_only_new_ones_were_sent(any_store: ObjectStore) -> None:
    CheckpointStore(any_store, RUN).fence(1)
    for step in (10, 20):
        committed_by(any_store, [part for rank in (1, 2) for part in sent_by(any_store, rank, step)], step)
    reader = CheckpointStore(any_store, RUN)
    manifest = reader.resume_point().manifest
    assert manifest is not None
    bodies = {part.name: reader.load(manifest, part.name) for part in manifest.parts}
    assert bodies == {name: body for rank in range(RANKS) for name, body in shards(rank, 20).items()}
    assert len(parts_of(any_store)) == 3 * RANKS
    assert claims_of(any_store) == []


def test_a_rank_claims_its_parts_before_it_sends_them_and_no_sweep_takes_them_until_the_commit(
    store: LocalStore,
) -> None:
    checkpoints = CheckpointStore(store, RUN)
    checkpoints.fence(1)
    commit_step(checkpoints, 10)
    watched = WatchedStore(store)
    sent = sent_by(watched, 1, 20)
    assert watched.writes[0] == claim_key(RUN, 20, 1, rank=1)
    assert sweep(checkpoints, now=datetime.now(UTC), grace=AT_ONCE).parts == 0
    others = sent_by(store, 2, 20)
    manifest = committed_by(store, [*sent, *others], 20)
    assert checkpoints.resume_point().step == manifest.step == 20


def test_what_a_rank_sends_of_a_step_bit_by_bit_is_all_claimed(any_store: ObjectStore) -> None:
    checkpoints = CheckpointStore(any_store, RUN)
    checkpoints.fence(1)
    commit_step(checkpoints, 10)
    sender = CheckpointStore(any_store, RUN)
    sent = [
        part
        for name, body in shards(1, 20).items()
        for part in sender.send(step=20, attempt=1, rank=1, parts={name: body})
    ]
    assert sweep(checkpoints, now=datetime.now(UTC) + timedelta(minutes=1), grace=AT_ONCE).parts == 0
    others = sent_by(any_store, 2, 20)
    assert committed_by(any_store, [*sent, *others], 20).step == 20
    assert claims_of(any_store) == []


def test_a_step_is_not_committed_with_a_part_that_a_rank_has_told_of_and_that_is_not_there(
    any_store: ObjectStore,
) -> None:
    CheckpointStore(any_store, RUN).fence(1)
    one, two = sent_by(any_store, 1, 10), sent_by(any_store, 2, 10)
    any_store.delete([part_key(RUN, sha256_of(b"2 at 10"))])
    with pytest.raises(Missing, match=r"part '2.trained'"):
        committed_by(any_store, [*one, *two], 10)
    assert CheckpointStore(any_store, RUN).resume_point().manifest is None
    committed_by(any_store, [*one, *sent_by(any_store, 2, 10)], 10)


def test_other_shards_for_a_step_that_is_committed_are_a_conflict(store: LocalStore) -> None:
    CheckpointStore(store, RUN).fence(1)
    committed_by(store, [*sent_by(store, 1, 10), *sent_by(store, 2, 10)], 10)
    with pytest.raises(CheckpointConflict):
        committed_by(store, sent_by(store, 1, 10), 10)


def _send_and_die(folder: str) -> None:
    """A rank whose process is killed after the first of its two parts."""
    from pathlib import Path

    watched = WatchedStore(LocalStore(Path(folder)))
    watched.after = lambda key: os._exit(DIED) if "/parts/" in key else None
    sent_by(watched, 2, 20)


def test_a_rank_that_dies_leaves_parts_that_join_nothing_and_are_swept(store: LocalStore) -> None:
    checkpoints = CheckpointStore(store, RUN)
    checkpoints.fence(1)
    committed_by(store, [*sent_by(store, 1, 10), *sent_by(store, 2, 10)], 10)
    before = parts_of(store)
    sent_by(store, 1, 20)
    dying = multiprocessing.get_context("spawn").Process(target=_send_and_die, args=(store.name[len("file://") :],))
    dying.start()
    dying.join(60)
    assert dying.exitcode == DIED
    left = parts_of(store) - before
    assert left == {sha256_of(b"1 at 20"), sha256_of(b"2 at 20")} or left == {sha256_of(b"1 at 20")}
    assert checkpoints.resume_point().step == 10

    checkpoints.fence(2)
    committed_by(store, [*sent_by(store, 1, 30, 2), *sent_by(store, 2, 30, 2)], 30, attempt=2)
    sweep(checkpoints, now=datetime.now(UTC), grace=AT_ONCE)
    assert not left & parts_of(store)
    assert claims_of(store) == []
    assert checkpoints.parts.problems(checkpoints.manifests()[0].parts) == []


def test_a_rank_of_an_older_attempt_sends_nothing_once_it_is_fenced_and_what_it_sent_before_joins_nothing(
    any_store: ObjectStore,
) -> None:
    checkpoints = CheckpointStore(any_store, RUN)
    checkpoints.fence(1)
    sent = sent_by(any_store, 1, 10)
    checkpoints.fence(2)
    before = parts_of(any_store)
    with pytest.raises(Fenced):
        sent_by(any_store, 2, 10)
    with pytest.raises(Fenced):
        committed_by(any_store, sent, 10)
    assert parts_of(any_store) == before
    assert checkpoints.resume_point().manifest is None


def test_claims_of_ranks_whose_step_nobody_committed_end_with_their_life(store: LocalStore) -> None:
    checkpoints = CheckpointStore(store, RUN)
    checkpoints.fence(1)
    commit_step(checkpoints, 10)
    sent_by(store, 1, 20)
    later = datetime.now(UTC) + CLAIM_LIFE + timedelta(minutes=1)
    assert sweep(checkpoints, now=later, grace=AT_ONCE).others == 1
    assert claims_of(store) == []
