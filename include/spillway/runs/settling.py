"""Close an attempt: what it reached, what it cost, and whether the run may go on elsewhere."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import UTC, datetime
from decimal import Decimal

from spillway.checkpoints.progress import Progress, read_progress
from spillway.checkpoints.store import CheckpointStore
from spillway.deadlines import time_left
from spillway.errors import ResumeMismatch, SpillwayError
from spillway.handover import OVER
from spillway.ledger import AttemptFacts
from spillway.losses import PodVerdict, judge
from spillway.model import Attempt, AttemptState, CoolDown, CostEntry, Outcome, PodPhase, PodState, VerdictKind
from spillway.pricing import cost, gpu_hours, hourly_price, monthly_fixed_cost, price_of_run
from spillway.runs.services import Services
from spillway.runs.stopping import noted_ending

OUTCOMES = {
    VerdictKind.SUCCEEDED: Outcome.SUCCEEDED,
    VerdictKind.PREEMPTED: Outcome.PREEMPTED,
    VerdictKind.LOST_NODE: Outcome.PREEMPTED,
    VerdictKind.CLUSTER_UNREACHABLE: Outcome.PREEMPTED,
    VerdictKind.START_TIMEOUT: Outcome.PREEMPTED,
    VerdictKind.DISPLACED: Outcome.PREEMPTED,
    VerdictKind.MIGRATED: Outcome.MIGRATED,
    VerdictKind.STALLED: Outcome.STALLED,
    VerdictKind.DELETED_BY_PERSON: Outcome.CANCELLED,
    VerdictKind.TASK_ENDED: Outcome.CANCELLED,
    VerdictKind.FENCED: Outcome.CANCELLED,
}
"""Every other kind of ending is the job's own failure."""

GPU_UTILISATION = "gpu_utilisation"
"""The key of a checkpoint's metrics in which a trainer tells the mean of its GPUs since it began, in [0, 1]."""

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
    What the ledger knows of it by now counts, not what the caller had seen: its pod may have started meanwhile.
    """
    attempt = services.ledger.attempt(attempt.run, attempt.number)
    attempt = services.ledger.amend(attempt, **_known_progress(services, attempt))
    if attempt.state is AttemptState.SETTLED:
        return attempt
    now = services.clock()
    ended_at = ended.at or now
    kind, reason = ended.kind, ended.reason
    noted = noted_ending(attempt)
    if (
        kind in {VerdictKind.MIGRATED, VerdictKind.DISPLACED}
        and noted is not None
        and OUTCOMES.get(noted.kind) is Outcome.CANCELLED
    ):
        kind, reason = noted.kind, noted.reason  # while it was drained a person has ended the run
    problem = resume_problem(attempt)
    if problem is not None:
        kind, reason = VerdictKind.PROGRAM_ERROR, str(problem)
    outcome = OUTCOMES.get(kind, Outcome.FAILED)
    if outcome is Outcome.FAILED and attempt.first_step is None and arrives(services, attempt):
        outcome, reason = Outcome.PREEMPTED, f"the place that it was moved to failed it: {reason}"
    if outcome is Outcome.PREEMPTED and kind is not VerdictKind.DISPLACED:  # its place is not lost, another has it
        candidate = attempt.candidate
        until = now + services.configuration.runs.cool_down
        services.ledger.cool_down(
            CoolDown(cluster=candidate.cluster, pool=candidate.pool, until=until, reason=f"{attempt.label}: {reason}")
        )
    booked = book_cost(services, attempt, ended_at)
    if attempt.started_at is None and attempt.last_step is not None:
        reason = f"{reason}; its pod is NOT billed: it trained, and when it started is not known"
    ended_at = booked.ended_at if booked else ended_at
    return services.ledger.settle(attempt, outcome, reason, now, ending=kind, ended_at=ended_at)


def arrives(services: Services, attempt: Attempt) -> bool:
    """Whether a move has brought the attempt to its place, and no step of it was seen there yet.

    What goes wrong there then is not the run's fault: it goes on at another place.
    """
    move = services.ledger.open_move(attempt.run)
    return move is not None and move.to_attempt == attempt.number


def note_start(services: Services, attempt: Attempt, pod: PodState) -> Attempt:
    """The attempt with its node, once its pod is bound to one; as running with its start, once that has started.

    The node goes on record while it still pulls the image: should pod and node be lost meanwhile, whoever looks next
    must know that there was a node, or a stranger is taken to have deleted the pod.
    """
    if attempt.state is not AttemptState.LAUNCHED or pod.phase is PodPhase.GONE:
        return attempt
    if pod.phase in STARTED:
        started_at = pod.started_at or services.clock()
        price = _price_from(services, attempt, started_at)
        facts = AttemptFacts(pod_uid=pod.uid, node=pod.node, started_at=started_at, price_per_gpu_hour=price)
        return services.ledger.advance(attempt, AttemptState.RUNNING, **facts)
    return services.ledger.amend(attempt, node=pod.node) if pod.node not in {None, attempt.node} else attempt


def _price_from(services: Services, attempt: Attempt, started_at: datetime) -> Decimal | None:
    """What an hour costs of what starts then, by the prices that it was placed by; None where that is not known.

    Between the two lie staging and the grace of others, so that one may be in off-peak hours and the other not.
    """
    seen = services.ledger.placed_from(attempt)
    pool = None if seen is None else seen.find_pool(attempt.candidate)
    lasting = time_left(attempt.job, services.ledger.schedule(attempt.run, attempt.job, started_at))
    return None if pool is None else price_of_run(pool, attempt.candidate.billing, started_at, lasting)


def settle_over(services: Services, attempt: Attempt, pod: PodState) -> Attempt | None:
    """Close an attempt that nobody watches by what became of its pod; None where the pod is not over."""
    if pod.phase not in OVER:
        return None
    attempt = note_start(services, attempt, pod)
    seen_at = looked_after_at(services, attempt)
    ended = ending(services, attempt, pod, noted=noted_ending(attempt), seen_at=seen_at)
    if pod.finished_at is None and ended.at is not None:
        unknown = f"when is not known, {ended.at.isoformat()} is the last that is known of it"
        ended = replace(ended, reason=f"{ended.reason}; {unknown}")
    return settle(services, attempt, ended)


def ending(
    services: Services, attempt: Attempt, pod: PodState, *, noted: PodVerdict | None, seen_at: datetime
) -> Ended:
    """How an attempt ended whose pod is over: for what whoever asked it to end ``noted``, unless it reports a success.

    Of a pod that is gone nobody saw it go: who deleted it is told by a note alone. When it ended: see ``end_of``.
    """
    policy, now = services.configuration.runs, services.clock()
    if pod.phase is PodPhase.GONE:
        gone = "its pod is gone and nobody looked after it"
        verdict = noted or PodVerdict(kind=VerdictKind.PREEMPTED, reason=gone)
    else:
        verdict = judge(pod, now=now, startup_limit=policy.startup_limit, node_margin=policy.node_margin)
        if noted is not None and verdict.kind is not VerdictKind.SUCCEEDED:
            verdict = noted
    return Ended(kind=verdict.kind, reason=verdict.reason, at=end_of(services, attempt, pod, seen_at))


def looked_after_at(services: Services, attempt: Attempt) -> datetime:
    """When somebody last renewed the attempt's lease; never later than now, should the lease have been longer then."""
    return min(attempt.lease_expires_at - services.configuration.runs.lease, services.clock())


def end_of(services: Services, attempt: Attempt, pod: PodState, seen_at: datetime) -> datetime:
    """When a pod that is over ended: as it tells itself, otherwise the last moment that it is known to have run.

    That is ``seen_at``, when it was looked after, or its trainer's last word: hours later, where nobody looked.
    """
    if pod.finished_at is not None:
        return pod.finished_at
    try:
        last_word = last_word_at(services, attempt)
    except SpillwayError:
        last_word = None  # the store may be what was lost
    return max(at for at in (seen_at, last_word, attempt.started_at) if at is not None)


def last_word_at(services: Services, attempt: Attempt) -> datetime | None:
    """When the attempt's trainer last told of its progress, which it does with its last checkpoint, too."""
    progress = read_progress(services.checkpoints(attempt), attempt.run, attempt.number)
    return told_at(progress.at, services.clock()) if progress else None


def told_at(moment: str | None, now: datetime) -> datetime | None:
    """The moment that a trainer tells, no later than now; None where it tells none."""
    try:
        return min(datetime.fromisoformat(moment or "").astimezone(UTC), now)
    except ValueError:
        return None


def resume_problem(attempt: Attempt) -> ResumeMismatch | None:
    """The error of an attempt whose first step is not its resume step + 1."""
    if attempt.first_step is None or attempt.first_step == attempt.expected_first_step:
        return None
    return ResumeMismatch(attempt.run, resumed_from_step=attempt.resumed_from_step, first_step=attempt.first_step)


def progress_facts(progress: Progress) -> AttemptFacts:
    """What the trainer's own account of its progress adds to the attempt."""
    facts: AttemptFacts = {"first_step": progress.first_step, "last_step": progress.step}
    if progress.durable_step is not None and progress.durable_step >= progress.first_step:
        facts["committed_step"] = progress.durable_step
    return facts


def _known_progress(services: Services, attempt: Attempt) -> AttemptFacts:
    """The steps that the attempt is known to have run and committed, from the store that it wrote to.

    And when it started, where its pod has come and gone while nobody looked.
    """
    if attempt.pod_uid is None:
        return {}
    try:
        bucket = services.checkpoints(attempt)
        progress = read_progress(bucket, attempt.run, attempt.number)
        head = CheckpointStore(bucket, attempt.run).head()
    except SpillwayError:
        # The store may be what was lost; what is unknown stays unknown.
        return {}
    facts = progress_facts(progress) if progress is not None else AttemptFacts()
    if progress is not None and attempt.started_at is None:
        began_at = told_at(progress.began_at, services.clock())
        if began_at is not None:
            facts |= {"started_at": began_at, "price_per_gpu_hour": _price_from(services, attempt, began_at)}
    committed = [entry.step for entry in head.committed if entry.attempt == attempt.number] if head else []
    if committed:
        # The progress object is written after the commit, so it may be one commit behind.
        facts["committed_step"] = max(committed)
        facts["last_step"] = max(*committed, facts.get("last_step") or 0)
    return facts


def book_cost(services: Services, attempt: Attempt, ended_at: datetime) -> CostEntry | None:
    """Book the attempt's GPU-hours once, whatever is repeated; None where no pod ran or no price is known."""
    entry = cost_until(services, attempt, ended_at)
    return None if entry is None else services.ledger.book(replace(entry, utilisation=_utilisation(services, attempt)))


def cost_until(services: Services, attempt: Attempt, ended_at: datetime) -> CostEntry | None:
    """What the attempt's GPU-hours come to that ended then, or still runs; None where no pod ran or no price is known.

    They cost what was declared when the attempt was placed there, whatever was declared since.
    """
    candidate, job = attempt.candidate, attempt.job
    cluster = services.configuration.clusters.get(candidate.cluster)
    pool = cluster.find_pool(candidate.pool) if cluster else None
    price, fixed = attempt.price_per_gpu_hour, attempt.fixed_cost_per_gpu_month
    if price is None and pool is not None:
        price = hourly_price(pool, candidate.billing)
    if fixed is None and pool is not None:
        fixed = monthly_fixed_cost(pool, candidate.billing)
    if attempt.pod_uid is None or attempt.started_at is None or price is None:
        return None
    ended_at = max(attempt.started_at, ended_at)
    return CostEntry(
        cluster=candidate.cluster,
        pool=candidate.pool,
        pod_uid=attempt.pod_uid,
        attempt=attempt.label,
        department=job.department,
        business_scene=job.business_scene,
        job=job.name,
        billing=candidate.billing,
        gpus=job.gpus,
        cores=job.cores_paid,
        gpu_hours=gpu_hours(job.gpus, attempt.started_at, ended_at),
        price_per_gpu_hour=price,
        fixed_cost_per_gpu_month=fixed or Decimal(0),
        amount=cost(job.priced_units, attempt.started_at, ended_at, price),
        reserved_at=attempt.reserved_at,
        started_at=attempt.started_at,
        ended_at=ended_at,
    )


def _utilisation(services: Services, attempt: Attempt) -> Decimal | None:
    """How busy the attempt's GPUs were, as its newest checkpoint tells; None where its trainer measures nothing."""
    try:
        store = CheckpointStore(services.checkpoints(attempt), attempt.run)
        head = store.head()
        newest = next((e for e in reversed(head.committed) if e.attempt == attempt.number), None) if head else None
        told = store.manifest(newest).metrics.get(GPU_UTILISATION) if newest else None
    except SpillwayError:
        return None
    measured = isinstance(told, (int, float)) and not isinstance(told, bool) and 0 <= told <= 1
    return Decimal(str(told)) if measured else None
