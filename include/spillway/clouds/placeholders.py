"""Pods that hold a whole node each and give way to any other: a cluster's autoscaler keeps their nodes, and adds them.

Their priority is the lowest that still counts: below -10 the cluster autoscaler takes pods for expendable, and adds
nothing for them. A node whose placeholder is deleted and that is cordoned is the autoscaler's to take.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from spillway.clouds.api import ApiRefusal, KubernetesApi
from spillway.clouds.base import PLACEHOLDER_LABEL, NodeGroup
from spillway.clouds.facts import TOLERATED_TAINTS, Json, is_over
from spillway.errors import PoolRefused
from spillway.model import Cluster, NodePool, ScalableNode

PRIORITY_CLASS = "spillway-placeholder"
PRIORITY = -10
_CLASSES = "/apis/scheduling.k8s.io/v1/priorityclasses"


class Placeholders:
    """A ``NodeProvider`` of one pool; ``image`` is what the pods run, which has nothing to do."""

    def __init__(self, *, cluster: Cluster, pool: NodePool, image: str, api: KubernetesApi) -> None:
        self._cluster, self._pool, self._image, self._api = cluster, pool, image, api
        self._path = f"/api/v1/namespaces/{cluster.namespace}/pods"

    def group(self, nodes: Sequence[ScalableNode]) -> NodeGroup:
        """The autoscaler is asked for nodes of what runs and of placeholders; which there are Kubernetes knows."""
        staying = [node for node in nodes if not node.draining]
        return NodeGroup(wanted=_taken(staying) + len(self._placed(staying)[0]), machines=None)

    def resize(self, wanted: int, *, kept: Sequence[ScalableNode], leaving: Sequence[str]) -> None:
        staying = [node for node in kept if not node.draining]
        placed, stray = self._placed(staying)
        # A node that a person has cordoned, and one that drains, counts for what it is; no pod can be bound to it.
        needed = max(0, wanted - _taken(staying) - (len(kept) - len(staying)))
        placed.sort(key=lambda pod: "nodeName" not in pod["spec"])  # those that wait for a node go first
        for pod in (*stray, *placed[needed:]):
            self._delete(pod["metadata"]["name"])
        for _ in range(needed - len(placed)):
            self._create()

    def _placed(self, staying: Sequence[ScalableNode]) -> tuple[list[Json], list[Json]]:
        """The placeholders that wait for a node or hold one of these, and all others."""
        names = {None, *(node.name for node in staying)}
        labelled = {"labelSelector": f"{PLACEHOLDER_LABEL}={self._pool.name}"}
        found = [pod for pod in self._api.items(self._path, labelled) if not pod["metadata"].get("deletionTimestamp")]
        placed = [pod for pod in found if not is_over(pod) and pod["spec"].get("nodeName") in names]
        return placed, [pod for pod in found if pod not in placed]

    def _create(self) -> None:
        for attempt in range(2):
            try:
                self._api.json("POST", self._path, body=self._manifest())
                return
            except ApiRefusal as refusal:
                if attempt or "no PriorityClass" not in refusal.problem:
                    raise PoolRefused(
                        f"{self._cluster.name}/{self._pool.name}",
                        "a placeholder pod",
                        refusal.problem,
                        fix=f"let the namespace '{self._cluster.namespace}' hold such pods",
                    ) from refusal
            self._create_class()

    def _create_class(self) -> None:
        priority_class = {
            "metadata": {"name": PRIORITY_CLASS},
            "value": PRIORITY,
            "preemptionPolicy": "Never",
            "description": "Holds nodes for training; gives way to every other pod.",
        }
        try:
            self._api.json("POST", _CLASSES, body=priority_class)
        except ApiRefusal as refusal:
            if refusal.status != 409:  # somebody else created it just now
                raise

    def _delete(self, name: str) -> None:
        try:
            self._api.json("DELETE", f"{self._path}/{name}", {"gracePeriodSeconds": 0})
        except ApiRefusal as refusal:
            if refusal.status != 404:
                raise

    def _manifest(self) -> Mapping[str, Any]:
        return {
            "metadata": {
                "generateName": f"spillway-placeholder-{self._pool.name}-",
                "labels": {PLACEHOLDER_LABEL: self._pool.name},
            },
            "spec": {
                "priorityClassName": PRIORITY_CLASS,
                "restartPolicy": "Never",  # one that has ended is replaced when the pool is scaled next
                "terminationGracePeriodSeconds": 0,
                "automountServiceAccountToken": False,
                "enableServiceLinks": False,
                "nodeSelector": dict(self._pool.node_selector),
                "tolerations": [{"key": key, "operator": "Exists"} for key in TOLERATED_TAINTS],
                "securityContext": {
                    "runAsNonRoot": True,
                    "runAsUser": 65535,
                    "seccompProfile": {"type": "RuntimeDefault"},
                },
                "containers": [
                    {
                        "name": "placeholder",
                        "image": self._image,
                        "resources": {"requests": self._whole_node(), "limits": self._whole_node()},
                        "securityContext": {
                            "allowPrivilegeEscalation": False,
                            "capabilities": {"drop": ["ALL"]},
                        },
                    }
                ],
            },
        }

    def _whole_node(self) -> Mapping[str, str]:
        """What no two pods of a node can have."""
        return {self._pool.gpu_resource: str(self._pool.devices_per_node)}


def _taken(nodes: Sequence[ScalableNode]) -> int:
    """How many of them have no room for a placeholder."""
    return sum(1 for node in nodes if node.pods and (not node.gpus or node.free_gpus < node.gpus))
