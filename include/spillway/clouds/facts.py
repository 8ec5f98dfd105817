"""The answers of a Kubernetes API, read into the values of the model."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from spillway.clouds.base import ATTEMPT_LABEL
from spillway.model import NodePool, NodeState, PodPhase, PodState, PodUse

Json = Mapping[str, Any]

TRAINER_CONTAINER = "trainer"
GPU_RESOURCE = "nvidia.com/gpu"
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


def node_state(node: Json, pools: Sequence[NodePool]) -> NodeState:
    """The node, in the pool with the most specific selector that matches its labels."""
    labels = node["metadata"].get("labels") or {}
    spec, status = node.get("spec") or {}, node.get("status") or {}
    matching = [pool for pool in pools if pool.node_selector.items() <= labels.items()]
    blocking = [
        taint
        for taint in spec.get("taints") or ()
        if taint.get("effect") in {"NoSchedule", "NoExecute"} and taint["key"] not in TOLERATED_TAINTS
    ]
    return NodeState(
        name=node["metadata"]["name"],
        pool=max(matching, key=lambda pool: len(pool.node_selector)).name if matching else None,
        ready=_condition(status, "Ready").get("status") == "True",
        schedulable=not spec.get("unschedulable") and not blocking,
        allocatable_gpus=int((status.get("allocatable") or {}).get(GPU_RESOURCE, 0)),
    )


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


def pod_use(pod: Json) -> PodUse | None:
    """What the pod takes, or None for one that takes no GPU or has ended."""
    gpus = gpus_of(pod["spec"])
    if not gpus or (pod.get("status") or {}).get("phase") in {"Succeeded", "Failed"}:
        return None
    metadata = pod["metadata"]
    return PodUse(
        name=metadata["name"],
        namespace=metadata["namespace"],
        gpus=gpus,
        attempt=(metadata.get("labels") or {}).get(ATTEMPT_LABEL),
        node=pod["spec"].get("nodeName"),
    )


def gpus_of(spec: Json) -> int:
    """The GPUs that the scheduler sets aside: all containers together, or the neediest moment of their start."""
    running = peak = 0
    for container in spec.get("initContainers") or ():
        if container.get("restartPolicy") == "Always":
            running += _container_gpus(container)
            peak = max(peak, running)
        else:
            peak = max(peak, running + _container_gpus(container))
    return max(peak, running + sum(_container_gpus(container) for container in spec["containers"]))


def pod_state(pod: Json, node: NodeCondition | None, *, cluster: str) -> PodState:
    """The pod's facts; ``node`` is None where it has none yet."""
    metadata, spec, status = pod["metadata"], pod["spec"], pod.get("status") or {}
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
        attempt=(metadata.get("labels") or {}).get(ATTEMPT_LABEL),
    )


def moment(text: str | None) -> datetime | None:
    """An RFC 3339 time; what is finer than a microsecond is cut off."""
    return None if text is None else datetime.fromisoformat(text)


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


def _container_gpus(container: Json) -> int:
    resources = container.get("resources") or {}
    return int({**(resources.get("requests") or {}), **(resources.get("limits") or {})}.get(GPU_RESOURCE, 0))
