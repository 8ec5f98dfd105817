"""Nodes that come and go: what the scaler knows of pools and demand, what it was told, and what it asks for."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from decimal import Decimal
from enum import StrEnum

from spillway.model.declared import Priority
from spillway.model.pools import NodePool


@dataclass(frozen=True, slots=True, kw_only=True)
class ScalableNode:
    """One node of a pool. ``gpus`` are those that pods may use now: 0 while it boots, or where it has failed.

    ``pods`` run on it, or are bound to it, whoever owns them; a node with any is never removed. ``ready_at`` is since
    when it is Ready, None while it is not. ``idle_since`` is since when it has no pod; None where it has one, or where
    nobody knows. ``draining``: it is cordoned or being deleted.
    """

    name: str
    created_at: datetime
    gpus: int
    free_gpus: int
    pods: int = 0
    ready_at: datetime | None = None
    idle_since: datetime | None = None
    draining: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolUse:
    """A pool that can be scaled, now. ``wanted`` is how many nodes its provider was last asked for.

    Machines that Kubernetes has not seen yet are among its ``nodes``, without GPUs. ``boot_allowance``: a node that has
    no usable GPUs for longer than this has failed. ``problem`` is why the provider does not bring what it was asked
    for, in its own words; empty where it says nothing.
    """

    cluster: str
    pool: NodePool
    wanted: int
    nodes: tuple[ScalableNode, ...]
    boot_allowance: timedelta = timedelta(minutes=15)
    problem: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class PendingJob:
    """A run that waits for GPUs, or has been promised a place and has no pod on a node yet: so that no idle node leaves
    before it comes. ``places`` are the (cluster, pool) pairs where it lacks nothing but room, or the one promised.

    ``expected`` is how long it is thought to train, ``finish_by`` its deadline; None where nobody said. ``hold_until``:
    it waits by choice, for on-premises to have room, until then. ``backfill``: a backfill
    asked for it, and no nodes are ordered for it (``backfills``).
    """

    run: str
    gpus_per_node: int
    nodes: int
    since: datetime
    priority: Priority
    places: frozenset[tuple[str, str]]
    expected: timedelta | None = None
    finish_by: datetime | None = None
    hold_until: datetime | None = None
    backfill: bool = False

    @property
    def gpus(self) -> int:
        return self.gpus_per_node * self.nodes


@dataclass(frozen=True, slots=True, kw_only=True)
class UsePoint:
    """How busy one side was at one moment. A moment that nobody measured has no point: a gap is never a zero."""

    at: datetime
    gpus: int
    used_gpus: int
    queued_jobs: int
    pending_gpus: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Ending:
    """A run on-premises that ends at ``at`` by what its job says, and what it then leaves of the (cluster, pool)."""

    at: datetime
    place: tuple[str, str]
    gpus_per_node: int
    nodes: int


class OrderKind(StrEnum):
    """What a person asked of the scaler."""

    ADD = "add"
    SHRINK = "shrink"


MOST_ORDER_HOURS = 8760
"""Whoever wants nodes for longer than a year raises ``min_nodes``."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ManualOrder:
    """A person's order of nodes: ``nodes`` more than there were when it was given, or down to so many.

    It holds until ``until``, or ``withdrawn_at``; nodes that it adds are to be ready by ``ready_by``, and ``ready_at``
    is when all of them were seen to be. Those that a shrink takes are empty by then, or leave with what moves and
    pauses by its approved plan: ``remove`` are their names.
    """

    order: str
    kind: OrderKind
    cluster: str
    pool: str
    nodes: int
    base_nodes: int
    ordered_at: datetime
    ordered_by: str
    until: datetime
    ready_by: datetime | None = None
    remove: tuple[str, ...] = ()
    ready_at: datetime | None = None
    withdrawn_at: datetime | None = None

    @property
    def wanted(self) -> int:
        """How many nodes the pool has once it is carried out."""
        return self.base_nodes + self.nodes if self.kind is OrderKind.ADD else self.nodes

    def holds_at(self, now: datetime) -> bool:
        return self.withdrawn_at is None and now < self.until


class Source(StrEnum):
    """Where a wish for nodes comes from, the one that comes first in a conflict last."""

    REACTIVE = "reactive"
    FORECAST = "forecast"
    TIME_RULE = "time-rule"
    MANUAL = "manual"
    FORCED_SHRINK = "forced-shrink"


@dataclass(frozen=True, slots=True, kw_only=True)
class Contribution:
    """How many nodes one source wants of a pool, and why."""

    source: Source
    nodes: int
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolTarget:
    """How many nodes a pool is to have. ``remove`` are the nodes that leave where it is fewer; it is our choice.

    ``drains`` are nodes with pods that take no more of them, and leave when these have ended, by an approved shrink.
    ``contributions`` are the wishes behind it, ``clamps`` what kept it from what they wanted. ``replaces`` are nodes
    that failed: they leave too, and their places are filled anew as far as ``nodes`` wants them. ``given_up_until``:
    nodes that failed are not replaced, and none come until then; None where none did, or they are.
    """

    cluster: str
    pool: str
    nodes: int
    remove: tuple[str, ...] = ()
    drains: tuple[str, ...] = ()
    replaces: tuple[str, ...] = ()
    contributions: tuple[Contribution, ...] = ()
    clamps: tuple[str, ...] = ()
    given_up_until: datetime | None = None

    @property
    def why(self) -> str:
        """Every wish and everything that kept it back, in a line."""
        return "; ".join([*(f"{wish.source}: {wish.reason}" for wish in self.contributions), *self.clamps])


@dataclass(frozen=True, slots=True, kw_only=True)
class ScalingChange:
    """One line of the audit: a target that differs from what the pool's provider was last asked for, ``before``.

    It is on record before the provider is asked. ``asked_at`` is when that took it, ``problem`` why it did not;
    neither, and whoever decided has died in between. ``tries`` is how often it was asked. ``reached_at`` is when the
    pool was seen to be as wanted: what the plan came to. ``look`` is the number of the look that it was planned at;
    None of changes of an older release.
    """

    number: int
    cluster: str
    pool: str
    before: int
    target: PoolTarget
    decided_at: datetime
    actor: str
    tries: int = 1
    asked_at: datetime | None = None
    problem: str | None = None
    reached_at: datetime | None = None
    look: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ScalingSnapshot:
    """All that the scaler may know. A pool that could not be read is in ``unknown`` with its cause, and keeps its size.

    ``local`` and ``cloud`` are the points of the last hour or so, oldest first. ``last_out`` and ``last_in`` are when
    each pool, by (cluster, pool), last grew or shrank. ``base_nodes`` is how many nodes each pool was to have when the
    time rule of a window began to hold (``scaling.timed.began_at``). ``replaced`` is when failed nodes of each pool
    were replaced, and which: a node of such a name that was made later is another one.
    ``money_left`` is what all budgets leave of the month together; None: no limit. ``endings`` are those foreseen
    on-premises, soonest first; nothing is known of runs that are not there. ``watched`` are the spans in which somebody
    looked at the pools again and again; None: at any moment.
    """

    taken_at: datetime
    pools: tuple[PoolUse, ...]
    unknown: Mapping[tuple[str, str], str] = field(default_factory=dict)
    local: tuple[UsePoint, ...] = ()
    cloud: tuple[UsePoint, ...] = ()
    queue: tuple[PendingJob, ...] = ()
    orders: tuple[ManualOrder, ...] = ()
    last_out: Mapping[tuple[str, str], datetime] = field(default_factory=dict)
    last_in: Mapping[tuple[str, str], datetime] = field(default_factory=dict)
    base_nodes: Mapping[tuple[str, str], int] = field(default_factory=dict)
    replaced: Mapping[tuple[str, str], Mapping[datetime, frozenset[str]]] = field(default_factory=dict)
    money_left: Decimal | None = None
    endings: tuple[Ending, ...] = ()
    watched: tuple[tuple[datetime, datetime], ...] | None = None
