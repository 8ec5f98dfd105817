"""Jobs of a trace as a replay carries them."""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from datetime import datetime, timedelta
from math import log2

from spillway.errors import BadTrace
from spillway.lines import GIBIBYTE
from spillway.model import DatasetUse, JobRecord, JobSpec, PendingJob, PlacementPolicy, Priority, Tier
from spillway.replay.pools import Node, Pool
from spillway.replay.world import Conditions, World
from spillway.scaling.waiting import patience

GPUS_PER_NODE = 8
"""What a pod of a job that names no nodes has at most: more GPUs are several nodes."""

_ALIKE = 8
"""Jobs whose durations differ by less than an eighth of a doubling weigh the transfer of their data alike."""


class Job:
    """One job; moments are seconds of the replay. ``kind`` is all that its place depends on, beside how long it waits.

    ``expected`` is how long it is thought to train; its spec says so only where its place depends on that.
    ``left`` is how long it still trains when it next begins, ``restart`` what that takes beside it. It trains from
    ``trains_at`` on. ``staged`` are the clusters to which its data was brought. ``serial`` counts its starts: an end
    that was foreseen for an earlier one is none.
    """

    __slots__ = (
        "_pending", "asked_at", "began_at", "dataset_bytes", "ended_at", "ends_at", "expected", "fruitless", "gpus",
        "gpus_per_node", "hold_until", "index", "kind", "left", "nodes", "pods", "pool", "restart", "serial", "shape",
        "spec", "staged", "started_at", "trains_at", "turn", "works",
    )  # fmt: skip

    def __init__(self, index: int, spec: JobSpec, asked_at: float, works: float, expected: timedelta | None) -> None:
        self.index, self.spec, self.asked_at, self.works, self.left = index, spec, asked_at, works, works
        self.expected = expected
        self.gpus_per_node, self.pods = spec.gpus_per_node, spec.nodes
        self.shape = (spec.gpus_per_node, spec.nodes)
        self.gpus = spec.gpus_per_node * spec.nodes
        self.turn = (spec.priority.level, index)
        self.serial = self.fruitless = 0
        self.dataset_bytes = 0
        self.staged: frozenset[str] = frozenset()
        self.kind = self._kind()
        self.hold_until: float | None = None
        self.pool: Pool | None = None
        self.nodes: list[Node] = []
        self.began_at: float | None = None
        self.started_at: float | None = None
        self.ended_at: float | None = None
        self.ends_at = self.trains_at = self.restart = 0.0
        self._pending: PendingJob | None = None

    def stage(self, cluster: str) -> None:
        """Its data is at the cluster from now on."""
        self.staged |= {cluster}
        self.kind = self._kind()

    def _kind(self) -> Hashable:
        """Of a job with data it also counts where that is, and for about how long it trains by what it says."""
        spec = self.spec
        shape = (spec.gpus_per_node, spec.nodes, spec.priority.level, spec.department)
        if not spec.datasets:
            return shape
        expected = None if spec.expected_duration is None else spec.expected_duration.total_seconds()
        about = None if expected is None else round(_ALIKE * log2(max(1.0, expected)))
        return (*shape, spec.datasets, about, self.staged)

    def pending(self, places: frozenset[tuple[str, str]], world: World) -> PendingJob:
        """The job as the scaler sees it while it waits for room."""
        if self._pending is None or self._pending.places != places:
            self._pending = PendingJob(
                run=f"{self.index:09d}",
                gpus_per_node=self.gpus_per_node,
                nodes=self.pods,
                since=world.moment(self.asked_at),
                priority=self.spec.priority,
                places=places,
                expected=self.expected,
            )
        return self._pending


def jobs_of(records: Iterable[JobRecord], policy: PlacementPolicy, conditions: Conditions) -> list[Job]:
    """The jobs in their order, whose specs say what a job file would: what a trace does not tell is nowhere said.

    A department that the policy has no quota for, or none, is the first that has one.

    Raises:
        BadTrace: a record does not tell how long its job held its GPUs.
    """
    jobs: list[Job] = []
    specs: dict[tuple[object, ...], JobSpec] = {}
    usual = next(iter(policy.quotas), "")
    epoch: datetime | None = None
    for record in records:
        epoch = epoch or record.submitted_at
        lasts = record.duration
        if lasts is None:
            raise BadTrace("trace", None, f"job '{record.job}' does not tell how long it held its GPUs")
        department = usual if record.department not in policy.quotas else record.department or usual
        nodes = max(record.nodes, -(-record.gpus // GPUS_PER_NODE))
        reads = conditions.dataset_gib if record.dataset_gib is None else record.dataset_gib
        commits = conditions.checkpoint_gib if record.checkpoint_gib is None else record.checkpoint_gib
        expected, gpus_per_node = record.duration_estimate, -(-record.gpus // nodes)
        wait = None if policy.waiting is None else patience(gpus_per_node * nodes, expected, policy.waiting)
        shape = (
            gpus_per_node, nodes, record.priority or Priority.RESEARCH, department,
            expected if reads or wait else None, reads, commits,
        )  # fmt: skip
        spec = specs.get(shape)
        if spec is None:
            spec = specs[shape] = _spec(*shape, spot_ok=shape[2] in conditions.spot_ok)
        asked_at = (record.submitted_at - epoch).total_seconds()
        job = Job(len(jobs), spec, asked_at, lasts.total_seconds(), expected)
        job.dataset_bytes = round(reads * GIBIBYTE)
        if wait is not None:
            job.hold_until = (record.submitted_at + wait - epoch).total_seconds()
        jobs.append(job)
    return jobs


def _spec(
    gpus_per_node: int,
    nodes: int,
    priority: Priority,
    department: str,
    expected: timedelta | None,
    dataset_gib: float,
    checkpoint_gib: float | None,
    *,
    spot_ok: bool,
) -> JobSpec:
    return JobSpec(
        name="job",
        department=department,
        priority=priority,
        image="replayed:v1",
        command=("train",),
        gpus_per_node=gpus_per_node,
        nodes=nodes,
        tier=Tier.PUBLIC,
        spot_ok=spot_ok,
        datasets=(DatasetUse(name=f"{dataset_gib!r} GiB"),) if dataset_gib else (),
        checkpoint_gib=checkpoint_gib,
        expected_duration=expected,
    )
