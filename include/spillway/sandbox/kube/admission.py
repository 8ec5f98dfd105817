"""What the API server checks of an object and fills in before it stores it."""

from __future__ import annotations

import base64
import re
from typing import Any

from spillway.sandbox.kube.quantities import quantity
from spillway.sandbox.kube.resources import JOBS, NAMESPACES, NODES, PODS, SECRETS, Object, Resource
from spillway.sandbox.kube.status import invalid

NOT_READY = "node.kubernetes.io/not-ready"
UNREACHABLE = "node.kubernetes.io/unreachable"

_NAME = re.compile(r"[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?")
_POD_DEFAULTS: Object = {
    "restartPolicy": "Always",
    "terminationGracePeriodSeconds": 30,
    "dnsPolicy": "ClusterFirst",
    "schedulerName": "default-scheduler",
    "securityContext": {},
    "enableServiceLinks": True,
    "priority": 0,
}
_CONTAINER_DEFAULTS: Object = {
    "terminationMessagePath": "/dev/termination-log",
    "terminationMessagePolicy": "File",
    "imagePullPolicy": "IfNotPresent",
}


def check_name(resource: Resource, name: str) -> None:
    """Raises ApiError 422 where the name is not a lowercase DNS subdomain."""
    if not _NAME.fullmatch(name):
        problem = (
            f'Invalid value: "{name}": a lowercase RFC 1123 subdomain must consist of lower case alphanumeric '
            "characters, '-' or '.', and must start and end with an alphanumeric character"
        )
        raise invalid(resource, name, [("metadata.name", problem)])


def admit(resource: Resource, obj: Object, *, pod_eviction_after_seconds: int) -> None:
    """Check the object and fill in its defaults, in place. Raises ApiError 422 with every cause found."""
    if resource is PODS:
        _check_pod_spec(resource, obj, obj.get("spec") or {}, "spec")
        _default_pod_spec(obj["spec"], pod_eviction_after_seconds)
    elif resource is JOBS:
        _admit_job(obj)
    elif resource is NODES:
        obj.setdefault("spec", {})
    elif resource is NAMESPACES:
        obj["spec"] = {"finalizers": ["kubernetes"]}
    elif resource is SECRETS:
        for key, value in (obj.pop("stringData", None) or {}).items():
            obj.setdefault("data", {})[key] = base64.b64encode(value.encode()).decode()
        obj.setdefault("type", "Opaque")


def first_status(resource: Resource, obj: Object) -> Object:
    """The status of an object that was just made."""
    if resource is PODS:
        asks = any(container.get("resources") for container in obj["spec"]["containers"])
        return {"phase": "Pending", "qosClass": "Burstable" if asks else "BestEffort"}
    return {"phase": "Active"} if resource is NAMESPACES else {}


def _check_pod_spec(resource: Resource, obj: Object, spec: Object, path: str) -> None:
    causes: list[tuple[str, str]] = []
    containers = spec.get("containers") or []
    if not containers:
        causes.append((f"{path}.containers", "Required value"))
    for kind in ("containers", "initContainers"):
        for number, container in enumerate(spec.get(kind) or []):
            causes += _container_causes(container, f"{path}.{kind}[{number}]")
    if causes:
        raise invalid(resource, obj["metadata"]["name"], causes)


def _container_causes(container: Object, path: str) -> list[tuple[str, str]]:
    causes = [(f"{path}.{field}", "Required value") for field in ("name", "image") if not container.get(field)]
    for kind in ("limits", "requests"):
        for name, amount in ((container.get("resources") or {}).get(kind) or {}).items():
            field = f"{path}.resources.{kind}[{name}]"
            try:
                exact = quantity(amount)
            except ValueError as problem:
                causes.append((field, f"Invalid value: {problem}"))
                continue
            if "/" in name and exact != int(exact):
                causes.append((field, f'Invalid value: "{amount}": must be an integer'))
    return causes


def _default_pod_spec(spec: Object, pod_eviction_after_seconds: int) -> None:
    for name, value in _POD_DEFAULTS.items():
        spec.setdefault(name, value)
    for container in spec["containers"] + (spec.get("initContainers") or []):
        for name, value in _CONTAINER_DEFAULTS.items():
            container.setdefault(name, value)
        resources = container.setdefault("resources", {})
        if resources.get("limits"):
            resources["requests"] = {**resources["limits"], **(resources.get("requests") or {})}
    tolerations: list[dict[str, Any]] = spec.setdefault("tolerations", [])
    for key in (NOT_READY, UNREACHABLE):
        if not any(t.get("key") in {None, "", key} and t.get("effect") in {None, "", "NoExecute"} for t in tolerations):
            tolerations.append(
                {
                    "key": key,
                    "operator": "Exists",
                    "effect": "NoExecute",
                    "tolerationSeconds": pod_eviction_after_seconds,
                }
            )


def _admit_job(obj: Object) -> None:
    spec = obj.setdefault("spec", {})
    template = spec.get("template") or {}
    _check_pod_spec(JOBS, obj, template.get("spec") or {}, "spec.template.spec")
    name = obj["metadata"]["name"]
    if template["spec"].get("restartPolicy") not in {"Never", "OnFailure"}:
        problem = 'Required value: valid values: "OnFailure", "Never"'
        raise invalid(JOBS, name, [("spec.template.spec.restartPolicy", problem)])
    indexed = spec.setdefault("completionMode", "NonIndexed") == "Indexed"
    if indexed and spec.get("completions") is None:
        raise invalid(JOBS, name, [("spec.completions", "Required value: when completion mode is Indexed")])
    for field, value in (("completions", 1), ("parallelism", 1), ("backoffLimit", 6), ("suspend", False)):
        spec.setdefault(field, value)
