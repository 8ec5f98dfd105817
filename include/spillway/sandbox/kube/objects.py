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

_SERVER_FIELDS = (
    "uid",
    "name",
    "namespace",
    "creationTimestamp",
    "resourceVersion",
    "deletionTimestamp",
    "deletionGracePeriodSeconds",
)
"""Of the metadata, what a client that writes an object can't change."""


class Objects:
    """The writes of one cluster. Every method gives the object as it is stored afterwards."""

    def __init__(self, store: Store, clock: Clock, *, pod_eviction_after_seconds: int) -> None:
        self.store, self.clock = store, clock
        self._pod_eviction_after_seconds = pod_eviction_after_seconds

    def now(self) -> str:
        return stamp(self.clock())

    def create(self, resource: Resource, namespace: str | None, body: Object, *, dry_run: bool = False) -> Object:
        obj = _of_kind(resource, body)
        metadata = obj["metadata"]
        if resource.namespaced:
            self._check_namespace(metadata, namespace)
        if metadata.get("generateName") and not metadata.get("name"):
            metadata["name"] = metadata["generateName"] + secrets.token_hex(4)
        check_name(resource, metadata.get("name") or "")
        if self.store.find(resource, namespace, metadata["name"]):
            raise status.already_exists(resource, metadata["name"])
        admit(resource, obj, pod_eviction_after_seconds=self._pod_eviction_after_seconds)
        if resource is PODS:
            self._prioritise(obj)
        if resource.status and not (resource is NODES and obj.get("status")):
            obj["status"] = first_status(resource)
        metadata.update(uid=str(uuid.uuid4()), creationTimestamp=self.now())
        return obj if dry_run else self.store.put(resource, obj)

    def replace(self, resource: Resource, old: Object, body: Object, *, only_status: bool = False) -> Object:
        """Put ``body`` in the place of ``old``; of the two parts spec and status only one can change."""
        new = _of_kind(resource, body)
        _check_preconditions(resource, old, new["metadata"])
        given = {field: value for field, value in new["metadata"].items() if field not in _SERVER_FIELDS}
        kept = {field: value for field, value in old["metadata"].items() if field in _SERVER_FIELDS}
        new["metadata"] = {**given, **kept}
        if only_status:
            new = {**old, "metadata": new["metadata"], "status": new.get("status") or {}}
        else:
            if resource.status:
                new["status"] = old.get("status") or {}
            if resource is PODS and new["spec"] != old["spec"]:
                raise status.invalid(PODS, name_of(old), "spec", "Forbidden: pod updates may not change the spec")
            admit(resource, new, pod_eviction_after_seconds=self._pod_eviction_after_seconds)
        return old if new == old else self.store.put(resource, new)

    def edit(self, obj: Object, change: Callable[[Object], Any]) -> Object:
        """Apply a controller's change to a copy and store it."""
        new = copy.deepcopy(obj)
        change(new)
        return self.store.put(resource_of(obj), new)

    def delete(self, resource: Resource, obj: Object, options: Object | None = None) -> Object:
        """Take the object out; a pod that may run and a namespace are marked, and go when all in them has ended."""
        options = options or {}
        _check_preconditions(resource, obj, options.get("preconditions") or {})
        metadata, grace = obj["metadata"], _grace_seconds(resource, obj, options)
        if resource is not NAMESPACES and grace == 0:
            return self._remove(resource, obj)
        if metadata.get("deletionTimestamp") and metadata["deletionGracePeriodSeconds"] <= grace:
            return obj
        ends = stamp(self.clock() + timedelta(seconds=grace))

        def mark(new: Object) -> None:
            new["metadata"].update(deletionTimestamp=ends, deletionGracePeriodSeconds=grace)
            if resource is NAMESPACES:
                new["status"]["phase"] = "Terminating"

        return self.edit(obj, mark)

    def finish_namespace(self, namespace: Object) -> None:
        """Delete what is in a namespace that is going; when it is empty, the namespace too."""
        inside = [(kind, obj) for kind, obj in self.store.everything() if namespace_of(obj) == name_of(namespace)]
        for resource, obj in inside:
            self._delete_if_there(resource, obj)
        if not inside:
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
            self.create(EVENTS, namespace_of(obj) or "default", event)
        except status.ApiError as problem:
            if problem.code not in {403, 404}:
                raise

    def _check_namespace(self, metadata: Object, namespace: str | None) -> None:
        if namespace is None or metadata.get("namespace", namespace) != namespace:
            raise status.bad_request(
                "the namespace of the provided object does not match the namespace sent on the request"
            )
        metadata["namespace"] = namespace
        if self.store.get(NAMESPACES, None, namespace)["metadata"].get("deletionTimestamp"):
            message = f"unable to create new content in namespace {namespace} because it is being terminated"
            raise status.ApiError(403, "Forbidden", message)

    def _prioritise(self, pod: Object) -> None:
        name = pod["spec"].get("priorityClassName")
        if name:
            found = self.store.find(PRIORITY_CLASSES, None, name)
            if found is None:
                message = f'pods "{name_of(pod)}" is forbidden: no PriorityClass with name {name} was found'
                raise status.ApiError(403, "Forbidden", message)
            pod["spec"]["priority"] = found.get("value") or 0

    def _remove(self, resource: Resource, obj: Object) -> Object:
        """Take the object out, and what it owns."""
        last = self.store.remove(resource, obj)
        for kind, other in self.store.everything():
            owners = other["metadata"].get("ownerReferences") or []
            if any(owner.get("uid") == obj["metadata"]["uid"] for owner in owners):
                self._delete_if_there(kind, other)
        return last

    def _delete_if_there(self, resource: Resource, obj: Object) -> None:
        """Delete one of several objects that may own each other."""
        if self.store.find(resource, namespace_of(obj), name_of(obj)) is obj:
            self.delete(resource, obj)


def _of_kind(resource: Resource, body: Object) -> Object:
    """A copy of what a client sent, with its kind filled in; raises ApiError 400 for an object of another one."""
    obj = copy.deepcopy(body)
    obj["metadata"] = dict(obj.get("metadata") or {})
    seen = obj.get("apiVersion") or resource.group_version, obj.get("kind") or resource.kind
    if seen != (resource.group_version, resource.kind):
        raise status.bad_request(
            f"the API version and kind in the data ({seen[0]} {seen[1]}) do not match the expected ones "
            f"({resource.group_version} {resource.kind})"
        )
    return {**obj, "apiVersion": resource.group_version, "kind": resource.kind}


def _check_preconditions(resource: Resource, obj: Object, wanted: Object) -> None:
    for field in ("name", "uid", "resourceVersion"):
        if wanted.get(field) and wanted[field] != obj["metadata"][field]:
            raise status.conflict(resource, name_of(obj), field, expected=wanted[field], seen=obj["metadata"][field])


def _grace_seconds(resource: Resource, obj: Object, options: Object) -> int:
    """What the object is given to end: only a pod that may be running has any time."""
    if resource is not PODS or not obj["spec"].get("nodeName") or is_terminal(obj):
        return 0
    grace = options.get("gracePeriodSeconds")
    return int(obj["spec"]["terminationGracePeriodSeconds"] if grace is None else grace)
