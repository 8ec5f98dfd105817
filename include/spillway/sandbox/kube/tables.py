"""Objects as the tables that kubectl prints."""

from __future__ import annotations

from datetime import datetime

from spillway.sandbox.kube.quantities import moment
from spillway.sandbox.kube.resources import NODES, PODS, Object, Resource, condition, name_of

_COLUMNS = {
    PODS.key: ("Name", "Ready", "Status", "Restarts", "Age", "IP", "Node"),
    NODES.key: ("Name", "Status", "Roles", "Age", "Version"),
}
_WIDE_ONLY = {"IP", "Node"}


def table(resource: Resource, items: list[Object], revision: int, now: datetime) -> Object:
    """A meta.k8s.io/v1 Table with a row per object."""
    columns = _COLUMNS.get(resource.key, ("Name", "Age"))
    return {
        "kind": "Table",
        "apiVersion": "meta.k8s.io/v1",
        "metadata": {"resourceVersion": str(revision)},
        "columnDefinitions": [
            {
                "name": name,
                "type": "string",
                "format": "name" if name == "Name" else "",
                "description": "",
                "priority": int(name in _WIDE_ONLY),
            }
            for name in columns
        ],
        "rows": [
            {
                "cells": [_cells(resource, obj, now)[name] for name in columns],
                "object": {
                    "kind": "PartialObjectMetadata",
                    "apiVersion": "meta.k8s.io/v1",
                    "metadata": obj["metadata"],
                },
            }
            for obj in items
        ],
    }


def _cells(resource: Resource, obj: Object, now: datetime) -> dict[str, str]:
    age = int((now - moment(obj["metadata"]["creationTimestamp"])).total_seconds())
    cells = {"Name": name_of(obj), "Age": f"{age}s" if age < 120 else f"{age // 60}m"}
    if resource is PODS:
        cells |= _pod_cells(obj)
    elif resource is NODES:
        ready = (condition(obj, "Ready") or {}).get("status") == "True"
        state = "Ready" if ready else "NotReady"
        cells["Status"] = f"{state},SchedulingDisabled" if obj["spec"].get("unschedulable") else state
        cells["Roles"] = "<none>"
        cells["Version"] = obj.get("status", {}).get("nodeInfo", {}).get("kubeletVersion", "")
    return cells


def _pod_cells(pod: Object) -> dict[str, str]:
    status = pod["status"]
    containers = status.get("containerStatuses") or []
    states = [c.get("state", {}).get("waiting") or c.get("state", {}).get("terminated") or {} for c in containers]
    reason = next((state["reason"] for state in states if state.get("reason")), None)
    shown = status.get("reason") or reason or status["phase"]
    return {
        "Ready": f"{sum(c['ready'] for c in containers)}/{len(pod['spec']['containers'])}",
        "Status": "Terminating" if pod["metadata"].get("deletionTimestamp") else shown,
        "Restarts": str(sum(c["restartCount"] for c in containers)),
        "IP": status.get("podIP", "<none>"),
        "Node": pod["spec"].get("nodeName", "<none>"),
    }
