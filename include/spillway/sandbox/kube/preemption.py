"""Pods that give way to those of a higher priority."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from decimal import Decimal
from functools import partial

from spillway.sandbox.kube.objects import Objects
from spillway.sandbox.kube.quantities import requests
from spillway.sandbox.kube.resources import PODS, Object, is_terminal, name_of, namespace_of

Free = Mapping[str, Decimal]
Refuse = Callable[[Object, Free], Sequence[str]]
"""Why a node with that much left can't take the pod."""


def priority_of(pod: Object) -> int:
    return int(pod["spec"].get("priority") or 0)


def make_room(objects: Objects, pod: Object, nodes: Sequence[Object], free: Mapping[str, Free], refuse: Refuse) -> None:
    """Delete pods of a lower priority where that lets the pod run, as few as it takes on the first such node.

    Nothing is deleted where pods that are on their way out already leave enough.
    """
    bound = [other for other in objects.store.list(PODS) if other["spec"].get("nodeName") and not is_terminal(other)]
    if not any(priority_of(other) < priority_of(pod) for other in bound):
        return
    there = {name_of(node): [pod for pod in bound if pod["spec"]["nodeName"] == name_of(node)] for node in nodes}
    after = {name: _with(free[name], filter(_goes, pods)) for name, pods in there.items()}
    if not all(refuse(node, after[name_of(node)]) for node in nodes):
        return
    for node in nodes:
        name = name_of(node)
        victims = _victims(pod, there[name], partial(refuse, node), after[name])
        for victim in victims:
            who = f"{namespace_of(pod)}/{name_of(pod)}"
            objects.event(victim, "Normal", "Preempted", f"Preempted by {who} on node {name}", "default-scheduler")
            why = "default-scheduler: preempting to accommodate a higher priority pod"
            objects.disrupt(victim, "PreemptionByScheduler", why)
        if victims:
            objects.edit(pod, partial(_nominate, name))
            return


def _victims(pod: Object, there: Sequence[Object], refuse: Callable[[Free], Sequence[str]], free: Free) -> list[Object]:
    """The least important pods of a node that are in the way; none where even all of them are too few."""
    victims: list[Object] = []
    for other in sorted(there, key=priority_of):
        if priority_of(other) < priority_of(pod) and not _goes(other):
            victims.append(other)
            if not refuse(_with(free, victims)):
                return victims
    return []


def _nominate(node: str, pod: Object) -> None:
    pod["status"]["nominatedNodeName"] = node


def _goes(pod: Object) -> bool:
    return bool(pod["metadata"].get("deletionTimestamp"))


def _with(free: Free, pods: Iterable[Object]) -> Free:
    """What is left of a node without these pods."""
    left = dict(free)
    for pod in pods:
        for resource, amount in requests(pod).items():
            left[resource] = left.get(resource, Decimal(0)) + amount
    return left
