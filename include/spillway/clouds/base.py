"""The cluster that runs are launched on and observed through."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Protocol

from spillway.errors import SpillwayError
from spillway.model import Cluster, ClusterState, PodState, PoolUse, ScalableNode

ATTEMPT_LABEL = "spillway.dev/attempt"
RUN_LABEL = "spillway.dev/run"
OWNED_LABEL = "spillway.dev/owned"
PLACEHOLDER_LABEL = "spillway.dev/placeholder"
"""Of pods that hold a node and give way to any other; its value is their pool."""
INSTALLATION_LABEL = "spillway.dev/installation"
"""Which ledger an object belongs to: several installations may share a cluster, even a namespace."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LogLines:
    """Log lines in order, and the moment to ask from next so that none is shown twice."""

    lines: tuple[str, ...]
    until: datetime | None


class ClusterClient(Protocol):
    """One Kubernetes cluster and one namespace of it.

    Every method raises ``Unreachable`` (5xx, 429 with its pause, reset, time-out) or ``AccessDenied``, and none of
    these says anything about the pod.
    """

    @property
    def cluster(self) -> Cluster: ...

    def describe(self) -> ClusterState:
        """Nodes, our pods, and every pod of any namespace that takes GPUs, pending ones included."""

    def launch(self, manifest: Mapping[str, Any]) -> PodState:
        """Create the pod, or adopt the one of that name, attempt and installation: twice gives one pod."""

    def state(self, pod_name: str, *, last_node: str | None = None) -> PodState:
        """The pod as it is now; phase GONE where there is none of that name.

        ``last_node`` is where it was seen: a pod that is gone no longer tells it, the node may still tell something.
        """

    def stop(self, pod_name: str, *, grace: timedelta) -> None:
        """Ask the pod to end within the grace; a pod that is gone is a success."""

    def remove(self, pod: PodState) -> None:
        """Take an ended pod out of the API, with all that was created for it; only the one of that uid.

        One that is gone, or replaced by another of its name, is a success.
        """

    def logs(self, pod_name: str, *, since: datetime | None = None, tail: int | None = None) -> LogLines:
        """The trainer container's log from ``since``; empty where there is none yet."""

    def apply(self, objects: Sequence[Mapping[str, Any]]) -> None:
        """Create or update Secrets, ConfigMaps and Services to the given content."""

    def applied(self, installation: str) -> tuple[tuple[str, str], ...]:
        """Kind and name of every Secret and ConfigMap of this installation; what they hold is not asked for."""

    def withdraw(self, kind: str, name: str) -> None:
        """Take a Secret or ConfigMap out of the namespace; one that is gone is a success."""

    def owned(self, installation: str | None) -> tuple[PodState, ...]:
        """Every pod of the namespace that this installation launched; for None those that carry no installation."""


class NodePoolScaler(Protocol):
    """The node pools of one cluster that can be scaled.

    Every method raises ``Unreachable`` or ``AccessDenied`` where the cluster's API gives no answer.
    """

    def pools(self, *, mark: bool = True) -> Mapping[str, PoolUse | SpillwayError]:
        """Each pool with its nodes as they are now; in its place the error where its provider gives no answer.

        A node is idle since it was first seen without a pod; a pod that came and went between two looks was not seen.

        Args:
            mark: write that moment to the node, and nothing else; without it only what was written before is known.
        """

    def set_target(
        self, pool: str, nodes: int, *, remove: Sequence[str] = (), drain: Sequence[str] = ()
    ) -> tuple[str, ...]:
        """Have the pool come to so many nodes: desired state, so that twice is once.

        What is not named stays, also where that is more than was asked for. Nodes that were to leave before and are
        still there come back into use where more are wanted than are left without them.

        Args:
            remove: the nodes that leave, no others ever; one that is gone already is a success. They are cordoned
                first and looked at again once every scheduler knows that; one on which a pod runs or is bound then is
                left where it is and used again.
            drain: nodes that leave too, but for those with pods, which stay cordoned for the next time.
        Returns:
            Those named that stay for their pods.
        Raises:
            UnknownName: the cluster has no such pool that can be scaled.
            PoolRefused: a node of another pool was named, it is further from what the pool may have than what it was
                asked for last, or the provider does not give so many.
        """


@dataclass(frozen=True, slots=True, kw_only=True)
class Machine:
    """One machine as its provider knows it. ``name`` is its node's, or ends the node's ``providerID``."""

    name: str
    ordered_at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeGroup:
    """A pool as its provider knows it; ``machines`` is None where it is not the one who knows which there are."""

    wanted: int
    machines: tuple[Machine, ...] | None
    problem: str = ""


class NodeProvider(Protocol):
    """Who brings and takes the nodes of one pool.

    Every method raises ``Unreachable``, ``AccessDenied`` or ``Missing``, and ``PoolRefused`` for what it will not do.
    """

    def group(self, nodes: Sequence[ScalableNode]) -> NodeGroup:
        """The pool as it is now; ``nodes`` are those that Kubernetes has of it."""

    def resize(self, wanted: int, *, kept: Sequence[ScalableNode], leaving: Sequence[str]) -> None:
        """Take those machines, whose nodes are cordoned and empty, and bring as many as are wanted beside those kept.

        It never chooses one to go: ``wanted`` is at least how many are kept.
        """
