import os
from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from spillway.checkpoints.history import pruned_manifests
from spillway.checkpoints.layout import CommittedStep, Head, head_key, manifest_key, part_key, pruned_key, sha256_of
from spillway.checkpoints.prune import PruneReport, prune
from spillway.checkpoints.replicate import replicate
from spillway.checkpoints.store import CheckpointStore
from spillway.checkpoints.sweep import SweepReport
from spillway.errors import CorruptCheckpoint, NoValidCheckpoint, SpillwayError, Unreachable
from spillway.model import ObjectInfo, Retention
from spillway.stores.base import ObjectStore
from spillway.stores.local import LocalStore
from spillway.testing.checkpoints import WatchedStore, commit_step

RUN = "llm-7b"
LAST = Retention(last=1, best=0, minimum_age=timedelta(0))


def shrink(checkpoints: CheckpointStore, retention: Retention = LAST, **options: Any) -> PruneReport:
    """Prune without any grace, later than everything was written."""
    later = datetime.now(UTC) + timedelta(minutes=1)
    return prune(checkpoints, retention, **{"now": later, "grace": timedelta(0), **options})


def steps(entries: Iterable[CommittedStep]) -> list[int]:
    return [entry.step for entry in entries]


def committed(checkpoints: CheckpointStore) -> list[int]:
    head = checkpoints.head()
    return steps(head.committed) if head else []


def keys(store: ObjectStore, folder: str) -> set[str]:
    return {info.key for info in store.list(f"{RUN}/{folder}/")}


def run_of(store: ObjectStore, *numbers: int) -> CheckpointStore:
    """A run with these steps; ``frozen`` is the same in each."""
    checkpoints = CheckpointStore(store, RUN)
    checkpoints.fence(1)
    for step in numbers:
        commit_step(checkpoints, step, parts={"frozen": b"the same", "adapter": f"adapter {step}".encode()})
    return checkpoints


def test_a_pruned_step_leaves_nothing_but_what_it_had_measured(any_store: ObjectStore) -> None:
    checkpoints = run_of(any_store, 10, 20, 30)
    before = checkpoints.manifests()
    report = shrink(checkpoints)
    assert (steps(report.pruned), steps(report.kept)) == ([10, 20], [30])
    assert report.swept == SweepReport(parts=2, size_bytes=20, others=0)
    assert checkpoints.manifests() == before[2:]
    assert keys(any_store, "manifests") == {manifest_key(RUN, 30, 1)}
    assert keys(any_store, "parts") == {part_key(RUN, sha256_of(body)) for body in (b"the same", b"adapter 30")}
    assert CheckpointStore(any_store, RUN).resume_point().manifest == before[2]
    assert pruned_manifests(checkpoints)[0] == before[:2]


def test_pruning_again_changes_nothing(store: LocalStore) -> None:
    checkpoints = run_of(store, 10, 20, 30)
    shrink(checkpoints)
    before = {info.key: info.etag for info in store.list()}
    assert shrink(checkpoints) == PruneReport(kept=checkpoints.head().committed)  # type: ignore[union-attr]
    assert {info.key: info.etag for info in store.list()} == before


def test_a_dry_run_says_the_same_and_changes_nothing(any_store: ObjectStore) -> None:
    checkpoints = run_of(any_store, 10, 20, 30)
    before = {info.key: info.etag for info in any_store.list()}
    planned = shrink(checkpoints, dry_run=True)
    assert {info.key: info.etag for info in any_store.list()} == before
    assert shrink(checkpoints) == planned


def test_a_run_that_nobody_fenced_is_left_alone(store: LocalStore) -> None:
    store.put(part_key(RUN, sha256_of(b"x")), b"x", size_bytes=1)
    assert shrink(CheckpointStore(store, RUN)) == PruneReport()
    assert len(list(store.list())) == 1


def test_the_order_is_head_then_manifests_then_parts(store: LocalStore) -> None:
    run_of(store, 10, 20)
    watched = WatchedStore(store)
    shrink(CheckpointStore(watched, RUN))
    changes = [change for change in watched.changes if "SWEEP" not in change]
    old = part_key(RUN, sha256_of(b"adapter 10"))
    assert changes == [
        f"put {pruned_key(RUN, 10, 1)}",
        f"put {head_key(RUN)}",
        f"delete {manifest_key(RUN, 10, 1)}",
        f"delete {old}",
    ]


@pytest.mark.parametrize("number", range(6))
def test_a_prune_that_dies_at_any_change_leaves_whole_steps_and_is_completed_later(
    store: LocalStore, number: int
) -> None:
    run_of(store, 10, 20, 30)
    watched = WatchedStore(store)

    def die(key: str) -> None:
        if len(watched.changes) >= number:
            raise Unreachable(watched.name, "the process died")

    watched.before = die
    with pytest.raises(Unreachable):
        shrink(CheckpointStore(watched, RUN))
    survivor = CheckpointStore(store, RUN)
    assert survivor.resume_point().rejected == ()
    assert survivor.resume_point().step == 30
    shrink(survivor, now=datetime.now(UTC) + timedelta(hours=1))
    assert committed(survivor) == [30]
    assert len(keys(store, "parts")) == 2
    assert [manifest.step for manifest in pruned_manifests(survivor)[0]] == [10, 20]


# -- what stays whatever retention says -------------------------------------------------------------------------------


def test_the_newest_valid_step_stays_while_newer_ones_are_broken(any_store: ObjectStore) -> None:
    checkpoints = run_of(any_store, 10, 20, 30)
    any_store.delete([part_key(RUN, sha256_of(b"adapter 30"))])
    report = shrink(checkpoints)
    assert steps(report.kept) == [20, 30]
    assert CheckpointStore(any_store, RUN).resume_point().step == 20


class RottenStore(WatchedStore):
    """A store that goes on telling the sha256 that it once recorded, whatever has become of the bytes."""

    def head(self, key: str) -> ObjectInfo | None:
        info = super().head(key)
        return info and info._replace(sha256=key.rpartition("/")[2] if "/parts/" in key else info.sha256)


def test_the_only_step_that_would_stay_is_read_back_before_the_others_go(store: LocalStore) -> None:
    run_of(store, 10, 20, 30)
    store.put(part_key(RUN, sha256_of(b"adapter 30")), b"damaged 30", size_bytes=10)
    rotten = CheckpointStore(RottenStore(store), RUN)
    assert steps(shrink(rotten).kept) == [20, 30]
    assert CheckpointStore(store, RUN).resume_point().step == 20


def test_nothing_is_deleted_where_no_step_is_valid(store: LocalStore) -> None:
    checkpoints = run_of(store, 10, 20)
    store.delete([part_key(RUN, sha256_of(b"the same"))])
    before = {info.key for info in store.list()}
    with pytest.raises(NoValidCheckpoint):
        shrink(checkpoints)
    assert {info.key for info in store.list()} == before


@pytest.mark.parametrize("body", [None, b"{", b"{}"], ids=["missing", "torn", "empty"])
def test_nothing_is_deleted_where_a_manifest_cannot_be_read(store: LocalStore, body: bytes | None) -> None:
    checkpoints = run_of(store, 10, 20, 30)
    if body is None:
        store.delete([manifest_key(RUN, 10, 1)])
    else:
        store.put(manifest_key(RUN, 10, 1), body, size_bytes=len(body))
    before = {info.key for info in store.list()}
    with pytest.raises(CorruptCheckpoint, match="step 10"):
        shrink(checkpoints)
    assert {info.key for info in store.list()} == before


def test_a_step_that_an_attempt_resumes_from_stays(store: LocalStore) -> None:
    checkpoints = run_of(store, 10, 20, 30)

    def resumed(head: Head) -> list[CommittedStep]:
        return [entry for entry in head.committed if entry.step == 10]

    assert steps(shrink(checkpoints, pins=resumed).kept) == [10, 30]


def test_after_a_roll_back_the_fresh_step_stays_and_the_given_up_branch_goes(store: LocalStore) -> None:
    checkpoints = run_of(store, 10, 20, 30, 40)
    checkpoints.fence(2)
    fresh = commit_step(checkpoints, 25, attempt=2)
    assert steps(shrink(checkpoints, Retention(last=2, best=0, minimum_age=timedelta(0))).kept) == [20, 25]
    assert checkpoints.resume_point().manifest == fresh


def test_the_best_step_stays_by_the_metric_of_the_rules_and_that_of_a_given_up_branch_does_not(
    any_store: ObjectStore,
) -> None:
    checkpoints = CheckpointStore(any_store, RUN)
    for step, attempt, accuracy in ((10, 1, 0.7), (20, 1, 0.5), (30, 1, 0.9), (25, 2, 0.6), (27, 2, 0.4)):
        checkpoints.fence(attempt)
        commit_step(checkpoints, step, attempt=attempt, metrics={"accuracy": accuracy, "loss": [[step, accuracy]]})
    highest = Retention(last=1, best=1, metric="accuracy", highest_is_best=True, minimum_age=timedelta(0))
    assert steps(shrink(checkpoints, highest, dry_run=True).kept) == [10, 27]
    assert steps(shrink(checkpoints, Retention(last=0, best=2, minimum_age=timedelta(0))).kept) == [20, 27]


def test_a_step_that_is_committed_meanwhile_stays(store: LocalStore) -> None:
    writer = run_of(store, 10, 20)
    watched = WatchedStore(store)

    def commit_first(key: str) -> None:
        watched.before = lambda key: None
        commit_step(writer, 30)

    watched.before = commit_first
    assert steps(shrink(CheckpointStore(watched, RUN)).pruned) == [10]
    assert committed(writer) == [20, 30]


def test_pruning_changes_neither_the_owner_nor_who_may_commit(store: LocalStore) -> None:
    checkpoints = run_of(store, 10, 20)
    checkpoints.fence(2)
    shrink(checkpoints)
    head = checkpoints.head()
    assert head is not None and head.attempt == 2
    with pytest.raises(SpillwayError, match="attempt 2 owns the run"):
        commit_step(checkpoints, 30)


# -- two sites --------------------------------------------------------------------------------------------------------


def test_a_pruned_copy_does_not_get_its_steps_back(store: LocalStore, other_store: LocalStore) -> None:
    source, destination = run_of(store, 10, 20, 30), CheckpointStore(other_store, RUN)
    replicate(source, destination)
    shrink(destination)
    assert replicate(source, destination).steps_copied == 0
    assert committed(destination) == [30]


# -- left-overs -------------------------------------------------------------------------------------------------------


def test_what_a_dead_attempt_left_goes_when_its_step_was_passed(watched: WatchedStore, store: LocalStore) -> None:
    checkpoints = run_of(watched, 10)

    def die_before_head(key: str) -> None:
        if key == head_key(RUN):
            raise Unreachable(watched.name, "the process died")

    watched.before = die_before_head
    with pytest.raises(Unreachable):
        commit_step(checkpoints, 20, parts={"weights": b"torn"})
    assert shrink(CheckpointStore(store, RUN)).swept == SweepReport()
    owner = CheckpointStore(store, RUN)
    owner.fence(2)
    commit_step(owner, 20, attempt=2)
    swept = shrink(owner).swept
    assert keys(store, "manifests") == {manifest_key(RUN, 20, 2)}
    assert keys(store, "claims") == set()
    assert part_key(RUN, sha256_of(b"torn")) not in keys(store, "parts")
    assert swept.others == 2


def test_a_young_part_that_nobody_claims_is_left_to_its_writer(store: LocalStore) -> None:
    checkpoints = run_of(store, 10)
    young = part_key(RUN, sha256_of(b"of an older release"))
    store.put(young, b"of an older release", size_bytes=19)
    now = datetime.now(UTC) + timedelta(minutes=1)
    assert prune(checkpoints, LAST, now=now).swept == SweepReport()
    file = Path(store.name.removeprefix("file://")) / young
    os.utime(file, (file.stat().st_mtime - 3600,) * 2)
    assert prune(checkpoints, LAST, now=now).swept == SweepReport(parts=1, size_bytes=19)
    assert young not in keys(store, "parts")


def test_a_claim_that_cannot_be_read_stops_the_sweep(store: LocalStore) -> None:
    checkpoints = run_of(store, 10, 20)
    store.put(f"{RUN}/claims/000000000030-000001.json", b"{", size_bytes=1)
    with pytest.raises(CorruptCheckpoint, match="cannot be read"):
        shrink(checkpoints)
    assert part_key(RUN, sha256_of(b"adapter 10")) in keys(store, "parts")


def test_two_sweeps_at_once_are_one(store: LocalStore) -> None:
    checkpoints = run_of(store, 10, 20)
    watched = WatchedStore(store)
    busy = []

    def second(key: str) -> None:
        if key == part_key(RUN, sha256_of(b"adapter 10")):
            busy.append(shrink(checkpoints).swept.busy)

    watched.before = second
    assert shrink(CheckpointStore(watched, RUN)).swept.parts == 1
    assert busy == [True]
    assert shrink(checkpoints).swept == SweepReport()
