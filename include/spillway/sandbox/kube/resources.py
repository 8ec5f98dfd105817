"""The kinds of objects that the API server serves."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

Object = dict[str, Any]
"""A Kubernetes object as JSON. The store's objects are shared between readers: copy before changing one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Resource:
    """One kind."""

    plural: str
    kind: str
    group_version: str = "v1"
    namespaced: bool = True
    subresources: tuple[str, ...] = ()
    short_name: str = ""

    @property
    def status(self) -> bool:
        """Whether the status is a subresource, which writes to the object itself can't touch."""
        return "status" in self.subresources

    @property
    def group(self) -> str:
        return self.group_version.rpartition("/")[0]

    @property
    def qualified(self) -> str:
        """``pods`` or ``jobs.batch``, as messages call it."""
        return f"{self.plural}.{self.group}" if self.group else self.plural

    @property
    def key(self) -> tuple[str, str]:
        return self.group_version, self.plural


PODS = Resource(plural="pods", kind="Pod", short_name="po", subresources=("status", "log", "eviction", "binding"))
NODES = Resource(plural="nodes", kind="Node", short_name="no", namespaced=False, subresources=("status",))
NAMESPACES = Resource(
    plural="namespaces", kind="Namespace", short_name="ns", namespaced=False, subresources=("status",)
)
CONFIG_MAPS = Resource(plural="configmaps", kind="ConfigMap", short_name="cm")
SECRETS = Resource(plural="secrets", kind="Secret")
SERVICES = Resource(plural="services", kind="Service", short_name="svc", subresources=("status",))
EVENTS = Resource(plural="events", kind="Event", short_name="ev")
JOBS = Resource(plural="jobs", kind="Job", group_version="batch/v1", subresources=("status",))
PRIORITY_CLASSES = Resource(
    plural="priorityclasses",
    kind="PriorityClass",
    group_version="scheduling.k8s.io/v1",
    namespaced=False,
    short_name="pc",
)
LEASES = Resource(plural="leases", kind="Lease", group_version="coordination.k8s.io/v1")

RESOURCES: dict[tuple[str, str], Resource] = {
    resource.key: resource
    for resource in (
        PODS,
        NODES,
        NAMESPACES,
        CONFIG_MAPS,
        SECRETS,
        SERVICES,
        EVENTS,
        JOBS,
        LEASES,
        PRIORITY_CLASSES,
    )
}
GROUP_VERSIONS: tuple[str, ...] = tuple(dict.fromkeys(version for version, _ in RESOURCES))


def resource_of(obj: Object) -> Resource:
    """The resource that an object of the store belongs to."""
    return next(r for r in RESOURCES.values() if (r.group_version, r.kind) == (obj["apiVersion"], obj["kind"]))


def name_of(obj: Object) -> str:
    return str(obj["metadata"]["name"])


def namespace_of(obj: Object) -> str | None:
    namespace: str | None = obj["metadata"].get("namespace")
    return namespace


def is_terminal(pod: Object) -> bool:
    """Whether the pod has ended and takes nothing of its node any more."""
    return pod.get("status", {}).get("phase") in {"Succeeded", "Failed"}


def condition(obj: Object, kind: str) -> Object | None:
    """The condition of that type."""
    return next((c for c in obj.get("status", {}).get("conditions") or [] if c["type"] == kind), None)


def set_condition(obj: Object, kind: str, status: str, reason: str, message: str, *, now: str) -> None:
    """Set a condition in place; its time is that of the last change of its status."""
    conditions = obj.setdefault("status", {}).setdefault("conditions", [])
    found = condition(obj, kind)
    since = found["lastTransitionTime"] if found and found["status"] == status else now
    new = {"type": kind, "status": status, "reason": reason, "message": message, "lastTransitionTime": since}
    conditions[:] = [*(c for c in conditions if c is not found), new]
