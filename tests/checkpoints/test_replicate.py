from collections.abc import Iterator, Mapping
from typing import Any

import pytest

from spillway.checkpoints.layout import claim_key, manifest_key, part_key, sha256_of
from spillway.checkpoints.replicate import ReplicationReport, replicate
from spillway.checkpoints.store import CheckpointStore, ResumePoint
from spillway.errors import Fenced, Unreachable
from spillway.stores.base import read_all
from spillway.stores.local import LocalStore
from spillway.testing.checkpoints import WatchedStore, commit_step
from spillway.testing.s3_server import S3Server

RUN = "llm-7b"


@pytest.fixture
def source(store: LocalStore) -> CheckpointStore:
    checkpoints = CheckpointStore(store, RUN)
    checkpoints.fence(1)
    return checkpoints


@pytest.fixture
def destination(other_store: LocalStore) -> CheckpointStore:
    return CheckpointStore(other_store, RUN)


def size_of(step: int) -> int:
    return len(f"weights of step {step}")


def test_a_run_survives_the_loss_of_its_site_from_the_last_replicated_step(s3_sites: Mapping[str, S3Server]) -> None:
    source = CheckpointStore(s3_sites["onprem"].store(), RUN)
    source.fence(1)
    copied = [commit_step(source, step) for step in (10, 20)]
    destination = CheckpointStore(s3_sites["cloud"].store(), RUN)
    report = replicate(source, destination)
    assert report == ReplicationReport(steps_copied=2, bytes_copied=size_of(10) + size_of(20), newest_step=20)
    commit_step(source, 30)
    survivor = CheckpointStore(destination.store, RUN)
    assert survivor.resume_point() == ResumePoint(manifest=copied[1])
    assert survivor.load(copied[1], "weights.npy") == b"weights of step 20"
    survivor.fence(2)
    assert commit_step(survivor, 30, attempt=2).attempt == 2


def test_what_the_destination_has_is_not_sent_again(source: CheckpointStore, other_store: LocalStore) -> None:
    watched = WatchedStore(other_store)
    commit_step(source, 10, parts={"frozen": b"the same", "adapter": b"10"})
    replicate(source, CheckpointStore(watched, RUN))
    watched.writes.clear()
    assert replicate(source, CheckpointStore(watched, RUN)) == ReplicationReport(
        steps_copied=0, bytes_copied=0, newest_step=10
    )
    assert watched.writes == []
    commit_step(source, 20, parts={"frozen": b"the same", "adapter": b"20"})
    assert replicate(source, CheckpointStore(watched, RUN)) == ReplicationReport(
        steps_copied=1, bytes_copied=2, newest_step=20
    )
    assert watched.writes == [
        claim_key(RUN, 20, 1),
        part_key(RUN, sha256_of(b"20")),
        manifest_key(RUN, 20, 1),
        f"{RUN}/HEAD",
    ]


def test_the_copy_is_the_same_to_the_byte(source: CheckpointStore, destination: CheckpointStore) -> None:
    for step in (10, 20):
        commit_step(source, step)
    replicate(source, destination)
    keys = sorted(info.key for info in source.store.list())
    assert sorted(info.key for info in destination.store.list()) == keys
    for key in keys:
        assert read_all(destination.store, key) == read_all(source.store, key)


@pytest.mark.parametrize("number", range(8))
def test_a_copy_that_dies_at_any_write_shows_only_whole_steps_and_is_completed_later(
    source: CheckpointStore, other_store: LocalStore, number: int
) -> None:
    for step in (10, 20):
        commit_step(source, step)
    watched = WatchedStore(other_store)

    def die(key: str) -> None:
        if len(watched.writes) == number:
            raise Unreachable(watched.name, "the connection was reset")

    watched.before = die
    with pytest.raises(Unreachable):
        replicate(source, CheckpointStore(watched, RUN))
    survivor = CheckpointStore(other_store, RUN)
    assert survivor.manifests() == source.manifests()[: number // 4]
    replicate(source, survivor)
    assert survivor.manifests() == source.manifests()
    assert survivor.resume_point() == source.resume_point()


def test_a_newer_attempt_at_the_destination_is_left_alone(
    source: CheckpointStore, destination: CheckpointStore
) -> None:
    commit_step(source, 10)
    replicate(source, destination)
    destination.fence(2)
    newest = commit_step(destination, 20, attempt=2)
    commit_step(source, 30)
    before = destination.head()
    assert replicate(source, destination) == ReplicationReport(steps_copied=0, bytes_copied=0, newest_step=20, owner=2)
    assert destination.head() == before
    assert destination.resume_point().manifest == newest


def test_a_newer_attempt_that_takes_over_during_the_copy_stops_it(
    source: CheckpointStore, other_store: LocalStore
) -> None:
    for step in (10, 20):
        commit_step(source, step)
    watched, owner = WatchedStore(other_store), CheckpointStore(other_store, RUN)

    def take_over(key: str) -> None:
        if key == manifest_key(RUN, 20, 1):
            owner.fence(2)

    watched.before = take_over
    report = replicate(source, CheckpointStore(watched, RUN))
    assert (report.steps_copied, report.newest_step, report.owner) == (1, 10, 2)
    assert [manifest.step for manifest in owner.manifests()] == [10]


def test_the_fence_travels_with_the_steps(source: CheckpointStore, destination: CheckpointStore) -> None:
    commit_step(source, 10)
    replicate(source, destination)
    source.fence(2)
    assert replicate(source, destination) == ReplicationReport(steps_copied=0, bytes_copied=0, newest_step=10)
    with pytest.raises(Fenced):
        commit_step(destination, 20)


def test_steps_come_back_to_a_site_that_was_lost(source: CheckpointStore, destination: CheckpointStore) -> None:
    commit_step(source, 10)
    replicate(source, destination)
    commit_step(source, 20)
    destination.fence(2)
    resumed = commit_step(destination, 30, attempt=2)
    assert replicate(destination, source) == ReplicationReport(steps_copied=1, bytes_copied=size_of(30), newest_step=30)
    assert source.resume_point().manifest == resumed
    with pytest.raises(Fenced):
        commit_step(source, 40)


def test_a_damaged_step_is_left_out_with_its_reason_and_the_next_one_is_copied(
    source: CheckpointStore, destination: CheckpointStore
) -> None:
    for step in (10, 20, 30):
        commit_step(source, step)
    source.store.put(part_key(RUN, sha256_of(b"weights of step 20")), b"WEIGHTS of step 20", size_bytes=18)
    source.store.delete([manifest_key(RUN, 10, 1)])
    report = replicate(source, destination)
    assert (report.steps_copied, report.bytes_copied, report.newest_step) == (1, size_of(30), 30)
    assert len(report.rejected) == 2
    assert "checkpoint of step 10 is not valid: its manifest is missing" in report.rejected[0]
    assert "checkpoint of step 20 is not valid" in report.rejected[1]
    assert [manifest.step for manifest in destination.manifests()] == [30]


def test_a_manifest_that_arrives_damaged_is_not_committed_at_the_destination(
    source: CheckpointStore, destination: CheckpointStore
) -> None:
    class DamagedOnTheWay(WatchedStore):
        """The first read of a manifest gives other bytes of the same length, every later one the right ones."""

        damaged = False

        def read(self, key: str, **wanted: Any) -> Iterator[bytes]:
            body = b"".join(super().read(key, **wanted))
            if key == manifest_key(RUN, 10, 1) and not self.damaged:
                self.damaged, body = True, body.replace(b'"epoch":0', b'"epoch":9')
            yield body

    for step in (10, 20):
        commit_step(source, step)
    report = replicate(CheckpointStore(DamagedOnTheWay(source.store), RUN), destination)
    assert (report.steps_copied, len(report.rejected)) == (1, 1)
    assert [manifest.step for manifest in destination.manifests()] == [20]


def test_a_run_that_nobody_fenced_has_nothing_to_copy(store: LocalStore, destination: CheckpointStore) -> None:
    report = replicate(CheckpointStore(store, "run-2"), destination)
    assert report == ReplicationReport(steps_copied=0, bytes_copied=0, newest_step=None)
