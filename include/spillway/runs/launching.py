"""Start the pod of an attempt: gate, fence, resume point, create or adopt, in this order."""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import timedelta
from typing import Any

from spillway.checkpoints.progress import read_progress
from spillway.checkpoints.store import CheckpointStore, ResumePoint
from spillway.clouds.pod import build_pod, grace_seconds
from spillway.errors import CorruptCheckpoint, Fenced, NoValidCheckpoint, SpillwayError
from spillway.errors.counts import counted
from spillway.images.gate import require_environment, require_image
from spillway.images.reference import ImageReference
from spillway.ledger import TransferKind
from spillway.model import Attempt, AttemptState, Cluster, Dataset, DatasetUse
from spillway.placement.packing import fullest_nodes
from spillway.runs.parts import require_parts, require_recorded_part
from spillway.runs.pod_access import access_objects, pod_access
from spillway.runs.routes import Shipment, note_reading, refusal
from spillway.runs.services import Say, Services, Site
from spillway.runs.sites import registry_host
from spillway.runs.stopping import ask_to_end
from spillway.sync.manifest import manifest_key

STORE_PATIENCE = timedelta(minutes=5)
"""How long a trainer waits for its site's store to answer. Training goes on meanwhile: longer than for a cluster."""


def launch(services: Services, attempt: Attempt, say: Say) -> Attempt:
    """Move the attempt from staged to launched.

    The resume step is written to the ledger before the pod is created: whoever repeats a launch that was cut off
    creates or adopts the pod with that very step, not with one that the pod itself has committed meanwhile.
    """
    _require_residency(services, attempt)
    site = services.site(attempt.candidate.cluster)
    assert attempt.image_digest is not None
    image = ImageReference.parse(attempt.job.image)
    require_image(site.registry, image.repository, attempt.image_digest)
    require_environment(site.registry, image, attempt.image_digest)
    fence(services, attempt, say)
    resume = _resume_point(services, attempt, say)
    pod = _pod(services, attempt, resume)  # one that cannot be built never counts as launched and lost
    if services.store_site(attempt.job, site.cluster.name) != site.cluster.name:
        for use in attempt.job.datasets:
            note_reading(services, services.dataset(use.name), site.cluster.name, run=attempt.run)
    launched = services.ledger.advance(attempt, AttemptState.LAUNCHED, resumed_from_step=resume.step)
    return _create(services, launched, pod, say)


def rehearse(services: Services, attempt: Attempt) -> None:
    """All of a launch that needs no fence and leaves no pod: what would refuse the attempt at its place refuses now."""
    _require_residency(services, attempt)
    site = services.site(attempt.candidate.cluster)
    assert attempt.image_digest is not None
    require_image(site.registry, ImageReference.parse(attempt.job.image).repository, attempt.image_digest)
    _pod(services, attempt, ResumePoint(manifest=None))
    site.client.apply(access_objects(services, attempt))


def _require_residency(services: Services, attempt: Attempt) -> None:
    """Ask once more what may be stored where: declarations may have changed since the attempt was placed and staged.

    Raises:
        UnknownName: its dataset is not declared any more, so that nobody knows what its pod would read.
        ResidencyRefused: what its pod commits may not be stored where it would be, or what it reads is not what it
            was; a line in the transfer log.
    """
    job = attempt.job
    require_parts(services, job, attempt.candidate.cluster, run=attempt.run)
    site = services.store_site(job, attempt.candidate.cluster)
    for use in job.datasets:
        require_recorded_part(services, use, site, run=attempt.run)
    tier = services.tier_of(job)
    if not services.cluster(site).may_hold(tier):
        made = Shipment(
            kind=TransferKind.CHECKPOINT,
            name=attempt.run,
            tier=tier,
            source=site,
            destination=site,
            run=attempt.run,
        )
        raise refusal(services, made)


def _resume_point(services: Services, attempt: Attempt, say: Say) -> ResumePoint:
    """Where the attempt goes on; what that costs is told.

    Raises:
        NoValidCheckpoint: steps were committed, and none of them can be read at the attempt's site.
    """
    site = services.store_site(attempt.job, attempt.candidate.cluster)
    resume = CheckpointStore(services.checkpoints(attempt), attempt.run).resume_point()
    for rejected in resume.rejected:
        say(f"checkpoint not used: {rejected}")
    earlier = [known for known in services.ledger.attempts(attempt.run) if known.number < attempt.number]
    if resume.step is None and (committed := [known for known in earlier if known.committed_step is not None]):
        last = committed[-1]
        seen = f"attempt {last.number} committed step {last.committed_step} at {last.candidate.cluster}, which did not"
        raise NoValidCheckpoint(attempt.run, site, [f"{seen} reach {site}; start a new run to begin with step 1"])
    reached = max((known.last_step for known in earlier if known.last_step is not None), default=0)
    if reached > (resume.step or 0):
        newest = "no step" if resume.step is None else f"step {resume.step}"
        lost = counted(reached - (resume.step or 0), "step")
        say(f"lost: {lost}; trained up to step {reached}, {newest} is committed at {site}")
    return resume


def fence(services: Services, attempt: Attempt, say: Say) -> None:
    """Make the attempt the only one that can commit: at its own store for certain, at every other that answers.

    Another store that does not answer cannot be fenced; what an old attempt still commits there is of a lower attempt
    number and so never newer than anything of this one.

    Raises:
        Fenced: a newer attempt owns the run.
    """
    target = services.store_site(attempt.job, attempt.candidate.cluster)
    CheckpointStore(services.checkpoints(attempt), attempt.run).fence(attempt.number)
    stores = services.checkpoint_stores(attempt.run)
    for name, store in stores.items():
        if name != target:
            try:
                store.fence(attempt.number)
            except Fenced:
                raise
            except SpillwayError as problem:
                say(f"checkpoint store of {name} could not be fenced: {problem}")


def ensure_pod(services: Services, attempt: Attempt, say: Say) -> Attempt:
    """The pod of a launched attempt, created or adopted, its uid in the ledger."""
    _require_residency(services, attempt)
    store = services.checkpoints(attempt)
    resume = _recorded_resume(CheckpointStore(store, attempt.run), attempt)
    return _create(services, attempt, _pod(services, attempt, resume), say)


def _create(services: Services, attempt: Attempt, pod: Mapping[str, Any], say: Say) -> Attempt:
    """The launched attempt with the uid of its pod, which is created or adopted."""
    site = services.site(attempt.candidate.cluster)
    site.client.apply(access_objects(services, attempt))
    state = site.client.launch(pod)
    begins = "begins" if attempt.resumed_from_step is None else f"resumes from step {attempt.resumed_from_step}"
    say(f"pod {state.name} ({state.uid}) at {site.cluster.name} {begins}")
    amended = services.ledger.amend(attempt, pod_uid=state.uid)
    if amended.state is AttemptState.SETTLED:  # it was cancelled while its pod was being created
        ask_to_end(site.client, state, attempt.job)
    return amended


def _pod(services: Services, attempt: Attempt, resume: ResumePoint) -> Mapping[str, Any]:
    """The pod of an attempt that goes on there."""
    site = services.site(attempt.candidate.cluster)
    reference = ImageReference.parse(attempt.job.image)
    flush = _slowest_flush(services, attempt)
    installation = services.ledger.installation()
    return build_pod(
        attempt=attempt,
        installation=installation,
        cluster=site.cluster,
        image=f"{_repository_host(site)}/{reference.repository}@{attempt.image_digest}",
        environment=pod_environment(services, attempt, resume, flush),
        access=pod_access(services, attempt),
        measured_flush=flush,
        prefers=_fullest_nodes(services, attempt, site),
    )


def _fullest_nodes(services: Services, attempt: Attempt, site: Site) -> tuple[str, ...]:
    """Where its pods best go; nowhere in particular where the cluster cannot be read now: it can do without."""
    try:
        state = site.client.describe()
    except SpillwayError:
        return ()
    return fullest_nodes(attempt, state, services.ledger.reservations())


def has_trained(services: Services, attempt: Attempt) -> bool:
    """Whether a pod of the attempt has done a step. If that one is gone no other may be created in its name."""
    return read_progress(services.checkpoints(attempt), attempt.run, attempt.number) is not None


def _recorded_resume(store: CheckpointStore, attempt: Attempt) -> ResumePoint:
    """The resume point at the recorded step, also when newer ones were committed since."""
    if attempt.resumed_from_step is None:
        return ResumePoint(manifest=None)
    head = store.head()
    entries = head.committed if head else ()
    for entry in reversed(entries):
        if entry.step == attempt.resumed_from_step and entry.attempt < attempt.number:
            return ResumePoint(manifest=store.manifest(entry))
    raise CorruptCheckpoint(
        attempt.run,
        attempt.resumed_from_step,
        f"recorded as the resume point of attempt {attempt.number}, it is no longer at {attempt.candidate.cluster}; "
        "clear the task to choose a new one",
    )


def _repository_host(site: Site) -> str:
    """``host:port`` and prefix as pods name the registry."""
    prefix = site.cluster.registry.prefix.strip("/")
    return f"{registry_host(site.pull)}/{prefix}" if prefix else registry_host(site.pull)


def _slowest_flush(services: Services, attempt: Attempt) -> timedelta | None:
    """How long a checkpoint of the run has taken at most, as far as its earlier attempts can still say."""
    seconds, silent = [], set[str]()
    for earlier in services.ledger.attempts(attempt.run):
        site = services.store_site(earlier.job, earlier.candidate.cluster)
        if earlier.number < attempt.number and earlier.committed_step is not None and site not in silent:
            try:
                progress = read_progress(services.checkpoints(earlier), attempt.run, earlier.number)
            except SpillwayError:
                silent.add(site)  # each answer that does not come takes as long as the client is patient
                continue
            if progress is not None and progress.slowest_commit_seconds is not None:
                seconds.append(progress.slowest_commit_seconds)
    return timedelta(seconds=max(seconds)) if seconds else None


def pod_environment(
    services: Services, attempt: Attempt, resume: ResumePoint, flush: timedelta | None
) -> dict[str, str]:
    """The trainer's variables: the job's own, and the platform's, of which the job may set the patience only."""
    cluster = services.cluster(services.store_site(attempt.job, attempt.candidate.cluster))
    data = [_told(use, services.dataset(use.name), cluster) for use in attempt.job.datasets]
    first: Mapping[str, Any] = data[0] if data else {"prefix": "", "include": (), "exclude": (), "record": ""}
    grace = grace_seconds(attempt.job.grace, flush)
    patience = max(STORE_PATIENCE, timedelta(seconds=grace) + services.configuration.runs.node_margin)
    ours = {
        "SPILLWAY_RUN": attempt.run,
        "SPILLWAY_ATTEMPT": str(attempt.number),
        "SPILLWAY_RESUME_MANIFEST": resume.manifest_key or "",
        "SPILLWAY_RESUMED_FROM_STEP": "" if resume.step is None else str(resume.step),
        "SPILLWAY_CHECKPOINT_BUCKET": cluster.object_store.checkpoint_bucket,
        "SPILLWAY_DATASET_BUCKET": cluster.object_store.dataset_bucket,
        "SPILLWAY_DATASET_PREFIX": first["prefix"],
        "SPILLWAY_DATASET_INCLUDE": json.dumps(first["include"]),
        "SPILLWAY_DATASET_EXCLUDE": json.dumps(first["exclude"]),
        "SPILLWAY_DATASET_RECORD": first["record"],
        "SPILLWAY_DATASETS": json.dumps(data),
        "SPILLWAY_GRACE_SECONDS": str(grace),
    }
    return {"SPILLWAY_STORE_PATIENCE_SECONDS": str(patience.total_seconds()), **attempt.job.environment, **ours}


def _told(use: DatasetUse, dataset: Dataset, site: Cluster) -> Mapping[str, Any]:
    """A dataset as its pod is told of it. ``record`` is the key of the list of what to read; empty where that is all
    that is there, at the home.
    """
    whole_home = use.part is None and dataset.home == site.name
    return {
        "name": dataset.name,
        "prefix": dataset.prefix,
        "include": dataset.include,
        "exclude": dataset.exclude,
        "record": "" if whole_home else manifest_key(use.record_at(site)),
    }
