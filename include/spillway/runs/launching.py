"""Start the pod of an attempt: gate, fence, resume point, create or adopt, in this order."""

from __future__ import annotations

from datetime import timedelta

from spillway.checkpoints.progress import read_progress
from spillway.checkpoints.store import CheckpointStore, ResumePoint
from spillway.clouds.pod import build_pod, grace_seconds, pull_secret, store_secret
from spillway.errors import CorruptCheckpoint, Fenced, NoValidCheckpoint, SpillwayError
from spillway.images.mirror import require_image
from spillway.images.reference import ImageReference
from spillway.model import Attempt, AttemptState, Cluster
from spillway.runs.services import Say, Services, Site
from spillway.runs.sites import registry_host
from spillway.runs.stopping import ask_to_end

STORE_SECRET = "spillway-store"
PULL_SECRET = "spillway-registry"


def launch(services: Services, attempt: Attempt, say: Say) -> Attempt:
    """Move the attempt from staged to launched.

    The resume step is written to the ledger before the pod is created: whoever repeats a launch that was cut off
    creates or adopts the pod with that very step, not with one that the pod itself has committed meanwhile.
    """
    site = services.site(attempt.candidate.cluster)
    assert attempt.image_digest is not None
    require_image(site.registry, ImageReference.parse(attempt.job.image).repository, attempt.image_digest)
    fence(services, attempt, say)
    resume = _resume_point(services, attempt, say)
    launched = services.ledger.advance(attempt, AttemptState.LAUNCHED, resumed_from_step=resume.step)
    return ensure_pod(services, launched, say)


def _resume_point(services: Services, attempt: Attempt, say: Say) -> ResumePoint:
    """Where the attempt goes on; what that costs is told.

    Raises:
        NoValidCheckpoint: steps were committed, and none of them can be read at the attempt's site.
    """
    site = attempt.candidate.cluster
    resume = CheckpointStore(services.site(site).checkpoints, attempt.run).resume_point()
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
        say(f"{reached - (resume.step or 0)} steps are lost: {reached} were trained, {newest} is committed at {site}")
    return resume


def fence(services: Services, attempt: Attempt, say: Say) -> None:
    """Make the attempt the only one that can commit: at its own store for certain, at every other that answers.

    Another store that does not answer cannot be fenced; what an old attempt still commits there is of a lower attempt
    number and so never newer than anything of this one.

    Raises:
        Fenced: a newer attempt owns the run.
    """
    target = attempt.candidate.cluster
    CheckpointStore(services.site(target).checkpoints, attempt.run).fence(attempt.number)
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
    site = services.site(attempt.candidate.cluster)
    cluster = site.cluster
    reference = ImageReference.parse(attempt.job.image)
    image = f"{_repository_host(site)}/{reference.repository}@{attempt.image_digest}"
    resume = _recorded_resume(CheckpointStore(site.checkpoints, attempt.run), attempt)
    flush = _slowest_flush(services, attempt)
    pod = build_pod(
        attempt=attempt,
        cluster=cluster,
        image=image,
        environment=pod_environment(services, attempt, cluster, resume, flush),
        store_secret=STORE_SECRET,
        pull_secret=PULL_SECRET,
        measured_flush=flush,
    )
    site.client.apply(
        [
            store_secret(STORE_SECRET, cluster.namespace, _store_environment(site)),
            pull_secret(
                PULL_SECRET,
                cluster.namespace,
                host=registry_host(site.pull),
                username=site.pull.login or "",
                password=site.pull.password or "",
            ),
        ]
    )
    state = site.client.launch(pod)
    begins = "begins" if resume.step is None else f"resumes from step {resume.step}"
    say(f"pod {state.name} ({state.uid}) at {cluster.name} {begins}")
    amended = services.ledger.amend(attempt, pod_uid=state.uid)
    if amended.state is AttemptState.SETTLED:  # it was cancelled while its pod was being created
        ask_to_end(site.client, state, attempt.job)
    return amended


def has_trained(services: Services, attempt: Attempt) -> bool:
    """Whether a pod of the attempt has done a step. If that one is gone no other may be created in its name."""
    store = services.site(attempt.candidate.cluster).checkpoints
    return read_progress(store, attempt.run, attempt.number) is not None


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


def _store_environment(site: Site) -> dict[str, str]:
    """The store's address and the pods' own identity; the Secret that pods read their keys from."""
    extra = site.pod_store.extra
    return {
        "SPILLWAY_STORE_ENDPOINT": str(extra.get("endpoint_url", "")),
        "SPILLWAY_STORE_REGION": str(extra.get("region_name", "us-east-1")),
        "SPILLWAY_STORE_ACCESS_KEY": site.pod_store.login or "",
        "SPILLWAY_STORE_SECRET_KEY": site.pod_store.password or "",
    }


def _slowest_flush(services: Services, attempt: Attempt) -> timedelta | None:
    """How long a checkpoint of the run has taken at most, as far as its earlier attempts can still say."""
    seconds = []
    for earlier in services.ledger.attempts(attempt.run):
        if earlier.number < attempt.number and earlier.committed_step is not None:
            try:
                store = services.site(earlier.candidate.cluster).checkpoints
                progress = read_progress(store, attempt.run, earlier.number)
            except SpillwayError:
                continue
            if progress is not None and progress.slowest_commit_seconds is not None:
                seconds.append(progress.slowest_commit_seconds)
    return timedelta(seconds=max(seconds)) if seconds else None


def pod_environment(
    services: Services, attempt: Attempt, cluster: Cluster, resume: ResumePoint, flush: timedelta | None
) -> dict[str, str]:
    """What the platform tells the training code; the job's own variables may not replace any of it."""
    dataset = services.configuration.datasets.get(attempt.job.dataset or "")
    ours = {
        "SPILLWAY_RUN": attempt.run,
        "SPILLWAY_ATTEMPT": str(attempt.number),
        "SPILLWAY_RESUME_MANIFEST": resume.manifest_key or "",
        "SPILLWAY_RESUMED_FROM_STEP": "" if resume.step is None else str(resume.step),
        "SPILLWAY_CHECKPOINT_BUCKET": cluster.object_store.checkpoint_bucket,
        "SPILLWAY_DATASET_BUCKET": cluster.object_store.dataset_bucket,
        "SPILLWAY_DATASET_PREFIX": dataset.prefix if dataset else "",
        "SPILLWAY_GRACE_SECONDS": str(grace_seconds(attempt.job.grace, flush)),
    }
    return dict(attempt.job.environment) | ours
