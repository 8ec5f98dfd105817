"""Why a candidate is out. Every filter is asked, so that the table shows all that would have to change.

A rejection ``waits`` where time alone can lift it; what the declared facts rule out never passes by waiting.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from operator import attrgetter

from spillway.model import Candidate, JobSpec, Rejection
from spillway.placement.access import cloud_access
from spillway.placement.context import Context
from spillway.placement.deadline import early_enough
from spillway.placement.filters import (
    budget,
    cool_down,
    declared_maximum,
    destination,
    driver,
    interruption,
    latency,
    most_paid,
    node_shape,
    price,
    quota,
    residency,
    room,
    unreachable,
)
from spillway.placement.gpus import cpu_work, gpu_memory, gpu_model, gpu_share
from spillway.placement.holding import HOLD, hold
from spillway.placement.offpeak import off_peak
from spillway.placement.queueing import ROOM, head_of_line
from spillway.placement.reserved import reserved

RULES = 2
"""Which rules these are: raised with whatever lets equal inputs come to another decision, or to other words of it.

A decision that is stored is only taken again by the rules that took it.
"""

Filter = Callable[[JobSpec, Candidate, Context], Rejection | None]

FILTERS: tuple[Filter, ...] = (
    destination,
    gpu_model,
    gpu_memory,
    gpu_share,
    cpu_work,
    node_shape,
    declared_maximum,
    residency,
    latency,
    interruption,
    early_enough,
    off_peak,
    hold,
    reserved,
    price,
    most_paid,
    cloud_access,
    quota,
    budget,
    unreachable,
    cool_down,
    driver,
    room,
    head_of_line,
)


OF_CLUSTER: tuple[Filter, ...] = (residency, latency, quota)
"""Those that say the same of every candidate of a cluster."""

BY_BILLING: tuple[Filter, ...] = (
    destination,
    interruption,
    early_enough,
    off_peak,
    hold,
    reserved,
    price,
    most_paid,
    cloud_access,
    budget,
)
"""Those that look at the billing."""

OF_QUEUE: tuple[Filter, ...] = (head_of_line,)
"""Those that look at other runs, which takes the longest."""

OF_POOL: tuple[Filter, ...] = tuple(check for check in FILTERS if check not in {*OF_CLUSTER, *BY_BILLING, *OF_QUEUE})
"""The others; they and those of the queue say the same of every candidate of a pool."""


BY_CHOICE = frozenset({"deadline", "off-peak", HOLD})
"""The rules that say that the job had better wait, and not that it has to."""

SHAPE = ("gpu_model", "gpu_memory_gib", "gpu_fraction", "gpus_per_node", "nodes", "cpu_cores", "memory_gib", "image")
"""All that the filters of ``OF_POOL`` read of a job: jobs that are equal in it are told the same by them."""

_shape = attrgetter(*SHAPE)

Bears = Callable[[Rejection], bool]
"""Which rejections do not count for whoever asks."""


def nothing(rejection: Rejection) -> bool:
    """For who wants a place now."""
    return False


def lack_of_room(rejection: Rejection) -> bool:
    """For who wants to queue."""
    return rejection.rule in ROOM


def what_passes(rejection: Rejection) -> bool:
    """For who wants to know whether it pays to wait."""
    return rejection.waits


def choice(rejection: Rejection) -> bool:
    """For who wants to know where the job could begin now, and waits because it may."""
    return rejection.rule in BY_CHOICE


def left(job: JobSpec, context: Context, bears: Bears) -> Iterator[Candidate]:
    """The candidates against which nothing speaks but what is borne, by name; others that wait are left out of it.

    A place is asked no more as soon as one filter speaks against it, and a pool once for all jobs of a shape.
    """
    for of_cluster in context.once((bears, _shape(job)), partial(_suitable, job, context, bears)):
        if passes(OF_CLUSTER, job, of_cluster[0][0], context, bears):
            for of_pool in of_cluster:
                for candidate in of_pool:
                    if passes(BY_BILLING, job, candidate, context, bears):
                        yield candidate


def _suitable(job: JobSpec, context: Context, bears: Bears) -> tuple[tuple[tuple[Candidate, ...], ...], ...]:
    """The offers of pools that bear jobs of this shape, without clusters that have none."""
    by_cluster = (
        tuple(of_pool for of_pool in of_cluster if passes(OF_POOL, job, of_pool[0], context, bears))
        for of_cluster in context.offers
    )
    return tuple(of_cluster for of_cluster in by_cluster if of_cluster)


def passes(
    checks: tuple[Filter, ...], job: JobSpec, candidate: Candidate, context: Context, bears: Bears = nothing
) -> bool:
    """Whether none of these speaks against the candidate but what is borne; the first that does is asked last."""
    for check in checks:
        rejection = check(job, candidate, context)
        if rejection is not None and not bears(rejection):
            return False
    return True


def rejections(
    job: JobSpec, of_pool: tuple[Candidate, ...], context: Context
) -> Iterator[tuple[Candidate, tuple[Rejection, ...]]]:
    """Every reason against each candidate of a pool, in the order of ``FILTERS``."""
    shared = {check: check(job, of_pool[0], context) for check in FILTERS if check not in BY_BILLING}
    for candidate in of_pool:
        found = (shared[check] if check in shared else check(job, candidate, context) for check in FILTERS)
        yield candidate, tuple(rejection for rejection in found if rejection is not None)
