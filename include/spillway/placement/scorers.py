"""The terms of the score, each in [0, 1] and 1 best; their weights are policy."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import lru_cache

from spillway.deadlines import Pace
from spillway.model import Billing, Candidate, JobSpec, SecondChoice, SiteKind
from spillway.placement.context import Context
from spillway.placement.costs import costs
from spillway.placement.deadline import stand

Scorer = Callable[[JobSpec, Candidate, Context], float]

HIGH_PERFORMANCE_GPUS = ("GB300", "GB200", "B300", "B200", "H200", "H100")
"""A pool whose GPU model contains one of these is a high-performance pool."""


@lru_cache(maxsize=1000)
def is_fast(gpu_model: str | None) -> bool:
    """Whether it is of a high-performance pool."""
    return gpu_model is not None and any(name in gpu_model.upper() for name in HIGH_PERFORMANCE_GPUS)


def qos(job: JobSpec, candidate: Candidate, context: Context) -> float:
    """How well the place suits the priority: 1 its first choice, 0.5 its second, 0 any other.

    On-premises is everybody's first choice, the second is that of the policy. For a job with a deadline it is spot
    while that can be met, and then anything but spot. Who takes spot takes what is reserved and paid for as gladly.
    """
    if context.cluster(candidate).kind is SiteKind.ONPREM:
        return 1.0
    spot = candidate.billing is Billing.SPOT
    stands = stand(job, context)
    if stands is Pace.LATE:
        return 0.0 if spot else 0.5
    if stands is None and context.policy.second_choice[job.priority] is SecondChoice.HIGH_PERFORMANCE:
        return 0.5 if not spot and is_fast(context.pool(candidate).gpu_model) else 0.0
    return 0.5 if spot or context.pool(candidate).is_paid(candidate.billing) else 0.0


def cost(job: JobSpec, candidate: Candidate, context: Context) -> float:
    """1 for free, 0 for the dearest candidate, and linear between: a price of 0 needs no division by it.

    The price is that of a GPU-hour with the transfer of the job's data in it; where that is unknown the place counts as
    the dearest.
    """
    known = costs(job, context)
    full = known.full_price(job, candidate, context)
    if full is None or full > known.dearest:  # above it is only what has another unit
        return 0.0
    return float(1 - full / known.dearest) if known.dearest else 1.0


def affinity(job: JobSpec, candidate: Candidate, context: Context) -> float:
    """1 where what the job reads of its dataset is verified to be whole at the site, or the job has none."""
    site = context.cluster(candidate)
    return float(all(context.snapshot.has(use, site) for use in job.datasets))


SCORERS: Mapping[str, Scorer] = {"qos": qos, "cost": cost, "affinity": affinity}
