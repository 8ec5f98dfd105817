"""Who may pass whom: a job starts before one that waits longer only where it does not keep that from its place.

This is EASY backfill (Lifka, The ANL/IBM SP Scheduling System, 1995) with several runs held instead of the first one.
A run that waits for room is held one pool, where it starts first by what the jobs that run there say of their end. A
job passes it there if it will have ended by then, or if both fit on whatever nodes Kubernetes puts the job. Where
nobody says when enough of them end, everybody passes at first, and nobody once the run has waited for ``PATIENCE``: the
pool empties. So a run waits at most until its expected start, or for ``PATIENCE`` and as long as the jobs that run
then.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Collection, Sequence
from datetime import datetime, timedelta
from functools import partial

from spillway.model import Candidate, JobSpec, QueuedRun, Rejection, shape_in_words
from spillway.placement.capacity import PoolCapacity, Room, need_of
from spillway.placement.context import Context
from spillway.placement.filters import FULL, WAITING_FOR_NODES, too_old, waits

PATIENCE = timedelta(minutes=30)
"""How long a run of which nobody can say when it starts is passed by others."""

QUEUE = "queue"
"""The rule of a pool that is held for runs which came first."""

ROOM = frozenset({FULL, WAITING_FOR_NODES, QUEUE})
"""The rules that say that nothing but room is lacking."""


def head_of_line(job: JobSpec, candidate: Candidate, context: Context) -> Rejection | None:
    """Whether the job would keep a run that comes first from its start."""
    place = (candidate.cluster, candidate.pool)
    for queued in context.snapshot.queue:
        if place not in queued.places:
            continue
        held, start = context.once_for_job(("held", queued.run), partial(_held, queued, context))
        if held == place and _hurts(job, queued, place, start, context):
            return waits(QUEUE, _told(job, queued, start))
    return None


def _held(queued: QueuedRun, context: Context) -> tuple[tuple[str, str] | None, datetime | None]:
    return context.once(("held", queued), partial(held_for, queued, context))


def _told(job: JobSpec, queued: QueuedRun, start: datetime | None) -> str:
    wanted = shape_in_words(queued.gpus_per_node, queued.nodes, queued.gpu_fraction, queued.cpu_millicores_per_node)
    whom = f"run {queued.run} ({queued.priority}, {wanted}), which waits since "
    since = f"{whom}{queued.since.isoformat(timespec='seconds')}, comes first: "
    if start is None:
        return f"{since}nobody can say when it starts, so nobody takes what it needs"
    expected = f"{since}it starts by {start.isoformat(timespec='seconds')}, "
    if job.longest is None:
        return f"{expected}and this job does not say how long it trains"
    return f"{expected}before this job has ended ({job.longest} at most)"


def held_for(queued: QueuedRun, context: Context) -> tuple[tuple[str, str] | None, datetime | None]:
    """The pool where the run starts first, and when; of those where nobody knows, the one that lacks least."""
    soonest: datetime | None = None
    found: list[tuple[bool, datetime, int, tuple[str, str]]] = []
    for place in sorted(queued.places):
        if place not in context.capacities:
            continue
        blocks = partial(_blocks_at, place, _need(queued), _unfit(queued, place, context), context)
        if soonest is not None and blocks(soonest) < queued.nodes:
            continue  # it starts there later, if ever
        start = _start(queued.nodes, _moments(place, context), blocks)
        soonest = start or soonest
        lacking = queued.nodes - blocks(context.snapshot.taken_at)
        found.append((start is None, start or context.snapshot.taken_at, lacking, place))
    if not found:
        return None, None
    unknown, start, _, place = min(found)
    return place, None if unknown else start


def _start(nodes: int, moments: Sequence[datetime], blocks: Callable[[datetime], int]) -> datetime | None:
    """When so many nodes are free at the latest; None where nobody says when enough of what runs there ends."""
    if blocks(moments[-1]) < nodes:
        return None
    return moments[bisect_left(moments, nodes, key=blocks)]


def _blocks_at(place: tuple[str, str], need: Room, unfit: Collection[str], context: Context, moment: datetime) -> int:
    """How many such pods fit there then, on nodes whose driver is new enough for them."""
    capacity = _capacity_at(moment, place, context)
    return (capacity.without(unfit) if unfit else capacity).blocks(need)


def _unfit(queued: QueuedRun, place: tuple[str, str], context: Context) -> Collection[str]:
    return () if queued.image is None else too_old(queued.image, place, context)


def _moments(place: tuple[str, str], context: Context) -> Sequence[datetime]:
    """Now, and when each of the jobs has ended that change what is free there, in their order."""

    def moments() -> Sequence[datetime]:
        now = context.snapshot.taken_at
        ends = {held.ends_at for held in context.uses[place[0]].bearing_on(place[1]) if held.ends_at is not None}
        return [now, *sorted(end for end in ends if end > now)]

    return context.once(("moments", place), moments)


def _hurts(job: JobSpec, queued: QueuedRun, place: tuple[str, str], start: datetime | None, context: Context) -> bool:
    """Whether the job, placed there now, keeps the run from starting when it is expected to."""
    now = context.snapshot.taken_at
    if start is None:
        return now - queued.since >= PATIENCE
    if job.longest is not None and now + job.longest <= start:
        return False
    return _left_at_worst(job, queued, place, start, context) < queued.nodes


def _left_at_worst(job: JobSpec, queued: QueuedRun, place: tuple[str, str], start: datetime, context: Context) -> int:
    """How many pods of the run fit at its start where each pod of the job lies on the node, of those that take it now,
    where it is most in the way.
    """
    pod, need, unfit = need_of(job), _need(queued), _unfit(queued, place, context)
    now, then = dict(context.capacities[place].free), dict(_capacity_at(start, place, context).free)

    def in_the_way(node: str) -> int:
        return 0 if node in unfit else then[node].times(need) - then[node].less(*pod).times(need)

    for _ in range(job.nodes):
        worst = max((node for node in sorted(now) if now[node].times(pod)), key=in_the_way, default=None)
        if worst is not None:
            now[worst], then[worst] = now[worst].less(*pod), then[worst].less(*pod)
    return sum(room.times(need) for node, room in then.items() if node not in unfit)


def _capacity_at(moment: datetime, place: tuple[str, str], context: Context) -> PoolCapacity:
    """What is free there when all that has to have ended by then has."""
    moments = _moments(place, context)
    last = moments[bisect_right(moments, moment) - 1]  # nothing ends between that and the moment
    if last == moments[0]:
        return context.capacities[place]
    return context.once(("at", last, place), partial(_capacity_then, last, place, context))


def _capacity_then(moment: datetime, place: tuple[str, str], context: Context) -> PoolCapacity:
    now, use = context.snapshot.taken_at, context.uses[place[0]]
    ended = {h.attempt for h in use.bearing_on(place[1]) if h.ends_at is not None and now < h.ends_at <= moment}
    return use.capacity(place[1], ended)


def _need(queued: QueuedRun) -> Room:
    return Room(queued.gpus_per_node, queued.cpu_millicores_per_node, queued.memory_mib_per_node)
