"""Pools of nodes: what their nodes have, how it is given away and what it costs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from decimal import Decimal
from enum import StrEnum

from spillway.errors.counts import counted


class Billing(StrEnum):
    """How a GPU-hour is paid for. ``OWNED`` is the on-premises marginal price, which may be 0 when configured so."""

    OWNED = "owned"
    RESERVED = "reserved"
    ON_DEMAND = "on-demand"
    SPOT = "spot"

    @property
    def bought(self) -> bool:
        """Whether a provider is paid by the hour for it; budgets are about nothing else."""
        return self is not Billing.OWNED


GPU_RESOURCE = "nvidia.com/gpu"
"""What a pod asks whole GPUs of a node by."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuShare:
    """How the device plugin of a pool's nodes gives GPUs away in equal parts.

    A pod asks for one part by ``resource``, and a node has ``per_gpu`` of them for each of its GPUs. All are of one
    size, so whatever GPU the plugin takes a part from, two halves share one and a third half needs another.
    ``memory_gib`` is that of a part.
    """

    resource: str
    per_gpu: int
    memory_gib: int

    @property
    def fraction(self) -> Decimal:
        """The part of a GPU, in thousandths and rounded down, so that all parts together are never more than it."""
        return Decimal(1000 // self.per_gpu).scaleb(-3).normalize()


@dataclass(frozen=True, slots=True, kw_only=True)
class OffPeak:
    """Hours of every day, by the clocks of ``time_zone``: from ``begins`` to ``ends`` after midnight, the second of the
    next day where it is not later. ``prices_per_hour`` stand in place of the pool's where there is one.
    """

    begins: timedelta
    ends: timedelta
    time_zone: str
    prices_per_hour: Mapping[Billing, Decimal] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class ReservedContract:
    """How many of a pool's GPUs are reserved by contract. ``paid``: whether they are paid for already, used or not, so
    that another hour of them costs nothing more. ``cost_per_month`` is then what all of them together cost.
    """

    gpus: int
    paid: bool = False
    cost_per_month: Decimal = Decimal(0)


@dataclass(frozen=True, slots=True, kw_only=True)
class ScaledBy:
    """What brings and takes the nodes of a pool: ``provider`` is ``eks``, ``placeholders`` or ``sandbox``.

    ``connection`` leads to it, and ``cluster`` and ``node_group`` are its names of the pool; None where it needs none.
    ``image`` is that of placeholder pods. The pool keeps at least ``min_nodes``; a node that has no usable GPUs for
    longer than ``boot_allowance`` has failed.
    """

    provider: str
    connection: str | None = None
    cluster: str | None = None
    node_group: str | None = None
    image: str = "registry.k8s.io/pause:3.10"
    min_nodes: int = 0
    boot_allowance: timedelta = timedelta(minutes=15)


def gpus_in_all(gpus_per_node: int, nodes: int, fraction: Decimal | None) -> Decimal:
    """How many GPUs so many nodes with so many each are; ``fraction`` is the part of its one GPU that a pod takes."""
    return Decimal(gpus_per_node * nodes) if fraction is None else fraction


def shape_in_words(gpus_per_node: int, nodes: int, fraction: Decimal | None, cpu_millicores: int) -> str:
    """What a job asks for, for people: ``2 x 8 GPUs``, ``0.5 of a GPU``, or ``2 x 16 cores`` without GPUs."""
    if fraction is not None:
        return f"{fraction} of a GPU"
    return (
        f"{nodes} x {counted(gpus_per_node, 'GPU')}" if gpus_per_node else f"{nodes} x {cpu_millicores / 1000:g} cores"
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class NodePool:
    """Nodes of one shape. ``max_nodes`` is the declared maximum: quota shares are of it, not of what runs now.

    ``cpu_cores_per_node`` and ``memory_gib_per_node`` are what pods may have of an empty node; None where not said.
    ``fixed_cost_per_month`` is of all of them together, and falls due whether they are used or not. ``prices_as_of`` is
    the day (midnight, UTC) on which the prices were looked up; None where not said. With ``gpu_share`` its GPUs are
    given away in parts only. A pool of ``gpus_per_node`` 0 is for work without GPUs: it says its cores and memory, and
    its prices are of a core. Without ``scaled_by`` the nodes that it has are all that it is ever given.
    """

    name: str
    gpus_per_node: int
    max_nodes: int
    gpu_model: str | None = None
    gpu_memory_gib: int = 0
    prices_per_gpu_hour: Mapping[Billing, Decimal] = field(default_factory=dict)
    prices_per_core_hour: Mapping[Billing, Decimal] = field(default_factory=dict)
    node_selector: Mapping[str, str] = field(default_factory=dict)
    cpu_cores_per_node: float | None = None
    memory_gib_per_node: float | None = None
    prices_as_of: datetime | None = None
    fixed_cost_per_month: Decimal = Decimal(0)
    gpu_share: GpuShare | None = None
    off_peak: OffPeak | None = None
    reserved: ReservedContract | None = None
    scaled_by: ScaledBy | None = None

    @property
    def max_gpus(self) -> int:
        return self.gpus_per_node * self.max_nodes

    @property
    def prices_per_hour(self) -> Mapping[Billing, Decimal]:
        """Those of a GPU; of a core where it has no GPUs."""
        return self.prices_per_gpu_hour if self.gpus_per_node else self.prices_per_core_hour

    def is_paid(self, billing: Billing) -> bool:
        """Whether GPUs that are billed so are paid for already."""
        return billing is Billing.RESERVED and self.reserved is not None and self.reserved.paid

    @property
    def priced_units(self) -> Decimal:
        """How many GPUs it has at most; how many cores where it has no GPUs."""
        cores = Decimal(str(self.cpu_cores_per_node or 0)) * self.max_nodes
        return Decimal(self.max_gpus) if self.gpus_per_node else cores

    @property
    def gpu_resource(self) -> str:
        """What pods ask its GPUs, or parts of them, by."""
        return GPU_RESOURCE if self.gpu_share is None else self.gpu_share.resource

    @property
    def devices_per_gpu(self) -> int:
        """How many pods can have something of one GPU."""
        return 1 if self.gpu_share is None else self.gpu_share.per_gpu

    @property
    def devices_per_node(self) -> int:
        """How many GPUs, or parts of them, a node offers."""
        return self.gpus_per_node * self.devices_per_gpu
