"""The rights that a Connection's identity needs in a cluster, and which of them it lacks."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass, field
from typing import Any

from spillway.clouds.api import ApiRefusal, KubernetesApi
from spillway.model import Cluster

_REVIEWS = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"


@dataclass(frozen=True, slots=True, kw_only=True)
class Right:
    """One rule of a role, for a resource such as ``pods/log``: of a ClusterRole where it is needed everywhere.

    ``to_run``: whether runs need it; without another one only a sweep leaves something behind.
    """

    resource: str
    verbs: tuple[str, ...]
    group: str = ""
    everywhere: bool = False
    to_run: bool = field(default=True, compare=False)


RIGHTS = (
    Right(resource="nodes", verbs=("get", "list"), everywhere=True),
    Right(resource="pods", verbs=("list",), everywhere=True),
    Right(resource="namespaces", verbs=("get",)),
    Right(resource="pods", verbs=("get", "list", "create", "delete")),
    Right(resource="pods/log", verbs=("get",)),
    Right(resource="events", verbs=("list",)),
    Right(resource="secrets", verbs=("create", "update")),
    Right(resource="configmaps", verbs=("create", "update")),
    Right(resource="secrets", verbs=("list", "delete"), to_run=False),
    Right(resource="configmaps", verbs=("list", "delete"), to_run=False),
    Right(resource="services", verbs=("create", "patch")),
    Right(resource="jobs", verbs=("get", "list", "create", "delete"), group="batch"),
)
"""What ``KubernetesCluster`` asks of an API; the first roles in docs/clusters.md are these."""
_PLACEHOLDERS = Right(
    resource="priorityclasses", verbs=("create",), group="scheduling.k8s.io", everywhere=True, to_run=False
)
SCALING_RIGHTS = (Right(resource="nodes", verbs=("patch",), everywhere=True, to_run=False), _PLACEHOLDERS)
"""What scaling pools asks beyond that, the last one only with placeholders; the second role there."""


def rights_for(cluster: Cluster) -> tuple[Right, ...]:
    """What the Connection's identity needs there, as the cluster is declared."""
    scaled_by = {pool.scaled_by.provider for pool in cluster.pools if pool.scaled_by}
    scaling = tuple(right for right in SCALING_RIGHTS if right != _PLACEHOLDERS or "placeholders" in scaled_by)
    return RIGHTS + (scaling if scaled_by else ())


def missing_rights(api: KubernetesApi, cluster: Cluster) -> tuple[Right, ...] | None:
    """What the identity lacks, with those verbs only; None where the API does not answer the question."""
    lacking = []
    for right in rights_for(cluster):
        try:
            verbs = tuple(verb for verb in right.verbs if not _may(api, verb, right, cluster.namespace))
        except ApiRefusal as refusal:
            if refusal.status in {404, 405}:
                return None
            raise
        if verbs:
            lacking.append(dataclasses.replace(right, verbs=verbs))
    return tuple(lacking)


def _may(api: KubernetesApi, verb: str, right: Right, namespace: str) -> bool:
    resource, _, subresource = right.resource.partition("/")
    asked: dict[str, Any] = {"verb": verb, "group": right.group, "resource": resource, "subresource": subresource}
    if not right.everywhere:
        asked["namespace"] = namespace
    if resource == "namespaces":
        asked["name"] = namespace
    review = {
        "apiVersion": "authorization.k8s.io/v1",
        "kind": "SelfSubjectAccessReview",
        "spec": {"resourceAttributes": asked},
    }
    return bool(api.json("POST", _REVIEWS, body=review)["status"]["allowed"])
