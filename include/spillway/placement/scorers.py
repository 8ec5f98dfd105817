"""The terms of the score, each in [0, 1] and 1 best; their weights are policy."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from spillway.model import Billing, Candidate, JobSpec, Priority, SiteKind
from spillway.placement.context import Context

Scorer = Callable[[JobSpec, Candidate, Context], float]

UPPER_PRIORITIES = frozenset({Priority.PRODUCTION_CORE, Priority.PRODUCTION_REGULAR, Priority.CUSTOMER_SERVICE})
"""These go to fast GPUs where local is full; the lower ones go to spot."""

HIGH_PERFORMANCE_GPUS = ("GB300", "GB200", "B300", "B200", "H200", "H100")
"""A pool whose GPU model contains one of these is a high-performance pool."""


def qos(job: JobSpec, candidate: Candidate, context: Context) -> float:
    """How well the place suits the priority: 1 its first choice, 0.5 its second, 0 any other.

    On-premises is everybody's first choice. The second is a high-performance cloud pool that nobody reclaims for the
    upper priorities, and spot for the lower ones.
    """
    if context.cluster(candidate).kind is SiteKind.ONPREM:
        return 1.0
    spot = candidate.billing is Billing.SPOT
    if job.priority in UPPER_PRIORITIES:
        model = context.pool(candidate).gpu_model.upper()
        fast = any(name in model for name in HIGH_PERFORMANCE_GPUS)
        return 0.5 if fast and not spot else 0.0
    return 0.5 if spot else 0.0


def cost(job: JobSpec, candidate: Candidate, context: Context) -> float:
    """1 for free, 0 for the dearest candidate, and linear between: a price of 0 needs no division by it."""
    price = context.prices[candidate]
    dearest = max(context.prices.values())
    return float(1 - price / dearest) if dearest else 1.0


def affinity(job: JobSpec, candidate: Candidate, context: Context) -> float:
    """1 where the job's dataset is verified to be whole at the site, or the job has none."""
    return float(job.dataset is None or (job.dataset, candidate.cluster) in context.snapshot.datasets_present)


SCORERS: Mapping[str, Scorer] = {"qos": qos, "cost": cost, "affinity": affinity}
