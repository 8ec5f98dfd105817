"""Create, replace and delete with the API server's rules: names, uids, versions, status, grace, owners."""

from __future__ import annotations

import copy
import secrets
import uuid
from collections.abc import Callable
from datetime import timedelta
from typing import Any

from spillway.sandbox.kube import status
from spillway.sandbox.kube.admission import admit, check_name, first_status
from spillway.sandbox.kube.quantities import Clock, stamp
from spillway.sandbox.kube.resources import (
    EVENTS,
    JOBS,
    NAMESPACES,
    NODES,
    PODS,
    PRIORITY_CLASSES,
    Object,
    Resource,
    is_terminal,
    name_of,
    namespace_of,
    resource_of,
    set_condition,
)
from spillway.sandbox.kube.store import Store

_SUFFIX = "bcdfghjklmnpqrstvwxz2456789"
_SERVER_FIELDS = ("uid", "creationTimestamp", "namespace", "name", "generateName", "generation")
_DELETION_FIELDS = ("deletionTimestamp", "deletionGracePeriodSeconds")
_CHANGEABLE_POD_FIELDS = {"activeDeadlineSeconds", "tolerations", "terminationGracePeriodSeconds", "nodeName"}


class Objects:
    """The writes of one cluster. Every method gives the object as it is stored afterwards."""

    def __init__(self, store: Store, clock: Clock, *, pod_eviction_after_seconds: int) -> None:
        self.store, self.clock = store, clock
        self._pod_eviction_after_seconds = pod_eviction_after_seconds

    def now(self) -> str:
        return stamp(self.clock())

    def create(self, resource: Resource, namespace: str | None, body: Object, *, dry_run: bool = False) -> Object:
        obj = copy.deepcopy(body)
        metadata = obj["metadata"] = dict(obj.get("metadata") or {})
        self._check_kind(resource, obj)
        if resource.namespaced:
            self._check_namespace(metadata, namespace)
        if not metadata.get("name"):
            if not metadata.get("generateName"):
                raise status.invalid(
                    resource, "", [("metadata.name", "Required value: name or generateName is required")]
                )
            metadata["name"] = metadata["generateName"] + "".join(secrets.choice(_SUFFIX) for _ in range(5))
        check_name(resource, metadata["name"])
        if self.store.find(resource, namespace, metadata["name"]):
            raise status.already_exists(resource, metadata["name"])
        self._admit(resource, obj)
        if resource.status and not (resource is NODES and obj.get("status")):
            obj["status"] = first_status(resource, obj)
        metadata.update(uid=str(uuid.uuid4()), creationTimestamp=self.now(), generation=1)
        for field in _DELETION_FIELDS:
            metadata.pop(field, None)
        if dry_run:
            metadata["resourceVersion"] = str(self.store.revision)
            return obj
        return self.store.put(resource, obj)

    def replace(
        self,
        resource: Resource,
        old: Object,
        body: Object,
        *,
        only_status: bool = False,
        dry_run: bool = False,
    ) -> Object:
        """Put ``body`` in the place of ``old``; of the two parts spec and status only one can change."""
        new = copy.deepcopy(body)
        metadata = new["metadata"] = dict(new.get("metadata") or {})
        self._check_kind(resource, new)
        self._check_preconditions(resource, old, metadata)
        for field in (*_SERVER_FIELDS, *_DELETION_FIELDS):
            metadata.pop(field, None)
            if field in old["metadata"]:
                metadata[field] = old["metadata"][field]
        metadata["resourceVersion"] = old["metadata"]["resourceVersion"]
        if only_status:
            new = {**copy.deepcopy(old), "metadata": metadata, "status": new.get("status") or {}}
        elif resource.status:
            new["status"] = copy.deepcopy(old.get("status") or {})
        if not only_status:
            self._check_spec(resource, old, new)
        if dry_run or new == old:
            return new
        if new.get("spec") != old.get("spec"):
            metadata["generation"] = old["metadata"].get("generation", 1) + 1
        if metadata.get("deletionTimestamp") and not metadata.get("finalizers") and resource not in {PODS, NAMESPACES}:
            return self._remove(resource, new)
        return self.store.put(resource, new)

    def edit(self, obj: Object, change: Callable[[Object], Any]) -> Object:
        """Apply a controller's change to a copy and store it."""
        new = copy.deepcopy(obj)
        change(new)
        return self.store.put(resource_of(obj), new)

    def delete(self, resource: Resource, obj: Object, options: Object | None = None) -> Object:
        """Delete at once, or mark as being deleted: pods with a grace, objects with finalizers, namespaces."""
        options = options or {}
        self._check_preconditions(resource, obj, options.get("preconditions") or {})
        if options.get("dryRun"):
            return obj
        metadata = obj["metadata"]
        grace = _grace(resource, obj, options)
        if grace > 0:
            if metadata.get("deletionTimestamp") and metadata["deletionGracePeriodSeconds"] <= grace:
                return obj
            return self.edit(obj, lambda new: self._mark_deleted(new, grace))
        if metadata.get("finalizers") or resource is NAMESPACES:
            return obj if metadata.get("deletionTimestamp") else self.edit(obj, lambda new: self._mark_deleted(new, 0))
        return self._remove(resource, obj, orphan=options.get("propagationPolicy") == "Orphan")

    def finish_namespace(self, namespace: Object) -> None:
        """Delete what is in a namespace that is going; when it is empty, the namespace too."""
        name = name_of(namespace)
        inside = [(r, o) for r, o in self.store.everything() if namespace_of(o) == name]
        for resource, obj in inside:
            self._delete_if_there(resource, obj)
        if not any(namespace_of(obj) == name for _, obj in self.store.everything()):
            self._remove(NAMESPACES, namespace)

    def disrupt(self, pod: Object, reason: str, message: str, options: Object | None = None) -> Object:
        """Delete a pod for a reason of the cluster, which its DisruptionTarget condition tells."""
        now = self.now()
        pod = self.edit(pod, lambda new: set_condition(new, "DisruptionTarget", "True", reason, message, now=now))
        return self.delete(PODS, pod, options)

    def remove_orphan(self, pod: Object, reason: str, message: str) -> None:
        """Fail a pod whose node is gone and take it out without waiting for anybody."""
        now = self.now()

        def fail(new: Object) -> None:
            new["status"]["phase"] = "Failed"
            set_condition(new, "DisruptionTarget", "True", reason, message, now=now)

        self._remove(PODS, pod if is_terminal(pod) else self.edit(pod, fail))

    def bind(self, pod: Object, node: str) -> Object:
        if pod["spec"].get("nodeName"):
            message = f"pod {name_of(pod)} is already assigned to node {pod['spec']['nodeName']}"
            raise status.ApiError(409, "Conflict", message)
        now = self.now()

        def assign(new: Object) -> None:
            new["spec"]["nodeName"] = node
            set_condition(new, "PodScheduled", "True", "", "", now=now)

        bound = self.edit(pod, assign)
        where = f"{namespace_of(pod)}/{name_of(pod)}"
        self.event(bound, "Normal", "Scheduled", f"Successfully assigned {where} to {node}", "default-scheduler")
        return bound

    def event(self, obj: Object, kind: str, reason: str, message: str, component: str) -> None:
        """Record an event about the object; nothing where its namespace is going."""
        namespace = namespace_of(obj) or "default"
        about = {key: obj["metadata"].get(key) for key in ("name", "namespace", "uid") if obj["metadata"].get(key)}
        event = {
            "metadata": {"name": f"{name_of(obj)}.{uuid.uuid4().hex[:16]}"},
            "involvedObject": {"kind": obj["kind"], "apiVersion": obj["apiVersion"], **about},
            "type": kind,
            "reason": reason,
            "message": message,
            "count": 1,
            "firstTimestamp": self.now(),
            "lastTimestamp": self.now(),
            "source": {"component": component},
        }
        try:
            self.create(EVENTS, namespace, event)
        except status.ApiError as problem:
            if problem.code not in {403, 404}:
                raise

    def _admit(self, resource: Resource, obj: Object) -> None:
        if resource is PODS and (name := (obj.get("spec") or {}).get("priorityClassName")):
            found = self.store.find(PRIORITY_CLASSES, None, name)
            if found is None:
                where = f'pods "{name_of(obj)}" is forbidden'
                raise status.ApiError(403, "Forbidden", f"{where}: no PriorityClass with name {name} was found")
            obj["spec"]["priority"] = found["value"]
        admit(resource, obj, pod_eviction_after_seconds=self._pod_eviction_after_seconds)

    def _check_kind(self, resource: Resource, obj: Object) -> None:
        seen = obj.get("apiVersion") or resource.group_version, obj.get("kind") or resource.kind
        if seen != (resource.group_version, resource.kind):
            raise status.bad_request(
                f"the API version and kind in the data ({seen[0]} {seen[1]}) do not match the expected ones "
                f"({resource.group_version} {resource.kind})"
            )
        obj.update(apiVersion=resource.group_version, kind=resource.kind)

    def _check_namespace(self, metadata: Object, namespace: str | None) -> None:
        if namespace is None or metadata.get("namespace", namespace) != namespace:
            raise status.bad_request(
                "the namespace of the provided object does not match the namespace sent on the request"
            )
        metadata["namespace"] = namespace
        if self.store.get(NAMESPACES, None, namespace)["metadata"].get("deletionTimestamp"):
            message = f"unable to create new content in namespace {namespace} because it is being terminated"
            raise status.ApiError(403, "Forbidden", message)

    def _check_preconditions(self, resource: Resource, obj: Object, wanted: Object) -> None:
        name, seen = name_of(obj), obj["metadata"]
        if wanted.get("name", name) != name:
            raise status.bad_request(f"the name of the object ({wanted['name']}) does not match the one on the URL")
        if wanted.get("uid") and wanted["uid"] != seen["uid"]:
            raise status.precondition(resource, name, "UID", wanted["uid"], seen["uid"])
        if wanted.get("resourceVersion") and wanted["resourceVersion"] != seen["resourceVersion"]:
            raise status.modified(resource, name)

    def _check_spec(self, resource: Resource, old: Object, new: Object) -> None:
        if resource is PODS:
            bound = old["spec"].get("nodeName")
            if _fixed(new) != _fixed(old) or (bound and new["spec"].get("nodeName") != bound):
                problem = (
                    "Forbidden: pod updates may not change fields other than `spec.containers[*].image`,"
                    "`spec.activeDeadlineSeconds`,`spec.tolerations`,`spec.terminationGracePeriodSeconds`"
                )
                raise status.invalid(PODS, name_of(old), [("spec", problem)])
        elif resource not in {JOBS, NAMESPACES}:
            self._admit(resource, new)

    def _mark_deleted(self, obj: Object, grace_seconds: int) -> None:
        ends = self.clock() + timedelta(seconds=grace_seconds)
        obj["metadata"].update(deletionTimestamp=stamp(ends), deletionGracePeriodSeconds=grace_seconds)
        if obj["kind"] == "Namespace":
            obj["status"]["phase"] = "Terminating"

    def _remove(self, resource: Resource, obj: Object, *, orphan: bool = False) -> Object:
        last = self.store.remove(resource, obj)
        if not orphan:
            uid = obj["metadata"]["uid"]
            for kind, other in self.store.everything():
                owners = other["metadata"].get("ownerReferences") or []
                if any(owner.get("uid") == uid for owner in owners):
                    self._delete_if_there(kind, other)
        return last

    def _delete_if_there(self, resource: Resource, obj: Object) -> None:
        """Delete one of several objects that may own each other."""
        if self.store.find(resource, namespace_of(obj), name_of(obj)) is obj:
            self.delete(resource, obj)


def _grace(resource: Resource, obj: Object, options: Object) -> int:
    """Seconds that the object is given: only a pod that may be running has any."""
    if resource is not PODS or not obj["spec"].get("nodeName") or is_terminal(obj):
        return 0
    grace = options.get("gracePeriodSeconds")
    return int(obj["spec"]["terminationGracePeriodSeconds"] if grace is None else grace)


def _fixed(pod: Object) -> Object:
    """The part of a pod's spec that never changes."""
    spec = {key: value for key, value in pod["spec"].items() if key not in _CHANGEABLE_POD_FIELDS}
    containers = [{k: v for k, v in c.items() if k not in {"image", "resources"}} for c in spec["containers"]]
    return {**spec, "containers": containers}
