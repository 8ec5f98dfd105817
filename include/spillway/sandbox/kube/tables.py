"""Objects as the tables that kubectl prints."""

from __future__ import annotations

from datetime import datetime

from spillway.sandbox.kube.quantities import moment
from spillway.sandbox.kube.resources import NODES, PODS, Object, Resource, condition, name_of


def table(resource: Resource, items: list[Object], now: datetime) -> Object:
    """A meta.k8s.io/v1 Table with a row per object."""
    rows = [_cells(resource, obj, now) for obj in items]
    columns = rows[0] if rows else {"Name": ""}
    meta = {"apiVersion": "meta.k8s.io/v1"}
    return {
        **meta,
        "kind": "Table",
        "columnDefinitions": [{"name": name, "type": "string"} for name in columns],
        "rows": [
            {
                "cells": list(row.values()),
                "object": {**meta, "kind": "PartialObjectMetadata", "metadata": obj["metadata"]},
            }
            for row, obj in zip(rows, items, strict=True)
        ],
    }


def _cells(resource: Resource, obj: Object, now: datetime) -> dict[str, str]:
    """What a row says, by its column."""
    cells = {"Name": name_of(obj)}
    if resource is PODS:
        containers = obj["status"].get("containerStatuses") or []
        cells["Ready"] = f"{sum(c['ready'] for c in containers)}/{len(obj['spec']['containers'])}"
        cells["Status"] = _pod_status(obj, containers)
        cells["Restarts"] = str(sum(c["restartCount"] for c in containers))
    elif resource is NODES:
        ready = (condition(obj, "Ready") or {}).get("status") == "True"
        state = "Ready" if ready else "NotReady"
        cells["Status"] = f"{state},SchedulingDisabled" if obj["spec"].get("unschedulable") else state
    age = int((now - moment(obj["metadata"]["creationTimestamp"])).total_seconds())
    return {**cells, "Age": f"{age}s" if age < 120 else f"{age // 60}m"}


def _pod_status(pod: Object, containers: list[Object]) -> str:
    if pod["metadata"].get("deletionTimestamp"):
        return "Terminating"
    states = [c["state"].get("waiting") or c["state"].get("terminated") or {} for c in containers]
    reasons = [pod["status"].get("reason"), *(state.get("reason") for state in states), pod["status"]["phase"]]
    return str(next(filter(None, reasons)))
