"""Why a candidate is out. Every filter is asked, so that the table shows all that would have to change.

A rejection ``waits`` where time alone can lift it; what the declared facts rule out never passes by waiting.
"""

from __future__ import annotations

from collections.abc import Callable

from spillway.model import Billing, Candidate, JobSpec, NodePool, Rejection, SiteKind, Tier
from spillway.placement.context import Context

Filter = Callable[[JobSpec, Candidate, Context], Rejection | None]

WAITING_FOR_NODES = "waiting-for-nodes"
"""The rule of a pool that would have room if more of its declared nodes ran: the demand that a scaler answers."""


def rejections(job: JobSpec, candidate: Candidate, context: Context) -> tuple[Rejection, ...]:
    """Every reason against the candidate, in the order of ``FILTERS``."""
    found = (check(job, candidate, context) for check in FILTERS)
    return tuple(rejection for rejection in found if rejection is not None)


def gpu_model(job: JobSpec, candidate: Candidate, context: Context) -> Rejection | None:
    pool = context.pool(candidate)
    if job.gpu_model in {None, pool.gpu_model}:
        return None
    return _never("gpu-model", f"needs {job.gpu_model}, the pool has {pool.gpu_model}")


def gpu_memory(job: JobSpec, candidate: Candidate, context: Context) -> Rejection | None:
    pool = context.pool(candidate)
    if job.gpu_memory_gib <= pool.gpu_memory_gib:
        return None
    return _never("gpu-memory", f"needs {job.gpu_memory_gib} GiB a GPU, the pool's have {pool.gpu_memory_gib}")


def node_shape(job: JobSpec, candidate: Candidate, context: Context) -> Rejection | None:
    pool = context.pool(candidate)
    if _pods_a_node(job, pool) > 0:
        return None
    if job.gpus_per_node < 1 or job.nodes < 1:
        return _never("node-shape", f"needs at least 1 node with 1 GPU, asks for {job.nodes} with {job.gpus_per_node}")
    return _never("node-shape", f"needs {job.gpus_per_node} GPUs on one node, the pool's have {pool.gpus_per_node}")


def declared_maximum(job: JobSpec, candidate: Candidate, context: Context) -> Rejection | None:
    pool = context.pool(candidate)
    most = pool.max_nodes * _pods_a_node(job, pool)
    if most == 0 or job.nodes <= most:
        return None
    return _never(
        "declared-maximum",
        f"needs {job.nodes} x {job.gpus_per_node} GPUs, the pool never has more than "
        f"{pool.max_nodes} x {pool.gpus_per_node}",
    )


def residency(job: JobSpec, candidate: Candidate, context: Context) -> Rejection | None:
    allowed = context.cluster(candidate).residency
    # A site that may store core data may store any.
    if job.tier in allowed or Tier.CORE in allowed:
        return None
    return _never(
        "residency", f"its data is of tier {job.tier}, the site may store {', '.join(sorted(allowed)) or 'none'}"
    )


def latency(job: JobSpec, candidate: Candidate, context: Context) -> Rejection | None:
    if not job.latency_sensitive or context.cluster(candidate).kind is SiteKind.ONPREM:
        return None
    return _never("latency", "is latency-sensitive, which only on-premises serves")


def interruption(job: JobSpec, candidate: Candidate, context: Context) -> Rejection | None:
    if job.spot_ok or candidate.billing is not Billing.SPOT:
        return None
    return _never("interruption", "may not be interrupted (spot_ok is false)")


def price(job: JobSpec, candidate: Candidate, context: Context) -> Rejection | None:
    if candidate in context.prices:
        return None
    declared = context.pool(candidate).prices_per_gpu_hour.get(candidate.billing)
    return _never("price", f"no price to compare: {'none is declared' if declared is None else f'{declared} declared'}")


def quota(job: JobSpec, candidate: Candidate, context: Context) -> Rejection | None:
    kind = context.cluster(candidate).kind
    gpus = context.quotas[kind]
    if job.department not in gpus.own:
        known = ", ".join(sorted(gpus.own)) or "none"
        return _never("quota", f"department '{job.department}' has no quota; departments with one: {known}")
    most = gpus.most(job.department)
    if job.gpus > most:
        return _never(
            "quota",
            f"needs {job.gpus} GPUs, '{job.department}' never has more than {most} {kind} "
            f"({gpus.own[job.department]} of its own, {gpus.rest} shared)",
        )
    available = gpus.available(job.department, context.used[kind])
    if job.gpus <= available:
        return None
    return _waits("quota", f"needs {job.gpus} GPUs, '{job.department}' has {available} of {most} {kind} left")


def unreachable(job: JobSpec, candidate: Candidate, context: Context) -> Rejection | None:
    if (candidate.cluster, candidate.pool) in context.capacities:
        return None
    cause = context.snapshot.unreachable.get(candidate.cluster, "it was not observed")
    return _waits("unreachable", f"the cluster cannot be seen: {cause}")


def cool_down(job: JobSpec, candidate: Candidate, context: Context) -> Rejection | None:
    snapshot = context.snapshot
    cooling = [
        place
        for place in snapshot.cool_downs
        if (place.cluster, place.pool) == (candidate.cluster, candidate.pool) and place.until > snapshot.taken_at
    ]
    if not cooling:
        return None
    last = max(cooling, key=lambda place: (place.until, place.reason))
    return _waits("cool-down", f"is avoided until {last.until.isoformat(timespec='seconds')}: {last.reason}")


def room(job: JobSpec, candidate: Candidate, context: Context) -> Rejection | None:
    """Whether all nodes of the gang fit now, each on one node; silent where shape or sight already rule it out."""
    capacity = context.capacities.get((candidate.cluster, candidate.pool))
    pods_a_node = _pods_a_node(job, context.pool(candidate))
    if capacity is None or pods_a_node == 0:
        return None
    now = capacity.blocks(job.gpus_per_node)
    if now >= job.nodes:
        return None
    if now + capacity.nodes_to_add * pods_a_node >= job.nodes:
        return _waits(WAITING_FOR_NODES, f"waiting for nodes in pool {candidate.pool}")
    return _waits(
        "full",
        f"needs {job.nodes} x {job.gpus_per_node} GPUs, {now} of them fit now; "
        f"the largest free block is {capacity.largest_block}",
    )


FILTERS: tuple[Filter, ...] = (
    gpu_model,
    gpu_memory,
    node_shape,
    declared_maximum,
    residency,
    latency,
    interruption,
    price,
    quota,
    unreachable,
    cool_down,
    room,
)


def _pods_a_node(job: JobSpec, pool: NodePool) -> int:
    """How many of the job's pods an empty node takes; 0 where the job is no positive number of GPUs and nodes."""
    return pool.gpus_per_node // job.gpus_per_node if job.gpus_per_node > 0 and job.nodes > 0 else 0


def _never(rule: str, reason: str) -> Rejection:
    return Rejection(rule=rule, reason=reason, waits=False)


def _waits(rule: str, reason: str) -> Rejection:
    return Rejection(rule=rule, reason=reason, waits=True)
