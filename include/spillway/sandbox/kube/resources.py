"""The kinds of objects that the API server serves."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

Object = dict[str, Any]
"""A Kubernetes object as JSON. The store's objects are shared between readers: copy before changing one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Resource:
    """One kind. ``status`` is True where the status has its own subresource and spec writes can't touch it."""

    plural: str
    kind: str
    group_version: str = "v1"
    namespaced: bool = True
    status: bool = False
    short_names: tuple[str, ...] = ()
    subresources: tuple[str, ...] = ()

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


PODS = Resource(
    plural="pods", kind="Pod", status=True, short_names=("po",), subresources=("log", "eviction", "binding")
)
NODES = Resource(plural="nodes", kind="Node", namespaced=False, status=True, short_names=("no",))
NAMESPACES = Resource(plural="namespaces", kind="Namespace", namespaced=False, status=True, short_names=("ns",))
CONFIG_MAPS = Resource(plural="configmaps", kind="ConfigMap", short_names=("cm",))
SECRETS = Resource(plural="secrets", kind="Secret")
SERVICES = Resource(plural="services", kind="Service", status=True, short_names=("svc",))
EVENTS = Resource(plural="events", kind="Event", short_names=("ev",))
JOBS = Resource(plural="jobs", kind="Job", group_version="batch/v1", status=True)
LEASES = Resource(plural="leases", kind="Lease", group_version="coordination.k8s.io/v1")
PRIORITY_CLASSES = Resource(
    plural="priorityclasses",
    kind="PriorityClass",
    group_version="scheduling.k8s.io/v1",
    namespaced=False,
    short_names=("pc",),
)
DISRUPTION_BUDGETS = Resource(
    plural="poddisruptionbudgets",
    kind="PodDisruptionBudget",
    group_version="policy/v1",
    status=True,
    short_names=("pdb",),
)

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
        DISRUPTION_BUDGETS,
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


def set_condition(obj: Object, kind: str, status: str, reason: str, message: str, *, now: str) -> bool:
    """Set a condition in place; False where it said just that already."""
    conditions = obj.setdefault("status", {}).setdefault("conditions", [])
    found = condition(obj, kind)
    new = {"type": kind, "status": status, "reason": reason, "message": message}
    if found is None:
        conditions.append({**new, "lastTransitionTime": now})
        return True
    if all(found.get(field) == value for field, value in new.items()):
        return False
    found.update(new, lastTransitionTime=found["lastTransitionTime"] if found["status"] == status else now)
    return True
