"""Why a candidate is out. Every filter is asked, so that the table shows all that would have to change.

A rejection ``waits`` where time alone can lift it; what the declared facts rule out never passes by waiting.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

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
from spillway.placement.gpus import gpu_memory, gpu_model, gpu_share
from spillway.placement.queueing import ROOM, head_of_line

Filter = Callable[[JobSpec, Candidate, Context], Rejection | None]

FILTERS: tuple[Filter, ...] = (
    destination,
    gpu_model,
    gpu_memory,
    gpu_share,
    node_shape,
    declared_maximum,
    residency,
    latency,
    interruption,
    early_enough,
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

BY_BILLING: tuple[Filter, ...] = (destination, interruption, early_enough, price, most_paid, cloud_access, budget)
"""Those that look at the billing."""

OF_QUEUE: tuple[Filter, ...] = (head_of_line,)
"""Those that look at other runs, which takes the longest."""

OF_POOL: tuple[Filter, ...] = tuple(check for check in FILTERS if check not in {*OF_CLUSTER, *BY_BILLING, *OF_QUEUE})
"""The others; they and those of the queue say the same of every candidate of a pool."""


def passes(checks: tuple[Filter, ...], job: JobSpec, candidate: Candidate, context: Context) -> bool:
    """Whether none of these speaks against the candidate; the first one that does is the last one asked."""
    for check in checks:  # noqa: SIM110 - a generator would take a third more, hundreds of times a decision
        if check(job, candidate, context) is not None:
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


def may_wait(job: JobSpec, candidate: Candidate, context: Context) -> bool:
    """Whether time alone may lift all that speaks against the candidate."""
    found = (check(job, candidate, context) for check in FILTERS)
    return all(rejection is None or rejection.waits for rejection in found)


def lacks_only_room(job: JobSpec, candidate: Candidate, context: Context) -> bool:
    """Whether only room, or whoever waits for it too, speaks against the candidate."""
    found = (check(job, candidate, context) for check in FILTERS if check not in OF_QUEUE)
    return all(rejection is None or rejection.rule in ROOM for rejection in found)
