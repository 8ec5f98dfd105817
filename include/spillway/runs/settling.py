"""Close an attempt: what it reached, what it cost, and whether the run may go on elsewhere."""

from __future__ import annotations

from spillway.checkpoints.progress import read_progress
from spillway.checkpoints.store import CheckpointStore
from spillway.errors import SpillwayError
from spillway.ledger import AttemptFacts
from spillway.losses import PodVerdict, VerdictKind
from spillway.model import Attempt, AttemptState, CoolDown, CostEntry, Outcome
from spillway.pricing import cost, gpu_hours, price_per_gpu_hour
from spillway.runs.services import Services
from spillway.runs.watching import Ended, resume_problem

OUTCOMES = {
    VerdictKind.SUCCEEDED: Outcome.SUCCEEDED,
    VerdictKind.PREEMPTED: Outcome.PREEMPTED,
    VerdictKind.LOST_NODE: Outcome.PREEMPTED,
    VerdictKind.CLUSTER_UNREACHABLE: Outcome.PREEMPTED,
    VerdictKind.DELETED_BY_PERSON: Outcome.CANCELLED,
    VerdictKind.FENCED: Outcome.CANCELLED,
}
"""Every other kind of ending is the job's own failure."""


def settle(services: Services, attempt: Attempt, ended: Ended | PodVerdict) -> Attempt:
    """Close the attempt; the same ending twice books once, and an attempt that is settled stays as it is."""
    if attempt.state is AttemptState.SETTLED:
        return attempt
    now = services.clock()
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
    settled = services.ledger.settle(attempt, outcome, reason, now)
    book_cost(services, settled)
    return settled


def _known_progress(services: Services, attempt: Attempt) -> AttemptFacts:
    """The steps that the attempt is known to have run and committed, from the store that it wrote to."""
    facts: AttemptFacts = {}
    if attempt.pod_uid is None:
        return facts
    bucket = services.site(attempt.candidate.cluster).checkpoints
    try:
        progress = read_progress(bucket, attempt.run, attempt.number)
        head = CheckpointStore(bucket, attempt.run).head()
    except SpillwayError:
        # The store may be what was lost; what is unknown stays unknown.
        return facts
    committed = [entry.step for entry in head.committed if entry.attempt == attempt.number] if head else []
    if progress is not None:
        facts["first_step"] = progress.first_step
        facts["last_step"] = max(progress.step, *committed, progress.first_step)
    if committed:
        facts["committed_step"] = max(committed)
    return facts


def book_cost(services: Services, attempt: Attempt) -> CostEntry | None:
    """Book the attempt's GPU-hours once, whatever is repeated; None where no pod ran or no price is known."""
    if attempt.pod_uid is None or attempt.started_at is None or attempt.ended_at is None:
        return None
    candidate, gpus = attempt.candidate, attempt.job.gpus
    price = price_per_gpu_hour(
        services.configuration.clusters[candidate.cluster].pool(candidate.pool), candidate.billing
    )
    if price is None:
        return None
    ended_at = max(attempt.started_at, attempt.ended_at)
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
