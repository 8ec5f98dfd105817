"""Bring to the chosen site what an attempt needs there: its image, its data, its checkpoints.

Every step is idempotent and moves only what is missing; what was moved or refused is a line in the transfer log.
"""

from __future__ import annotations

from collections.abc import Callable, Collection

from spillway.checkpoints.store import CheckpointStore
from spillway.errors import (
    CorruptCheckpoint,
    DigestMismatch,
    ForeignCheckpoint,
    Missing,
    ResidencyRefused,
    SpillwayError,
)
from spillway.errors.counts import counted
from spillway.images.mirror import MirrorReport
from spillway.images.reference import ImageReference
from spillway.model import Attempt, AttemptState, Dataset, DatasetUse, JobSpec, ObjectInfo
from spillway.runs.moving_checkpoints import copy_checkpoints
from spillway.runs.moving_datasets import copy_dataset
from spillway.runs.moving_images import copy_image
from spillway.runs.parts import record_part_at_home, require_parts, require_recorded_part
from spillway.runs.predecessors import await_predecessors
from spillway.runs.routes import let_read
from spillway.runs.services import Say, Services
from spillway.sync.manifest import load_record
from spillway.sync.progress import PROGRESS_SECONDS, Paced
from spillway.sync.report import SyncReport


def stage(services: Services, attempt: Attempt, say: Say) -> Attempt:
    """Move the attempt from reserved to staged.

    Checkpoints come last, when no earlier pod of the run can add to them any more.
    """
    digest = stage_image(services, attempt, say).digest
    stage_datasets(services, attempt.job, attempt.candidate.cluster, say, run=attempt.run)
    await_predecessors(services, attempt, say)
    stage_checkpoints(services, attempt, say)
    return services.ledger.advance(attempt, AttemptState.STAGED, image_digest=digest)


def stage_image(services: Services, attempt: Attempt, say: Say) -> MirrorReport:
    """The image, by digest, in the target's registry. All attempts of a run use the digest of its first one."""
    reference = ImageReference.parse(attempt.job.image)
    pinned = next((a.image_digest for a in services.ledger.attempts(attempt.run) if a.image_digest), None)
    wanted, target = pinned or reference.reference, attempt.candidate.cluster
    repository, home = reference.repository, services.image_home

    def ask_home() -> None:
        known = services.site(home).registry.resolve(repository, wanted)
        if known is None and pinned:  # what a tag means is for its home to say; a digest is the same everywhere
            raise Missing("image", f"{repository}@{pinned}", home)

    try:
        report = copy_image(
            services,
            repository,
            wanted,
            target,
            tier=attempt.job.image_made_of,
            run=attempt.run,
            on_progress=Paced(lambda line: say(f"image {repository}: {line}"), every_seconds=PROGRESS_SECONDS),
        )
    except SpillwayError as problem:
        digest = services.site(target).registry.resolve(repository, wanted) if _of_source(problem, ask_home) else None
        if digest is None:
            raise
        say(f"image {repository}: its home {home} cannot give it ({problem}); what {target} has is used")
        report = MirrorReport(repository=repository, reference=wanted, digest=digest)
    say(f"image {report.repository}@{report.digest} is at {target}: {counted(report.bytes_copied, 'byte')} moved")
    return report


def stage_datasets(
    services: Services,
    job: JobSpec,
    target: str,
    say: Say,
    *,
    run: str | None = None,
    only: Collection[DatasetUse] | None = None,
) -> tuple[SyncReport, ...]:
    """What the job reads, whole and verified, at the target; the reports of what was copied, or looked through.

    None of what is at home there, nor of what the target may not store and its pods may read at its home.

    Args:
        only: those of the job's datasets; None is all.
    Raises:
        UnknownName: no such dataset is declared.
        Missing: its home holds no object of it.
        ResidencyRefused: its tier may not be stored at the target, nor be read from there.
        SyncIncomplete: some of its objects could not be copied.
    """
    require_parts(services, job, target, run=run)
    remote = services.store_site(job, target) != target
    wanted = job.datasets if only is None else only
    reports = [_stage_dataset(services, use, target, say, run=run, remote=remote) for use in wanted]
    return tuple(report for report in reports if report is not None)


def _stage_dataset(
    services: Services, use: DatasetUse, target: str, say: Say, *, run: str | None, remote: bool
) -> SyncReport | None:
    dataset = services.dataset(use.name)

    def first_at_home() -> ObjectInfo | None:
        return next(iter(services.site(dataset.home).datasets.list(dataset.prefix)), None)

    if dataset.home == target:
        if first_at_home() is None:
            fix = "upload it, or correct the prefix in datasets.yaml"
            raise Missing("dataset", dataset.name, f"{target}/{dataset.prefix}", fix=fix)
        say(f"dataset {use} is at home at {target}")
        return None if use.part is None else record_part_at_home(services, dataset, use.part)
    if remote:
        let_read(services, dataset, target, run=run)
        say(f"dataset {dataset.name} stays at {dataset.home}: the pod reads it there, over the link")
        return None
    try:
        paced = Paced(lambda line: say(f"dataset {use}: {line}"), every_seconds=PROGRESS_SECONDS)
        report = copy_dataset(services, dataset, target, whole=True, part=use.part, run=run, on_progress=paced)
    except SpillwayError as problem:
        if not (_of_source(problem, first_at_home) and _verified(services, dataset, use, target)):
            raise
        require_recorded_part(services, use, target, run=run)
        home = dataset.home
        say(f"dataset {use}: its home {home} cannot give it ({problem}); the verified copy at {target} is used")
        return None
    copied = counted(report.bytes_copied, "byte")
    say(f"dataset {use} is at {target}: {counted(report.objects_copied, 'object')} copied, {copied}")
    return report


def _verified(services: Services, dataset: Dataset, use: DatasetUse, site: str) -> bool:
    """Whether the last sync of the dataset, as it is declared, left a whole copy of what is read at the site."""
    stored = load_record(services.site(site).datasets, use.record_at(services.cluster(site)))
    return stored.whole and stored.record is not None and stored.record.scope == dataset.scope


def _of_source(problem: SpillwayError, ask_source: Callable[[], object]) -> bool:
    """Whether a copy failed for its source alone, which does not answer by itself either.

    What the target has verified before is then as good: its site may be lost, its credentials revoked. A fault of the
    target, a refusal, and bytes that are not what they should be are nobody's to overlook.
    """
    if isinstance(problem, ResidencyRefused | DigestMismatch | CorruptCheckpoint | ForeignCheckpoint):
        return False
    try:
        ask_source()
    except SpillwayError:
        return True
    return False


def stage_checkpoints(services: Services, attempt: Attempt, say: Say) -> None:
    """The newest committed steps of every reachable site where the attempt commits, so that none is trained again."""
    target = services.store_site(attempt.job, attempt.candidate.cluster)
    for name, source in services.checkpoint_stores(attempt.run).items():
        if name == target:
            continue
        try:
            copy_checkpoints(services, attempt, name, target, say)
        except SpillwayError as problem:
            if not _of_source(problem, source.head):
                raise
            CheckpointStore(services.site(target).checkpoints, attempt.run).head()
            say(f"checkpoints at {name} cannot be read ({problem}); the newest step known at {target} is used")
