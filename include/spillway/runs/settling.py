"""Close an attempt: what it reached, what it cost, and whether the run may go on elsewhere."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from spillway.checkpoints.progress import Progress, read_progress
from spillway.checkpoints.store import CheckpointStore
from spillway.errors import ResumeMismatch, SpillwayError
from spillway.ledger import AttemptFacts
from spillway.losses import VerdictKind, judge
from spillway.model import Attempt, AttemptState, CoolDown, CostEntry, Outcome, PodPhase, PodState
from spillway.pricing import cost, gpu_hours, price_per_gpu_hour
from spillway.runs.services import Services

OUTCOMES = {
    VerdictKind.SUCCEEDED: Outcome.SUCCEEDED,
    VerdictKind.PREEMPTED: Outcome.PREEMPTED,
    VerdictKind.LOST_NODE: Outcome.PREEMPTED,
    VerdictKind.CLUSTER_UNREACHABLE: Outcome.PREEMPTED,
    VerdictKind.START_TIMEOUT: Outcome.PREEMPTED,
    VerdictKind.DELETED_BY_PERSON: Outcome.CANCELLED,
    VerdictKind.FENCED: Outcome.CANCELLED,
}
"""Every other kind of ending is the job's own failure."""

STARTED = frozenset({PodPhase.RUNNING, PodPhase.SUCCEEDED, PodPhase.FAILED})


@dataclass(frozen=True, slots=True, kw_only=True)
class Ended:
    """How an attempt ended; plain enough to travel in a trigger's event. ``at`` is None where only now is known."""

    kind: VerdictKind
    reason: str
    log_tail: tuple[str, ...] = ()
    at: datetime | None = None


def settle(services: Services, attempt: Attempt, ended: Ended) -> Attempt:
    """Close the attempt; the same ending twice books once, and an attempt that is settled stays as it is.

    Settling comes last: whoever is killed on the way leaves an open attempt, and the next one does all of it again.
    """
    if attempt.state is AttemptState.SETTLED:
        return attempt
    now = services.clock()
    ended_at = ended.at or now
    outcome, reason = OUTCOMES.get(ended.kind, Outcome.FAILED), ended.reason
    attempt = services.ledger.amend(attempt, **_known_progress(services, attempt))
    problem = resume_problem(attempt)
    if problem is not None:
        outcome, reason = Outcome.FAILED, str(problem)
    if outcome is Outcome.PREEMPTED:
        candidate = attempt.candidate
        until = now + services.configuration.runs.cool_down
        services.ledger.cool_down(
            CoolDown(cluster=candidate.cluster, pool=candidate.pool, until=until, reason=f"{attempt.label}: {reason}")
        )
    booked = book_cost(services, attempt, ended_at)
    return services.ledger.settle(attempt, outcome, reason, now, ended_at=booked.ended_at if booked else ended_at)


def note_start(services: Services, attempt: Attempt, pod: PodState) -> Attempt:
    """The attempt as running, with its node and start, once its pod has started."""
    if pod.phase not in STARTED or attempt.state is not AttemptState.LAUNCHED:
        return attempt
    started_at = pod.started_at or services.clock()
    return services.ledger.advance(attempt, AttemptState.RUNNING, pod_uid=pod.uid, node=pod.node, started_at=started_at)


def settle_over(services: Services, attempt: Attempt, pod: PodState) -> Attempt | None:
    """Close an attempt that nobody watches by what became of its pod; None where the pod is not over."""
    if pod.phase not in {PodPhase.SUCCEEDED, PodPhase.FAILED}:
        return None
    attempt = note_start(services, attempt, pod)
    policy = services.configuration.runs
    now = services.clock()
    verdict = judge(pod, now=now, startup_limit=policy.startup_limit, node_margin=policy.node_margin)
    return settle(services, attempt, Ended(kind=verdict.kind, reason=verdict.reason, at=pod.finished_at))


def resume_problem(attempt: Attempt) -> ResumeMismatch | None:
    """The error of an attempt whose first step is not its resume step + 1."""
    expected = 1 if attempt.resumed_from_step is None else attempt.resumed_from_step + 1
    if attempt.first_step is None or attempt.first_step == expected:
        return None
    return ResumeMismatch(attempt.run, resumed_from_step=attempt.resumed_from_step, first_step=attempt.first_step)


def progress_facts(progress: Progress) -> AttemptFacts:
    """What the trainer's own account of its progress adds to the attempt."""
    facts: AttemptFacts = {"first_step": progress.first_step, "last_step": progress.step}
    if progress.durable_step is not None and progress.durable_step >= progress.first_step:
        facts["committed_step"] = progress.durable_step
    return facts


def _known_progress(services: Services, attempt: Attempt) -> AttemptFacts:
    """The steps that the attempt is known to have run and committed, from the store that it wrote to."""
    if attempt.pod_uid is None:
        return {}
    try:
        bucket = services.site(attempt.candidate.cluster).checkpoints
        progress = read_progress(bucket, attempt.run, attempt.number)
        head = CheckpointStore(bucket, attempt.run).head()
    except SpillwayError:
        # The store may be what was lost; what is unknown stays unknown.
        return {}
    facts = progress_facts(progress) if progress is not None else AttemptFacts()
    committed = [entry.step for entry in head.committed if entry.attempt == attempt.number] if head else []
    if committed:
        # The progress object is written after the commit, so it may be one commit behind.
        facts["committed_step"] = max(committed)
        facts["last_step"] = max(*committed, facts.get("last_step") or 0)
    return facts


def book_cost(services: Services, attempt: Attempt, ended_at: datetime) -> CostEntry | None:
    """Book the attempt's GPU-hours once, whatever is repeated; None where no pod ran or no price is known."""
    candidate, gpus = attempt.candidate, attempt.job.gpus
    cluster = services.configuration.clusters.get(candidate.cluster)
    pool = next((pool for pool in cluster.pools if pool.name == candidate.pool), None) if cluster else None
    price = price_per_gpu_hour(pool, candidate.billing) if pool else None
    if attempt.pod_uid is None or attempt.started_at is None or price is None:
        return None
    ended_at = max(attempt.started_at, ended_at)
    return services.ledger.book(
        CostEntry(
            cluster=candidate.cluster,
            pod_uid=attempt.pod_uid,
            attempt=attempt.label,
            department=attempt.job.department,
            job=attempt.job.name,
            billing=candidate.billing,
            gpus=gpus,
            gpu_hours=gpu_hours(gpus, attempt.started_at, ended_at),
            price_per_gpu_hour=price,
            amount=cost(gpus, attempt.started_at, ended_at, price),
            started_at=attempt.started_at,
            ended_at=ended_at,
        )
    )
