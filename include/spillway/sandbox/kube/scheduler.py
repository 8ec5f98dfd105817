"""First-fit scheduling: the most important pending pod, of equals the oldest, goes to the node that can hold it and
that it prefers most, of equals the first by name."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from decimal import Decimal
from functools import partial

from spillway.clouds.quantities import quantity
from spillway.sandbox.kube.admission import NOT_READY
from spillway.sandbox.kube.objects import Objects
from spillway.sandbox.kube.preemption import make_room, priority_of
from spillway.sandbox.kube.quantities import requests
from spillway.sandbox.kube.resources import NODES, PODS, Object, condition, is_terminal, name_of, set_condition

_SCHEDULER = "default-scheduler"


def schedule(objects: Objects) -> None:
    """Bind every pending pod that fits; tell each other one, in its PodScheduled condition, why it does not."""
    store = objects.store
    pods = store.list(PODS)
    nodes = store.list(NODES)
    free = {name_of(node): _free(node, pods) for node in nodes}
    for pod in sorted(filter(_waits, pods), key=_rank):
        refusals = {name_of(node): refuse(pod, node, free[name_of(node)]) for node in nodes}
        able = [node for node in nodes if not refusals[name_of(node)]]
        chosen = name_of(max(able, key=partial(preference, pod))) if able else None  # of equals max takes the first
        if chosen is None:
            pod = _tell(objects, pod, explain(refusals))
            make_room(objects, pod, nodes, free, partial(refuse, pod))
            continue
        objects.bind(pod, chosen)
        for resource, amount in requests(pod).items():
            free[chosen][resource] = free[chosen].get(resource, Decimal(0)) - amount


def explain(refusals: Mapping[str, Sequence[str]]) -> str:
    """``0/2 nodes are available: 2 Insufficient nvidia.com/gpu.``"""
    if not refusals:
        return "no nodes available to schedule pods"
    counts = Counter(reason for reasons in refusals.values() for reason in reasons)
    listed = ", ".join(f"{count} {reason}" for reason, count in sorted(counts.items()))
    return f"0/{len(refusals)} nodes are available: {listed}."


def refuse(pod: Object, node: Object, free: Mapping[str, Decimal]) -> list[str]:
    """Why the node can't take the pod; empty where it can."""
    spec = pod["spec"]
    unschedulable = {"key": "node.kubernetes.io/unschedulable", "effect": "NoSchedule"}
    if node["spec"].get("unschedulable") and not tolerations(pod, unschedulable):
        return ["node(s) were unschedulable"]
    ready = condition(node, "Ready")
    if ready is None or ready["status"] != "True":
        return [f"node(s) had untolerated taint {{{NOT_READY}: }}"]
    labels = node["metadata"].get("labels") or {}
    if any(labels.get(key) != value for key, value in (spec.get("nodeSelector") or {}).items()):
        return ["node(s) didn't match Pod's node affinity/selector"]
    for taint in node["spec"].get("taints") or []:
        if taint["effect"] in {"NoSchedule", "NoExecute"} and not tolerations(pod, taint):
            return [f"node(s) had untolerated taint {{{taint['key']}: {taint.get('value', '')}}}"]
    lacking = [name for name, amount in requests(pod).items() if amount > free.get(name, Decimal(0))]
    return ["Too many pods" if name == "pods" else f"Insufficient {name}" for name in lacking]


def preference(pod: Object, node: Object) -> int:
    """How much the pod wants this node: the weights of its wishes that name it. Those by labels are not known here."""
    affinity = (pod["spec"].get("affinity") or {}).get("nodeAffinity") or {}
    total = 0
    for wish in affinity.get("preferredDuringSchedulingIgnoredDuringExecution") or ():
        fields = wish["preference"].get("matchFields") or ()
        if fields and all(_names(field, node) for field in fields):
            total += wish["weight"]
    return total


def _names(field: Object, node: Object) -> bool:
    return (field["key"], field["operator"]) == ("metadata.name", "In") and name_of(node) in field["values"]


def tolerations(pod: Object, taint: Object) -> list[Object]:
    """The pod's tolerations that match the taint."""
    return [
        toleration
        for toleration in pod["spec"].get("tolerations") or []
        if toleration.get("key") in {None, "", taint["key"]}
        and toleration.get("effect") in {None, "", taint["effect"]}
        and (toleration.get("operator") == "Exists" or toleration.get("value", "") == taint.get("value", ""))
    ]


def _waits(pod: Object) -> bool:
    return not (pod["spec"].get("nodeName") or pod["metadata"].get("deletionTimestamp") or is_terminal(pod))


def _free(node: Object, pods: Sequence[Object]) -> dict[str, Decimal]:
    allocatable = node.get("status", {}).get("allocatable") or {}
    free = {name: quantity(amount) for name, amount in allocatable.items()}
    for pod in pods:
        if pod["spec"].get("nodeName") == name_of(node) and not is_terminal(pod):
            for name, amount in requests(pod).items():
                free[name] = free.get(name, Decimal(0)) - amount
    return free


def _rank(pod: Object) -> tuple[int, str]:
    return -priority_of(pod), pod["metadata"]["creationTimestamp"]


def _tell(objects: Objects, pod: Object, message: str) -> Object:
    now = objects.now()
    told = condition(pod, "PodScheduled")
    if told and told.get("message") == message:
        return pod
    pod = objects.edit(pod, lambda new: set_condition(new, "PodScheduled", "False", "Unschedulable", message, now=now))
    objects.event(pod, "Warning", "FailedScheduling", message, _SCHEDULER)
    return pod
