"""Bring to the chosen site what an attempt needs there: its image, its data, its checkpoints.

Every step is idempotent and moves only what is missing; what was moved or refused is a line in the transfer log.
"""

from __future__ import annotations

import dataclasses

from spillway.checkpoints.replicate import ReplicationReport, replicate
from spillway.checkpoints.store import CheckpointStore
from spillway.errors import Missing, ResidencyRefused, SyncIncomplete, Unreachable
from spillway.images.mirror import MirrorReport, mirror
from spillway.images.reference import ImageReference
from spillway.ledger import Transfer, TransferKind, TransferOutcome
from spillway.model import Attempt, AttemptState, Dataset, JobSpec, Tier
from spillway.runs.predecessors import await_predecessors
from spillway.runs.services import Say, Services
from spillway.sync.execute import SyncReport, sync_dataset
from spillway.sync.manifest import verified_datasets


def stage(services: Services, attempt: Attempt, say: Say) -> Attempt:
    """Move the attempt from reserved to staged.

    Checkpoints come last, when no earlier pod of the run can add to them any more.
    """
    digest = stage_image(services, attempt, say).digest
    stage_dataset(services, attempt.job, attempt.candidate.cluster, say, run=attempt.run)
    await_predecessors(services, attempt, say)
    stage_checkpoints(services, attempt, say)
    return services.ledger.advance(attempt, AttemptState.STAGED, image_digest=digest)


def stage_image(services: Services, attempt: Attempt, say: Say) -> MirrorReport:
    """The image, by digest, in the target's registry. All attempts of a run use the digest of its first one."""
    reference = ImageReference.parse(attempt.job.image)
    pinned = next((a.image_digest for a in services.ledger.attempts(attempt.run) if a.image_digest), None)
    wanted, target = pinned or reference.reference, attempt.candidate.cluster
    try:
        report = copy_image(services, reference.repository, wanted, target, tier=attempt.job.tier, run=attempt.run)
    except Unreachable:
        # The home registry may be what was lost; an image that was mirrored before is as good.
        digest = services.site(target).registry.resolve(reference.repository, wanted)
        if digest is None:
            raise
        report = MirrorReport(repository=reference.repository, reference=wanted, digest=digest)
    say(f"image {report.repository}@{report.digest} is at {target}: {report.bytes_copied} bytes moved")
    return report


def copy_image(
    services: Services, repository: str, reference: str, target: str, *, tier: Tier, run: str | None = None
) -> MirrorReport:
    """Mirror an image from the home of images to another site's registry."""
    home = services.image_home
    report = mirror(
        services.site(home).registry, services.site(target).registry, repository=repository, reference=reference
    )
    services.ledger.record_transfer(
        Transfer(
            kind=TransferKind.IMAGE,
            name=f"{repository}@{report.digest}",
            tier=tier,
            source=home,
            destination=target,
            size_bytes=report.bytes_copied,
            at=services.clock(),
            outcome=TransferOutcome.COPIED if report.bytes_copied else TransferOutcome.UNCHANGED,
            run=run,
        )
    )
    return report


def stage_dataset(
    services: Services, job: JobSpec, target: str, say: Say, *, run: str | None = None
) -> SyncReport | None:
    """The job's dataset, whole and verified, at the target; None where it is at home there or the job has none.

    Raises:
        UnknownName: no such dataset is declared.
        Missing: its home holds no object of it.
        ResidencyRefused: its tier may not be stored at the target.
        SyncIncomplete: some of its objects could not be copied.
    """
    if job.dataset is None:
        return None
    dataset = services.dataset(job.dataset)
    if dataset.home == target:
        if next(iter(services.site(target).datasets.list(dataset.prefix)), None) is None:
            fix = "upload it, or correct the prefix in datasets.yaml"
            raise Missing("dataset", dataset.name, f"{target}/{dataset.prefix}", fix=fix)
        say(f"dataset {dataset.name} is at home at {target}")
        return None
    try:
        report = copy_dataset(services, dataset, target, run=run)
    except Unreachable:
        if dataset.name not in verified_datasets(services.site(target).datasets):
            raise
        say(f"dataset {dataset.name}: its home {dataset.home} is unreachable, the verified copy at {target} is used")
        return None
    say(f"dataset {dataset.name} is at {target}: {report.objects_copied} objects copied, {report.bytes_copied} bytes")
    return report


def copy_dataset(
    services: Services, dataset: Dataset, target: str, *, run: str | None = None, dry_run: bool = False
) -> SyncReport:
    """Sync a dataset from its home to another site's store.

    Raises:
        ResidencyRefused, SyncIncomplete: as ``stage_dataset``.
    """
    line = Transfer(
        kind=TransferKind.DATASET,
        name=dataset.name,
        tier=dataset.tier,
        source=dataset.home,
        destination=target,
        size_bytes=0,
        at=services.clock(),
        outcome=TransferOutcome.REFUSED,
        run=run,
    )
    try:
        report = sync_dataset(
            source=services.site(dataset.home).datasets,
            destination=services.site(target).datasets,
            dataset=dataset.name,
            prefix=dataset.prefix,
            tier=dataset.tier,
            home=dataset.home,
            site=target,
            dry_run=dry_run,
        )
    except ResidencyRefused as refusal:
        services.ledger.record_transfer(dataclasses.replace(line, reason=str(refusal)))
        raise
    if dry_run:
        return report
    failures = [f"{entry.key}: {entry.reason}" for entry in report.outcomes if entry.failed]
    moved = TransferOutcome.COPIED if report.objects_copied else TransferOutcome.UNCHANGED
    services.ledger.record_transfer(
        dataclasses.replace(
            line,
            size_bytes=report.bytes_copied,
            outcome=TransferOutcome.FAILED if failures else moved,
            reason=failures[0] if failures else None,
            objects_copied=report.objects_copied,
            objects_unchanged=report.objects_unchanged,
        )
    )
    if failures:
        raise SyncIncomplete(dataset.name, target, failed=len(failures), first=failures[0])
    return report


def stage_checkpoints(services: Services, attempt: Attempt, say: Say) -> None:
    """The newest committed steps of every reachable site at the target, so that nothing committed is trained again."""
    target = attempt.candidate.cluster
    destination = CheckpointStore(services.site(target).checkpoints, attempt.run)
    destination.head()  # so that what does not answer below is the source
    for name, source in services.checkpoint_stores(attempt.run).items():
        if name == target:
            continue
        try:
            report = replicate(source, destination)
        except Unreachable as problem:
            say(f"checkpoints at {name} cannot be read ({problem}); the newest step known at {target} is used")
            continue
        record_replication(services, attempt, name, target, report, say)


def record_replication(
    services: Services, attempt: Attempt, source: str, target: str, report: ReplicationReport, say: Say
) -> None:
    """A line of residency evidence for replicated steps, none where nothing was sent; steps left out are told."""
    for problem in report.rejected:
        say(f"not copied from {source} to {target}: {problem}")
    if not report.steps_copied:
        return
    services.ledger.record_transfer(
        Transfer(
            kind=TransferKind.CHECKPOINT,
            name=f"{attempt.run} to step {report.newest_step}",
            tier=attempt.job.tier,
            source=source,
            destination=target,
            size_bytes=report.bytes_copied,
            at=services.clock(),
            outcome=TransferOutcome.COPIED,
            run=attempt.run,
        )
    )
    say(
        f"checkpoints of {attempt.run}: {report.steps_copied} steps copied from {source} to {target}, "
        f"newest {report.newest_step}, {report.bytes_copied} bytes"
    )
