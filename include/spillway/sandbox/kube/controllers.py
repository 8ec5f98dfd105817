"""What a control plane does by itself: judge nodes, evict from lost ones, collect pods that have no node."""

from __future__ import annotations

from datetime import timedelta

from spillway.sandbox.kube.admission import NOT_READY, UNREACHABLE
from spillway.sandbox.kube.objects import Objects
from spillway.sandbox.kube.quantities import moment
from spillway.sandbox.kube.resources import (
    EVENTS,
    LEASES,
    NAMESPACES,
    NODES,
    PODS,
    Object,
    condition,
    is_terminal,
    name_of,
    set_condition,
)
from spillway.sandbox.kube.scheduler import tolerations

LEASE_NAMESPACE = "kube-node-lease"
EVENTS_KEPT = timedelta(hours=1)


class NodeLifecycle:
    """Marks a node whose heartbeat stopped, and deletes the pods that do not tolerate its taints.

    Ages count from when this process saw a heartbeat, not from what the node's clock wrote: a server that was down for
    a while must not declare every node lost when it comes back.
    """

    def __init__(self, objects: Objects, lost_after: timedelta) -> None:
        self._objects, self._lost_after = objects, lost_after
        self._heartbeats: dict[str, tuple[str, float]] = {}
        self._without_node: dict[str, float] = {}

    def run(self, uptime_seconds: float) -> None:
        """One pass; ``uptime_seconds`` is a clock that never jumps."""
        nodes = {name_of(node): node for node in self._objects.store.list(NODES)}
        for name, node in nodes.items():
            nodes[name] = self._judge(node, lost=self._silent(name, uptime_seconds))
        for pod in self._objects.store.list(PODS):
            where = pod["spec"].get("nodeName")
            if where and where not in nodes:
                self._collect(pod, uptime_seconds)
            elif where and not is_terminal(pod) and not pod["metadata"].get("deletionTimestamp"):
                self._evict(pod, nodes[where])

    def _silent(self, name: str, uptime_seconds: float) -> bool:
        lease = self._objects.store.find(LEASES, LEASE_NAMESPACE, name)
        beat = str((lease or {}).get("spec", {}).get("renewTime"))
        seen, since = self._heartbeats.get(name, ("", 0.0))
        if beat != seen:
            since = uptime_seconds
            self._heartbeats[name] = beat, since
        return uptime_seconds - since > self._lost_after.total_seconds()

    def _judge(self, node: Object, *, lost: bool) -> Object:
        now, silent = self._objects.now(), "Kubelet stopped posting node status."
        ready = condition(node, "Ready")
        if lost and ready and ready["status"] != "Unknown":
            node = self._objects.edit(
                node, lambda new: set_condition(new, "Ready", "Unknown", "NodeStatusUnknown", silent, now=now)
            )
            self._objects.event(node, "Normal", "NodeNotReady", f"Node {name_of(node)} is lost", "node-controller")
            ready = condition(node, "Ready")
        status = ready["status"] if ready else "False"
        key = {"True": None, "False": NOT_READY}.get(status, UNREACHABLE)
        taints = node["spec"].get("taints") or []
        wanted = [taint for taint in taints if taint["key"] not in {NOT_READY, UNREACHABLE} - {key}]
        if key and not any(taint["key"] == key for taint in taints):
            wanted += [{"key": key, "effect": effect, "timeAdded": now} for effect in ("NoSchedule", "NoExecute")]
        if wanted != taints:
            node = self._objects.edit(node, lambda new: new["spec"].update(taints=wanted))
        return node

    def _evict(self, pod: Object, node: Object) -> None:
        for taint in node["spec"].get("taints") or []:
            if taint["effect"] == "NoExecute" and self._intolerable(pod, taint):
                self._objects.disrupt(
                    pod, "DeletionByTaintManager", f"Taint manager: deleting due to NoExecute taint {taint['key']}"
                )
                return

    def _intolerable(self, pod: Object, taint: Object) -> bool:
        matching = tolerations(pod, taint)
        limits = [t["tolerationSeconds"] for t in matching if t.get("tolerationSeconds") is not None]
        if not matching:
            return True
        added = taint.get("timeAdded")
        return bool(limits and added) and self._objects.clock() - moment(str(added)) > timedelta(seconds=min(limits))

    def _collect(self, pod: Object, uptime_seconds: float) -> None:
        """Take out a pod whose node object is gone, once that has lasted: a node may be replaced under its name."""
        uid = pod["metadata"]["uid"]
        since = self._without_node.setdefault(uid, uptime_seconds)
        if uptime_seconds - since >= self._lost_after.total_seconds():
            del self._without_node[uid]
            self._objects.remove_orphan(pod, "DeletionByPodGC", "PodGC: node no longer exists")


def finish_namespaces(objects: Objects) -> None:
    """Empty and remove the namespaces that are being deleted."""
    for namespace in objects.store.list(NAMESPACES):
        if namespace["metadata"].get("deletionTimestamp"):
            objects.finish_namespace(namespace)


def expire_events(objects: Objects) -> None:
    """Delete the events that are older than an hour."""
    oldest = objects.clock() - EVENTS_KEPT
    for event in objects.store.list(EVENTS):
        if moment(event["metadata"]["creationTimestamp"]) < oldest:
            objects.delete(EVENTS, event)
