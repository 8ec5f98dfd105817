"""What may speak against a candidate, a function each; ``rules`` has them in their order."""

from __future__ import annotations

from collections.abc import Mapping
from decimal import Decimal
from functools import lru_cache, partial

from spillway.budget import cost_within, month_in
from spillway.errors.counts import counted
from spillway.images.environment import Environment
from spillway.images.reference import ImageReference
from spillway.model import Billing, BudgetState, Candidate, JobSpec, Rejection, Tier
from spillway.placement.capacity import Room, empty_node, need_of
from spillway.placement.context import Context
from spillway.placement.drivers import driver_problem
from spillway.pricing import hourly_price, monthly_fixed_cost

WAITING_FOR_NODES = "waiting-for-nodes"
"""The rule of a pool that would have room if more of its declared nodes ran: the demand that a scaler answers."""

FULL = "full"
"""The rule of a pool that has no room now."""

MISCONFIGURED = "misconfigured"
"""The rule of a cluster that no client could be made for: a person lifts it, not time."""


def destination(job: JobSpec, candidate: Candidate, context: Context) -> Rejection | None:
    wanted = context.snapshot.destination
    if wanted is None or wanted.allows(candidate):
        return None
    here = candidate == wanted.leaving
    return never("destination", "is where the run is" if here else f"the run is ordered to {wanted}")


def node_shape(job: JobSpec, candidate: Candidate, context: Context) -> Rejection | None:
    pool = context.pool(candidate)
    if _pods_a_node(job, candidate, context) > 0 or (job.gpus_per_node == 0 < pool.gpus_per_node):
        return None
    if job.gpus_per_node < 0 or job.nodes < 1:
        return never("node-shape", f"needs at least 1 node, asks for {job.nodes} with {job.gpus_per_node} GPUs")
    if job.gpus_per_node <= pool.gpus_per_node:
        return never(
            "node-shape",
            f"needs {_beside_gpus(_pod(job, context))} a node, the pool's have {_beside_gpus(empty_node(pool))}",
        )
    needs = counted(job.gpus_per_node, "GPU")
    return never("node-shape", f"needs {needs} on one node, the pool's have {pool.gpus_per_node}")


def declared_maximum(job: JobSpec, candidate: Candidate, context: Context) -> Rejection | None:
    pool = context.pool(candidate)
    most = pool.max_nodes * _pods_a_node(job, candidate, context)
    if most == 0 or job.nodes <= most:
        return None
    return never(
        "declared-maximum",
        f"needs {job.shape_in_words}, the pool never has more than "
        f"{pool.max_nodes} x {pool.gpus_per_node or empty_node(pool).cores}",
    )


def residency(job: JobSpec, candidate: Candidate, context: Context) -> Rejection | None:
    cluster = context.cluster(candidate)
    stored = ", ".join(sorted(cluster.residency)) or "none"
    if not cluster.may_hold(job.tier) and not _read_from_afar(job, context):
        problem = f"its data is of tier {job.tier}, the site may store {stored}"
        return never("residency", f"{problem}{_beside(job, context)}")
    if job.reads_a_part and cluster.may_hold(Tier.CORE) and cluster.object_store.public_pod_connection is None:
        problem = (
            "it reads a public part alone, and the site, where core data is, names no public_pod_connection for it"
        )
        return never("residency", problem)
    if not cluster.may_hold(job.image_made_of):
        made = "made of its data, as no `image_tier: public` denies"
        return never("residency", f"its image is of tier {job.image_made_of}, {made}; the site may store {stored}")
    why = context.snapshot.core_images.get(job.image)
    if why is None or cluster.may_hold(Tier.CORE):
        return None
    return never("residency", f"its image {job.image} counts as core, the site may store {stored}: {why}")


def _read_from_afar(job: JobSpec, context: Context) -> bool:
    """Whether its pods may read its data at home: one store is all that a pod works with, so it is of one dataset."""
    facts = [context.snapshot.datasets.get(use.name) for use in job.datasets]
    return len(facts) == 1 and facts[0] is not None and facts[0].remote_read


def _beside(job: JobSpec, context: Context) -> str:
    """What else there is to know of a job whose data may not be stored at a site."""
    if not job.datasets:
        return "; without a dataset, core is what no `tier:` means" if job.tier is Tier.CORE else ""
    if len(job.datasets) == 1:
        return ""
    homes = {use.name: context.snapshot.datasets.get(use.name) for use in job.datasets}
    told = ", ".join(f"{name} of {facts.home if facts else 'a home nobody knows'}" for name, facts in homes.items())
    return f"; it reads {told}, and over the link a job reads one dataset alone"


def latency(job: JobSpec, candidate: Candidate, context: Context) -> Rejection | None:
    cluster = context.cluster(candidate)
    if not job.latency_sensitive or cluster.is_low_latency:
        return None
    why = (
        "is declared as `low_latency: false`"
        if cluster.low_latency is False
        else "is a cloud site not declared low_latency"
    )
    return never("latency", f"is latency-sensitive, and {cluster.name} {why}")


def interruption(job: JobSpec, candidate: Candidate, context: Context) -> Rejection | None:
    if job.spot_ok or candidate.billing is not Billing.SPOT:
        return None
    return never("interruption", "may not be interrupted (spot_ok is false)")


def price(job: JobSpec, candidate: Candidate, context: Context) -> Rejection | None:
    if candidate in context.prices:
        return None
    pool = context.pool(candidate)
    declared = pool.prices_per_hour.get(candidate.billing)
    if hourly_price(pool, candidate.billing) is not None:
        most = context.policy.price_max_age
        age = "nobody says of which day" if pool.prices_as_of is None else f"of {pool.prices_as_of:%Y-%m-%d}"
        return never("price", f"{declared} is {age} (prices_as_of), and no older than {most} is believed")
    return never("price", f"no price to compare: {'none is declared' if declared is None else f'{declared} declared'}")


def most_paid(job: JobSpec, candidate: Candidate, context: Context) -> Rejection | None:
    most = job.max_price_per_gpu_hour
    asked = None if most is None else context.price(job, candidate)
    if most is None or asked is None or asked <= most:
        return None
    reason = f"costs {asked} a GPU-hour, the job pays at most {most}"
    if context.lowest_price(job, candidate, asked) > most:
        return never("max-price", reason)
    return waits("max-price", f"{reason}, which off-peak hours do not exceed")


def quota(job: JobSpec, candidate: Candidate, context: Context) -> Rejection | None:
    kind = context.cluster(candidate).kind
    gpus = context.quotas[kind]
    if job.department not in gpus.own:
        known = ", ".join(sorted(gpus.own)) or "none"
        return never("quota", f"department '{job.department}' has no quota; departments with one: {known}")
    borrowing = context.policy.borrowing and job.spot_ok
    most = gpus.most(job.department, borrowing=borrowing)
    if job.gpus > most:
        return never(
            "quota",
            f"needs {counted(job.gpus, 'GPU')}, '{job.department}' never has more than {most} at {kind} "
            f"({gpus.own[job.department]} of its own, {gpus.rest} shared{', the rest lent' if borrowing else ''})",
        )
    available = context.once(
        ("available", kind, job.department, borrowing),
        lambda: gpus.available(job.department, context.used[kind], borrowing=borrowing),
    )
    if job.gpus <= available:
        return None
    left = f"{available.normalize():f} of {counted(most, 'GPU')} at {kind} left"
    return waits("quota", f"needs {counted(job.gpus, 'GPU')}, '{job.department}' has {left}")


def budget(job: JobSpec, candidate: Candidate, context: Context) -> Rejection | None:
    """Whether every month in which the job would run bears it; only bought GPUs are paid from budgets."""
    budgets = context.snapshot.budgets
    price_an_hour = context.price(job, candidate) if budgets and candidate.billing.bought else None
    if price_an_hour is None:
        return None
    now, fixed = context.snapshot.taken_at, monthly_fixed_cost(context.pool(candidate), candidate.billing)
    for state in budgets:
        if state.doubt is not None:
            return waits("budget", f"the month is not known: {state.doubt}")
        end = now + job.expected_duration if job.expected_duration else state.ends_at
        bill = partial(cost_within, month_in(state), job.priced_units, now, end, fixed=fixed)
        cost = bill(price=price_an_hour)
        if cost > state.left:
            # Of a job that says no duration this month's part gets less while it waits, the whole next month does not.
            lasting = job.expected_duration is not None or state.starts_at > now
            least = bill(price=context.lowest_price(job, candidate, price_an_hour))
            rejected = never if lasting and least > state.limit else waits
            return rejected("budget", _over_budget(job, state, cost))
    return None


def _over_budget(job: JobSpec, state: BudgetState, cost: Decimal) -> str:
    unsaid = "" if job.expected_duration else " until the month ends, as it says no expected_duration"
    return (
        f"would cost {cost:.2f} in {state.month}{unsaid}; '{state.department}' has {max(state.left, Decimal(0)):.2f} "
        f"left of {state.limit:.2f} (booked {state.booked:.2f}, reserved {state.reserved:.2f})"
    )


def unreachable(job: JobSpec, candidate: Candidate, context: Context) -> Rejection | None:
    if (candidate.cluster, candidate.pool) in context.capacities:
        return None
    cause = context.snapshot.unreachable.get(candidate.cluster, "it was not observed")
    if candidate.cluster in context.snapshot.misconfigured:
        return waits(MISCONFIGURED, f"cannot be asked until this is corrected: {cause}")
    return waits("unreachable", f"the cluster cannot be seen: {cause}")


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
    return waits("cool-down", f"is avoided until {last.until.isoformat(timespec='seconds')}: {last.reason}")


def driver(job: JobSpec, candidate: Candidate, context: Context) -> Rejection | None:
    """Whether a node's driver runs the CUDA that the image's tag names; nodes without labels may."""
    problems, nodes = too_old(job.image, (candidate.cluster, candidate.pool), context), context.nodes(candidate)
    if not problems or len(problems) < len(nodes):
        return None
    return waits("driver", f"{next(iter(problems.values()))}; no other of the pool's {len(nodes)} nodes does better")


def room(job: JobSpec, candidate: Candidate, context: Context) -> Rejection | None:
    """Whether all nodes of the gang fit now, each on one node; silent where shape or sight already rule it out.

    Nodes whose driver is too old count for nothing, unless all are: then ``driver`` says so.
    """
    capacity = context.capacities.get((candidate.cluster, candidate.pool))
    pods_a_node = _pods_a_node(job, candidate, context)
    if capacity is None or pods_a_node == 0:
        return None
    left_out = too_old(job.image, (candidate.cluster, candidate.pool), context)
    if len(left_out) < len(context.nodes(candidate)):
        capacity = capacity.without(left_out)
    pod = _pod(job, context)
    now = capacity.blocks(pod)
    if now >= job.nodes:
        return None
    if now + capacity.nodes_to_add * pods_a_node >= job.nodes:
        return waits(WAITING_FOR_NODES, f"waiting for nodes in pool {candidate.pool}")
    unfit = f" (nodes with too old a driver left out: {', '.join(sorted(left_out))})" if left_out else ""
    by_gpus = capacity.blocks(Room(job.gpus_per_node)) if job.gpus_per_node else 0
    if not job.gpus_per_node:
        short = f"each takes {_beside_gpus(pod)} of one node"
    elif by_gpus >= job.nodes:
        short = f"{by_gpus} by GPUs alone, but each needs {_beside_gpus(pod)} beside them"
    else:
        short = f"the largest free block is {capacity.largest_block}"
    return waits(FULL, f"needs {job.shape_in_words}, {now} of them fit now{unfit}; {short}")


def too_old(image: str, place: tuple[str, str], context: Context) -> Mapping[str, str]:
    """Why nodes of the (cluster, pool) cannot run the CUDA that the image's tag names, by their names."""
    cuda = _cuda_of(image)
    if cuda is None:
        return {}

    def problems() -> Mapping[str, str]:
        found = ((node.name, driver_problem(cuda, node)) for node in context.pool_nodes.get(place, ()))
        return {name: problem for name, problem in found if problem is not None}

    return context.once(("driver", cuda, place), problems)


@lru_cache(maxsize=1000)
def _cuda_of(image: str) -> str | None:
    return Environment.of_tag(ImageReference.parse(image).tag).cuda


def _pod(job: JobSpec, context: Context) -> Room:
    """What each pod of the job needs of its node."""
    return context.once(("pod", job.gpus_per_node, job.cpu_cores, job.memory_gib), lambda: need_of(job))


def _pods_a_node(job: JobSpec, candidate: Candidate, context: Context) -> int:
    """How many of the job's pods an empty node takes; 0 where the job has less than no GPUs or no nodes."""
    if job.gpus_per_node < 0 or job.nodes < 1:
        return 0
    pod = _pod(job, context)
    key = ("pods", candidate.cluster, candidate.pool, pod)
    return context.once(key, lambda: empty_node(context.pool(candidate)).times(pod))


def _beside_gpus(room: Room) -> str:
    """Cores and memory, as far as they are said."""
    memory = "?" if room.memory_mib is None else f"{room.memory_mib / 1024:g}"
    return f"{room.cores} cores and {memory} GiB"


def never(rule: str, reason: str) -> Rejection:
    return Rejection(rule=rule, reason=reason, waits=False)


def waits(rule: str, reason: str) -> Rejection:
    return Rejection(rule=rule, reason=reason, waits=True)
