"""What a deadline says of a place: on-demand is not bought while the job is early enough to wait for spot."""

from __future__ import annotations

from datetime import timedelta

from spillway.deadlines import Pace, pace
from spillway.model import Billing, Candidate, JobSpec, Rejection, Schedule
from spillway.placement.access import cloud_access
from spillway.placement.context import Context
from spillway.placement.costs import transfer_to
from spillway.placement.filters import (
    declared_maximum,
    latency,
    most_paid,
    node_shape,
    residency,
    waits,
)
from spillway.placement.gpus import cpu_work, gpu_memory, gpu_model, gpu_share

SUITS = (
    gpu_model,
    gpu_memory,
    gpu_share,
    cpu_work,
    node_shape,
    declared_maximum,
    residency,
    latency,
    most_paid,
    cloud_access,
)


def stand(job: JobSpec, context: Context) -> Pace | None:
    """How the job stands with its deadline; None where it has none."""
    schedule = context.snapshot.schedule
    if schedule is None:
        return None

    def worked_out() -> Pace:
        return pace(schedule, context.snapshot.taken_at, move=_to_on_demand(job, schedule, context))

    return context.once_for_job("pace", worked_out)


def _to_on_demand(job: JobSpec, schedule: Schedule, context: Context) -> timedelta:
    """How long the job's data takes to the nearest place where it can be bought on-demand; unknown is a restart."""
    clusters = {c.cluster for c in context.prices if _suits(job, c, context, Billing.ON_DEMAND)}
    moved = [transfer for cluster in clusters if (transfer := transfer_to(job, cluster, context)) is not None]
    return min((schedule.restart if t.duration is None else t.duration for t in moved), default=timedelta())


def early_enough(job: JobSpec, candidate: Candidate, context: Context) -> Rejection | None:
    """Whether it is too early to pay for on-demand; no job is that no spot suits, or that is ordered there.

    An order off spot is one of these, too.
    """
    schedule, ordered = context.snapshot.schedule, context.snapshot.destination
    if ordered is not None and (ordered.cluster is not None or not ordered.spot):
        return None
    if schedule is None or candidate.billing is not Billing.ON_DEMAND or stand(job, context) is not Pace.AHEAD:
        return None
    if not job.spot_ok or not any(_suits(job, other, context, Billing.SPOT) for other in context.prices):
        return None
    return waits(
        "deadline",
        f"has {schedule.work_left} to train until {schedule.deadline.isoformat(timespec='seconds')}, "
        "which is time enough to wait for spot",
    )


def _suits(job: JobSpec, candidate: Candidate, context: Context, billing: Billing) -> bool:
    return candidate.billing is billing and all(check(job, candidate, context) is None for check in SUITS)
