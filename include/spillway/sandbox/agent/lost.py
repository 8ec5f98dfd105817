"""The last status of pods that an agent finds on its node and that do not run there."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

Object = Mapping[str, Any]

_LOST = "the node agent was restarted and the pod's containers did not survive it"
_REJECTED = "Pod was rejected as the node is shutting down."


def was_reported(pod: Object) -> bool:
    """Whether the API server was told that a container of the pod was started."""
    statuses = pod["status"].get("containerStatuses") or []
    return any("waiting" not in status["state"] for status in statuses)


def lost_status(pod: Object) -> dict[str, Any]:
    """Of a pod that an earlier agent had started: how its containers ended, where it was reported, else unknown."""
    reported = {status["name"]: status for status in pod["status"].get("containerStatuses") or []}
    statuses = [_ended(spec, reported.get(spec["name"])) for spec in pod["spec"]["containers"]]
    return {**_failed("NodeAgentRestarted", _LOST), "containerStatuses": statuses}


def rejected_status() -> dict[str, Any]:
    """Of a pod that came to a node which is shutting down."""
    return _failed("NodeShutdown", _REJECTED)


def _ended(spec: Object, reported: Object | None) -> dict[str, Any]:
    if reported is not None and "terminated" in reported["state"]:
        return dict(reported)
    base = {"name": spec["name"], "image": spec["image"], "imageID": "", "restartCount": 0, **(reported or {})}
    unknown = {"exitCode": 137, "reason": "ContainerStatusUnknown", "message": _LOST}
    return {**base, "ready": False, "started": False, "state": {"terminated": unknown}}


def _failed(reason: str, message: str) -> dict[str, Any]:
    disruption = {"type": "DisruptionTarget", "status": "True", "reason": "TerminationByKubelet", "message": message}
    unready = {"type": "Ready", "status": "False", "reason": "PodFailed"}
    return {"phase": "Failed", "reason": reason, "message": message, "conditions": [disruption, unready]}
