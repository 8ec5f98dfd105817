"""The answers of a Kubernetes API, read into the values of the model."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from decimal import Decimal
from typing import Any

from spillway.clouds.base import ATTEMPT_LABEL, INSTALLATION_LABEL, PLACEHOLDER_LABEL
from spillway.clouds.quantities import quantity
from spillway.model import GPU_RESOURCE, NodePool, NodeState, PodPhase, PodState, PodUse

Json = Mapping[str, Any]

TRAINER_CONTAINER = "trainer"
TOLERATED_TAINTS = (GPU_RESOURCE, "cloud.google.com/gke-spot", "kubernetes.azure.com/scalesetpriority")
"""Taints that keep other pods off GPU and spot nodes; a training pod tolerates them and selects its pool by label."""
_LEAVING_TAINTS = frozenset({
    "ToBeDeletedByClusterAutoscaler",
    "cloud.google.com/impending-node-termination",
    "karpenter.sh/disrupted",
    "karpenter.sh/disruption",
    "node.cloudprovider.kubernetes.io/shutdown",
    "node.kubernetes.io/out-of-service",
    "aws-node-termination-handler/spot-itn",
})  # fmt: skip
MILLICORES, MEBIBYTES = Decimal(1000), 1 / Decimal(1 << 20)
"""In a core, in a byte."""
_PHASES = {
    "Pending": PodPhase.PENDING,
    "Running": PodPhase.RUNNING,
    "Succeeded": PodPhase.SUCCEEDED,
    "Failed": PodPhase.FAILED,
    "Unknown": PodPhase.RUNNING,  # older control planes say this of a pod on a silent node
}
_ORDINARY_WAITS = frozenset({"ContainerCreating", "PodInitializing"})


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeCondition:
    """What a pod's fate depends on; of no node at all: ``exists`` False."""

    exists: bool
    ready: bool | None = None
    changed_at: datetime | None = None
    leaving: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Needs:
    """CPU and memory that the scheduler sets aside."""

    cpu_millicores: int = 0
    memory_mib: int = 0

    def __add__(self, other: Needs) -> Needs:
        return Needs(
            cpu_millicores=self.cpu_millicores + other.cpu_millicores, memory_mib=self.memory_mib + other.memory_mib
        )


NOTHING = Needs()


def node_state(node: Json, pools: Sequence[NodePool], beside: Needs = NOTHING) -> NodeState:
    """The node, in the pool with the most specific selector that matches its labels; the first of several such.

    ``beside`` is what the pods on it take that ``pod_use`` says nothing of.
    """
    labels = node["metadata"].get("labels") or {}
    spec, status = node.get("spec") or {}, node.get("status") or {}
    allocatable = status.get("allocatable") or {}
    matching = [pool for pool in pools if pool.node_selector.items() <= labels.items()]
    blocking = [
        taint
        for taint in spec.get("taints") or ()
        if taint.get("effect") in {"NoSchedule", "NoExecute"} and taint["key"] not in TOLERATED_TAINTS
    ]
    pool = max(matching, key=lambda pool: len(pool.node_selector)) if matching else None
    condition = _condition(status, "Ready")
    ready = condition.get("status") == "True"
    return NodeState(
        name=node["metadata"]["name"],
        pool=None if pool is None else pool.name,
        ready=ready,
        schedulable=not spec.get("unschedulable") and not blocking,
        allocatable_gpus=int(allocatable.get(pool.gpu_resource if pool else GPU_RESOURCE, 0)),
        driver=_labelled_version(labels, "driver"),
        driver_cuda=_labelled_version(labels, "runtime"),
        cpu_millicores=_left(allocatable, "cpu", MILLICORES, beside.cpu_millicores),
        memory_mib=_left(allocatable, "memory", MEBIBYTES, beside.memory_mib),
        also_matches=tuple(other.name for other in matching if other is not pool),
        created_at=moment(node["metadata"].get("creationTimestamp")),
        ready_at=moment(condition.get("lastTransitionTime")) if ready else None,
    )


def _left(allocatable: Json, resource: str, per_unit: Decimal, taken: int) -> int | None:
    """Whole units that are left of the resource; None where the node does not say how much of it there is."""
    if resource not in allocatable:
        return None
    return max(0, math.floor(quantity(allocatable[resource]) * per_unit) - taken)


def _labelled_version(labels: Mapping[str, str], part: str) -> str | None:
    """What GPU feature discovery found out of the node's driver, by its present labels or those of older releases."""
    present = labels.get(f"nvidia.com/cuda.{part}-version.full")
    if present:
        return present
    numbers = [labels.get(f"nvidia.com/cuda.{part}.{place}", "") for place in ("major", "minor")]
    return ".".join(number for number in numbers if number) or None


def node_condition(node: Json | None) -> NodeCondition:
    """The node as a pod's judge needs it; ``leaving`` while it is deleted, shut down or drained."""
    if node is None:
        return NodeCondition(exists=False)
    spec = node.get("spec") or {}
    ready = _condition(node.get("status") or {}, "Ready")
    return NodeCondition(
        exists=True,
        ready=ready.get("status") == "True",
        changed_at=moment(ready.get("lastTransitionTime")),
        leaving=bool(node["metadata"].get("deletionTimestamp") or spec.get("unschedulable"))
        or any(taint["key"] in _LEAVING_TAINTS for taint in spec.get("taints") or ()),
    )


def pod_use(pod: Json, *, namespace: str, resources: Iterable[str] = (GPU_RESOURCE,)) -> PodUse | None:
    """What the pod takes, or None for one that has ended, for a placeholder, which gives way to any other, and for a
    foreign one that takes no GPU; ``namespace`` is where our own ones are.

    An installation in another namespace may have an attempt of the same label. ``resources`` are what pods of the
    cluster ask GPUs by; no pod asks by more than one of them.
    """
    taken = {resource: gpus for resource in resources if (gpus := gpus_of(pod["spec"], resource))}
    metadata = pod["metadata"]
    ours, labels = metadata.get("namespace") == namespace, metadata.get("labels") or {}
    attempt = labels.get(ATTEMPT_LABEL) if ours else None
    if is_over(pod) or gives_way(pod) or not (taken or attempt):
        return None
    resource, gpus = next(iter(taken.items()), (GPU_RESOURCE, 0))
    needs = needs_of(pod["spec"])
    return PodUse(
        name=metadata["name"],
        namespace=metadata["namespace"],
        gpus=gpus,
        attempt=attempt,
        node=pod["spec"].get("nodeName"),
        cpu_millicores=needs.cpu_millicores,
        memory_mib=needs.memory_mib,
        gpu_resource=resource,
        created_at=moment(metadata.get("creationTimestamp")),
        started_at=_all_began_at(pod.get("status") or {}),
    )


def gpu_resources(pools: Iterable[NodePool]) -> Collection[str]:
    """What pods of a cluster with these pools ask GPUs by, in one order."""
    return sorted({GPU_RESOURCE, *(pool.gpu_resource for pool in pools)})


def needs_by_node(pods: Iterable[Json]) -> Mapping[str, Needs]:
    """What these pods set aside together, by the name of their node."""
    taken: dict[str, Needs] = {}
    for pod in pods:
        node = pod["spec"].get("nodeName")
        if node is not None and not is_over(pod) and not gives_way(pod):
            taken[node] = taken.get(node, NOTHING) + needs_of(pod["spec"])
    return taken


def gpus_of(spec: Json, resource: str = GPU_RESOURCE) -> int:
    """The GPUs that the scheduler sets aside, or the parts of them."""
    return math.ceil(_set_aside(spec, resource))


def needs_of(spec: Json) -> Needs:
    """The CPU and memory that the scheduler sets aside, rounded up, the overhead of the pod's sandbox included."""
    overhead = spec.get("overhead") or {}
    cpu, memory = (_set_aside(spec, name) + quantity(overhead.get(name, 0)) for name in ("cpu", "memory"))
    return Needs(cpu_millicores=math.ceil(cpu * MILLICORES), memory_mib=math.ceil(memory * MEBIBYTES))


def gives_way(pod: Json) -> bool:
    """Whether it is a placeholder, which any other pod displaces."""
    return PLACEHOLDER_LABEL in (pod["metadata"].get("labels") or {})


def is_over(pod: Json) -> bool:
    return (pod.get("status") or {}).get("phase") in {"Succeeded", "Failed"}


def _set_aside(spec: Json, resource: str) -> Decimal:
    """All containers together, or the neediest moment of their start."""
    running = peak = Decimal(0)
    for container in spec.get("initContainers") or ():
        if container.get("restartPolicy") == "Always":
            running += _requested(container, resource)
            peak = max(peak, running)
        else:
            peak = max(peak, running + _requested(container, resource))
    return max(peak, running + sum(_requested(container, resource) for container in spec["containers"]))


def pod_state(pod: Json, node: NodeCondition | None, *, cluster: str) -> PodState:
    """The pod's facts; ``node`` is None where it has none yet."""
    metadata, spec, status = pod["metadata"], pod["spec"], pod.get("status") or {}
    labels = metadata.get("labels") or {}
    container = _deciding_container(status)
    state = container.get("state") or {}
    ended, waits = state.get("terminated") or {}, state.get("waiting") or {}
    scheduling = _condition(status, "PodScheduled")
    disruption = _condition(status, "DisruptionTarget")
    grace = metadata.get("deletionGracePeriodSeconds", spec.get("terminationGracePeriodSeconds"))
    return PodState(
        name=metadata["name"],
        phase=_PHASES[status.get("phase", "Pending")],
        cluster=cluster,
        image=_trainer(spec["containers"]).get("image", ""),
        uid=metadata["uid"],
        node=spec.get("nodeName"),
        reason=status.get("reason") or "",
        message=status.get("message")
        or (scheduling.get("message") if scheduling.get("status") == "False" else "")
        or "",
        exit_code=ended.get("exitCode"),
        container_reason=ended.get("reason") or waits.get("reason") or "",
        container_message=ended.get("message") or waits.get("message") or "",
        disruption=(disruption.get("reason") or "DisruptionTarget") if disruption.get("status") == "True" else None,
        grace=None if grace is None else timedelta(seconds=grace),
        created_at=moment(metadata.get("creationTimestamp")),
        deleted_at=_asked_to_go_at(metadata),
        node_ready=node.ready if node else None,
        node_changed_at=node.changed_at if node else None,
        node_exists=node.exists if node else None,
        node_deleted=node.leaving if node else False,
        scheduled=bool(spec.get("nodeName")),
        started_at=moment((state.get("running") or ended).get("startedAt")),
        finished_at=moment(ended.get("finishedAt")),
        attempt=labels.get(ATTEMPT_LABEL),
        installation=labels.get(INSTALLATION_LABEL),
    )


def moment(text: str | None) -> datetime | None:
    """An RFC 3339 time; what is finer than a microsecond is cut off."""
    return None if text is None else datetime.fromisoformat(text)


def _all_began_at(status: Json) -> datetime | None:
    """When the last of its containers began to run; None until all have."""
    states = [container.get("state") or {} for container in status.get("containerStatuses") or ()]
    began = [moment((state.get("running") or state.get("terminated") or {}).get("startedAt")) for state in states]
    known = [at for at in began if at is not None]
    return max(known) if known and len(known) == len(began) else None


def _asked_to_go_at(metadata: Json) -> datetime | None:
    """Kubernetes states when the grace will be over; the request came that much earlier."""
    over_at = moment(metadata.get("deletionTimestamp"))
    return over_at and over_at - timedelta(seconds=metadata.get("deletionGracePeriodSeconds") or 0)


def _deciding_container(status: Json) -> Json:
    """The trainer's status, unless an earlier container of the pod failed or cannot start."""
    statuses: Sequence[Json] = status.get("initContainerStatuses") or ()
    for container in statuses:
        state = container.get("state") or {}
        waits = (state.get("waiting") or {}).get("reason")
        if (state.get("terminated") or {}).get("exitCode") or (waits and waits not in _ORDINARY_WAITS):
            return container
    return _trainer(status.get("containerStatuses") or ())


def _trainer(containers: Iterable[Json]) -> Json:
    """The container of that name; the first one in a pod that was not built here."""
    known = list(containers)
    return next((item for item in known if item["name"] == TRAINER_CONTAINER), known[0] if known else {})


def _condition(status: Json, kind: str) -> Json:
    conditions: Sequence[Json] = status.get("conditions") or ()
    return next((item for item in conditions if item["type"] == kind), {})


def _requested(container: Json, resource: str) -> Decimal:
    """What the container requests; a limit without a request is its request, and of devices the limit counts."""
    resources = container.get("resources") or {}
    limits, requests = resources.get("limits") or {}, resources.get("requests") or {}
    asked = {**requests, **limits} if "/" in resource else {**limits, **requests}
    return quantity(asked.get(resource, 0))
