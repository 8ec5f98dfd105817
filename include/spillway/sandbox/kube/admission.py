"""What the API server checks of an object and fills in before it stores it."""

from __future__ import annotations

import base64
import re

from spillway.sandbox.kube.quantities import requests
from spillway.sandbox.kube.resources import JOBS, NAMESPACES, NODES, PODS, SECRETS, Object, Resource, name_of
from spillway.sandbox.kube.status import invalid

NOT_READY = "node.kubernetes.io/not-ready"
UNREACHABLE = "node.kubernetes.io/unreachable"

_NAME = re.compile(r"[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?")
_POD_DEFAULTS: Object = {"restartPolicy": "Always", "terminationGracePeriodSeconds": 30}
_CONTAINER_DEFAULTS: Object = {
    "terminationMessagePath": "/dev/termination-log",
    "terminationMessagePolicy": "File",
    "resources": {},
}


def check_name(resource: Resource, name: str) -> None:
    """Raises ApiError 422 where the name is not a lowercase DNS subdomain."""
    if not _NAME.fullmatch(name):
        problem = (
            f'Invalid value: "{name}": a lowercase RFC 1123 subdomain must consist of lower case alphanumeric '
            "characters, '-' or '.', and must start and end with an alphanumeric character"
        )
        raise invalid(resource, name, "metadata.name", problem)


def admit(resource: Resource, obj: Object, *, pod_eviction_after_seconds: int) -> None:
    """Check the object and fill in its defaults, in place. Raises ApiError 422 with the first problem."""
    if resource is PODS:
        _check_pod(resource, name_of(obj), obj)
        _default_pod_spec(obj["spec"], pod_eviction_after_seconds)
    elif resource is JOBS:
        _admit_job(obj)
    elif resource is NODES:
        obj.setdefault("spec", {})
    elif resource is SECRETS:
        for key, value in (obj.pop("stringData", None) or {}).items():
            obj.setdefault("data", {})[key] = base64.b64encode(value.encode()).decode()
        obj.setdefault("type", "Opaque")


def first_status(resource: Resource) -> Object:
    """The status of an object that was just made."""
    phase = {PODS: "Pending", NAMESPACES: "Active"}.get(resource)
    return {"phase": phase} if phase else {}


def _check_pod(resource: Resource, name: str, pod: Object) -> None:
    """``pod`` may be the template of a job, which is the resource then."""
    spec = pod.get("spec") or {}
    if not spec.get("containers"):
        raise invalid(resource, name, "spec.containers", "Required value")
    for container in spec["containers"] + (spec.get("initContainers") or []):
        for field in ("name", "image"):
            if not container.get(field):
                raise invalid(resource, name, f"spec.containers[*].{field}", "Required value")
    try:
        requests(pod)
    except ValueError as problem:
        raise invalid(resource, name, "spec.containers[*].resources", f"Invalid value: {problem}") from problem


def _default_pod_spec(spec: Object, pod_eviction_after_seconds: int) -> None:
    for name, value in _POD_DEFAULTS.items():
        spec.setdefault(name, value)
    for container in spec["containers"] + (spec.get("initContainers") or []):
        for name, value in _CONTAINER_DEFAULTS.items():
            container.setdefault(name, value)
    tolerations = spec.setdefault("tolerations", [])
    for key in (NOT_READY, UNREACHABLE):
        if not any(t.get("key") in {None, "", key} and t.get("effect") in {None, "", "NoExecute"} for t in tolerations):
            toleration = {"key": key, "operator": "Exists", "effect": "NoExecute"}
            tolerations.append({**toleration, "tolerationSeconds": pod_eviction_after_seconds})


def _admit_job(job: Object) -> None:
    spec, name = job.get("spec") or {}, name_of(job)
    template = spec.get("template") or {}
    _check_pod(JOBS, name, template)
    for path, seen, served in (
        ("spec.completionMode", spec.get("completionMode"), "Indexed"),
        ("spec.template.spec.restartPolicy", template["spec"].get("restartPolicy"), "Never"),
    ):
        if seen != served:
            raise invalid(JOBS, name, path, f'Unsupported value: "{seen}": supported values: "{served}"')
    if spec.get("completions") is None:
        raise invalid(JOBS, name, "spec.completions", "Required value: when completion mode is Indexed")
    spec.setdefault("parallelism", 1)
    spec.setdefault("backoffLimit", 6)
