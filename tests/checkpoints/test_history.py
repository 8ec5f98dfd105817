"""What is left of pruned steps: the losses of a run, at every site."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from spillway.checkpoints.curve import loss_curve
from spillway.checkpoints.history import pruned_manifests
from spillway.checkpoints.prune import prune
from spillway.checkpoints.replicate import replicate
from spillway.checkpoints.store import CheckpointStore
from spillway.model import CheckpointManifest, Retention
from spillway.stores.base import ObjectStore
from spillway.stores.local import LocalStore
from spillway.testing.checkpoints import WatchedStore, commit_step
from spillway.testing.s3_server import S3Server

RUN = "llm-7b"
LAST = Retention(last=1, best=0, minimum_age=timedelta(0))


def losses(checkpoints: CheckpointStore) -> tuple[CheckpointManifest, ...]:
    """What is left of pruned steps, all of it readable."""
    found, problems = pruned_manifests(checkpoints)
    assert problems == ()
    return found


def run_of(store: ObjectStore, *numbers: int) -> CheckpointStore:
    checkpoints = CheckpointStore(store, RUN)
    checkpoints.fence(1)
    for step in numbers:
        commit_step(checkpoints, step)
    return checkpoints


def shrink(checkpoints: CheckpointStore) -> None:
    """Leave the newest step only."""
    prune(checkpoints, LAST, now=datetime.now(UTC))


def steps(checkpoints: CheckpointStore) -> list[int]:
    return [manifest.step for manifest in checkpoints.manifests()]


def test_the_loss_curve_stays_whole(store: LocalStore) -> None:
    checkpoints = run_of(store, 10, 20, 30)
    whole = loss_curve(checkpoints.manifests())
    shrink(checkpoints)
    assert loss_curve([*losses(checkpoints), *checkpoints.manifests()]) == whole


def test_a_pruned_source_still_replicates_and_the_copy_knows_every_loss(s3_sites: dict[str, S3Server]) -> None:
    source = run_of(s3_sites["onprem"].store(), 10, 20)
    destination = CheckpointStore(s3_sites["cloud"].store(), RUN)
    replicate(source, destination)
    commit_step(source, 30)
    commit_step(source, 40)
    whole = loss_curve(source.manifests())
    shrink(source)
    report = replicate(source, destination)
    assert (report.steps_copied, report.newest_step, report.rejected) == (1, 40, ())
    assert steps(destination) == [10, 20, 40]
    assert loss_curve([*losses(destination), *destination.manifests()]) == whole


def test_steps_are_copied_although_the_losses_of_pruned_ones_cannot_be_and_they_follow_later(
    store: LocalStore, other_store: LocalStore
) -> None:
    source, destination = WatchedStore(store), CheckpointStore(other_store, RUN)
    run_of(store, 10, 20, 30)
    shrink(CheckpointStore(store, RUN))
    source.unreadable = lambda key: "/pruned/" in key
    report = replicate(CheckpointStore(source, RUN), destination)
    assert (report.newest_step, [line.split(":")[0] for line in report.rejected]) == (30, ["losses of pruned steps"])
    assert replicate(CheckpointStore(store, RUN), destination).rejected == ()
    assert [manifest.step for manifest in losses(destination)] == [10, 20]
