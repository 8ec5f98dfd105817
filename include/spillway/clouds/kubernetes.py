"""A cluster through its Kubernetes API."""

from __future__ import annotations

import logging
import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

from spillway.clouds.api import ApiRefusal, KubernetesApi
from spillway.clouds.base import ATTEMPT_LABEL, INSTALLATION_LABEL, OWNED_LABEL, LogLines
from spillway.clouds.events import eviction, pull_failure
from spillway.clouds.facts import (
    NOTHING,
    TRAINER_CONTAINER,
    Json,
    NodeCondition,
    gpu_resources,
    needs_by_node,
    node_condition,
    node_state,
    pod_state,
    pod_use,
)
from spillway.clouds.gang import COMPLETION_INDEX, gang_state, headless_service, job_state
from spillway.clouds.logs import new_lines
from spillway.clouds.objects import collection, put_object
from spillway.clouds.rights import Right, missing_rights
from spillway.errors import AccessDenied, ConfigError, LaunchRefused, Missing
from spillway.model import Cluster, ClusterState, PodPhase, PodState

LOG_BYTES = 4 << 20
"""The most that one call gives; the rest comes with the next one."""

_log = logging.getLogger(__name__)


class KubernetesCluster:
    """A ``ClusterClient`` on the official client."""

    def __init__(self, *, cluster: Cluster, api_client: Any) -> None:
        self._cluster = cluster
        self.api = self._api = KubernetesApi(api_client, endpoint=f"cluster '{cluster.name}'")
        self._paths = {
            "Pod": f"/api/v1/namespaces/{cluster.namespace}/pods",
            "Job": f"/apis/batch/v1/namespaces/{cluster.namespace}/jobs",
        }

    @property
    def cluster(self) -> Cluster:
        return self._cluster

    def describe(self) -> ClusterState:
        nodes = self._api.items("/api/v1/nodes")
        live = {"fieldSelector": "status.phase!=Succeeded,status.phase!=Failed"}
        pods = self._api.items("/api/v1/pods", live)
        resources = gpu_resources(self._cluster.pools)
        uses = [pod_use(pod, namespace=self._cluster.namespace, resources=resources) for pod in pods]
        beside = needs_by_node(pod for pod, use in zip(pods, uses, strict=True) if use is None)
        return ClusterState(
            cluster=self._cluster,
            nodes=tuple(
                node_state(node, self._cluster.pools, beside.get(node["metadata"]["name"], NOTHING)) for node in nodes
            ),
            pods=tuple(use for use in uses if use is not None),
            clock_ahead=self.clock_ahead,
        )

    def launch(self, manifest: Mapping[str, Any]) -> PodState:
        """As the protocol says; of a gang, the Job and its Service, and the state of all its pods."""
        name, kind = manifest["metadata"]["name"], manifest["kind"]
        try:
            created = self._api.json("POST", self._paths[kind], body=manifest)
            _log.info("launched %s %s on cluster %s", kind, name, self._cluster.name)
        except ApiRefusal as refusal:
            if refusal.status == 404:
                raise self._no_namespace() from refusal
            if refusal.status != 409:
                problem = f"cluster '{self._cluster.name}' refused {kind} '{name}': {refusal.problem}"
                raise LaunchRefused(problem) from refusal
            created = self._adopt(kind, name, manifest["metadata"]["labels"])
        if kind == "Pod":
            return self._with_node(created)
        self.apply([headless_service(created)])
        return self.state(name)

    def state(self, pod_name: str, *, last_node: str | None = None) -> PodState:
        return self._dated(self._state(pod_name, last_node))

    def _state(self, pod_name: str, last_node: str | None) -> PodState:
        pod = self._find(f"{self._paths['Pod']}/{pod_name}")
        if pod is not None:
            return self._with_node(pod)
        job = self._find(f"{self._paths['Job']}/{pod_name}")
        members = self._gang(pod_name)
        if members:
            uid = members[0]["metadata"]["ownerReferences"][0]["uid"]
            return gang_state(pod_name, uid, [self._with_node(member) for member in members])
        return self._gone(pod_name, last_node) if job is None else job_state(job, cluster=self._cluster.name)

    def stop(self, pod_name: str, *, grace: timedelta) -> None:
        """As the protocol says; the pods of a gang have the grace that they were built with."""
        # Zero would take the object away at once, while its container may still run.
        seconds = max(1, math.ceil(grace.total_seconds()))
        if not self._delete(f"{self._paths['Pod']}/{pod_name}", {"gracePeriodSeconds": seconds}):
            self._delete(f"{self._paths['Job']}/{pod_name}", {"propagationPolicy": "Background"})

    def remove(self, pod: PodState) -> None:
        only = {"preconditions": {"uid": pod.uid}, "propagationPolicy": "Background"}
        try:
            if not self._delete(f"{self._paths['Pod']}/{pod.name}", body=only):
                self._delete(f"{self._paths['Job']}/{pod.name}", body=only)
        except ApiRefusal as refusal:
            if refusal.status != 409:
                raise

    def logs(self, pod_name: str, *, since: datetime | None = None, tail: int | None = None) -> LogLines:
        query: dict[str, Any] = {"container": TRAINER_CONTAINER, "timestamps": "true"}
        if since is not None:
            query["sinceTime"] = since.astimezone(UTC).isoformat().replace("+00:00", "Z")
        if tail is not None:
            query["tailLines"] = tail
        found = LogLines(lines=(), until=since)
        for limit in (LOG_BYTES, 16 * LOG_BYTES):  # one second can hold more than the first: nothing new is seen then
            body = self._log(pod_name, {**query, "limitBytes": limit})
            if body is None:
                break
            found = new_lines(body, since, cut=len(body) >= limit)
            if found.lines or len(body) < limit:
                break
        return found

    def _log(self, pod_name: str, query: Mapping[str, Any]) -> bytes | None:
        """The log of the pod, or of a gang's first one; None where there is none yet or any more."""
        try:
            return self._api.bytes("GET", f"{self._paths['Pod']}/{pod_name}/log", query)
        except ApiRefusal as refusal:
            if refusal.status not in {400, 404}:
                raise
            first = self._gang(pod_name, 0) if refusal.status == 404 else []
        return self._log(first[0]["metadata"]["name"], query) if first else None

    def apply(self, objects: Sequence[Mapping[str, Any]]) -> None:
        for item in objects:
            try:
                put_object(self._api, self._cluster.namespace, item)
            except ApiRefusal as refusal:
                if refusal.status == 404:
                    raise self._no_namespace() from refusal
                raise

    def applied(self, installation: str) -> tuple[tuple[str, str], ...]:
        ours = {"labelSelector": f"{INSTALLATION_LABEL}={installation}"}
        return tuple(
            (kind, item["metadata"]["name"])
            for kind in ("Secret", "ConfigMap")
            for item in self._api.items(collection(self._cluster.namespace, kind), ours, metadata_only=True)
        )

    def withdraw(self, kind: str, name: str) -> None:
        self._delete(f"{collection(self._cluster.namespace, kind)}/{name}")

    def owned(self, installation: str | None) -> tuple[PodState, ...]:
        whose = f"!{INSTALLATION_LABEL}" if installation is None else f"{INSTALLATION_LABEL}={installation}"
        ours = {"labelSelector": f"{OWNED_LABEL}=true,{whose}"}
        nodes = {node["metadata"]["name"]: node_condition(node) for node in self._api.items("/api/v1/nodes")}
        gangs: dict[str, list[PodState]] = {}
        owned = []
        for pod in self._api.items(self._paths["Pod"], ours):
            name = pod["spec"].get("nodeName")
            condition = nodes.get(name, NodeCondition(exists=False)) if name else None
            state = pod_state(pod, condition, cluster=self._cluster.name)
            job = pod["metadata"].get("ownerReferences")
            if job:
                gangs.setdefault(job[0]["uid"], []).append(state)
            else:
                owned.append(state)
        owned += [gang_state(str(pods[0].attempt), uid, pods) for uid, pods in gangs.items()]
        jobs = self._readable(self._paths["Job"], ours)
        owned += [job_state(job, cluster=self._cluster.name) for job in jobs if job["metadata"]["uid"] not in gangs]
        return tuple(self._dated(state) for state in owned)

    def namespace_exists(self) -> bool:
        return self._find(f"/api/v1/namespaces/{self._cluster.namespace}") is not None

    def missing_rights(self) -> tuple[Right, ...] | None:
        """What the Connection's identity lacks; None where the API does not answer such questions."""
        return missing_rights(self._api, self._cluster)

    @property
    def clock_ahead(self) -> timedelta | None:
        """How far the API's clock was ahead of the one here at its last answer; None where it did not say."""
        return self._api.clock_ahead

    def _dated(self, state: PodState) -> PodState:
        return replace(state, read_at=datetime.now(UTC) + (self.clock_ahead or timedelta()))

    def _adopt(self, kind: str, name: str, wanted: Mapping[str, str]) -> Json:
        found: Json = self._api.json("GET", f"{self._paths[kind]}/{name}")
        labels = found["metadata"].get("labels") or {}
        if any(labels.get(key) != wanted[key] for key in (ATTEMPT_LABEL, INSTALLATION_LABEL)):
            raise LaunchRefused(
                f"cluster '{self._cluster.name}' already has a {kind} '{name}' in namespace "
                f"'{self._cluster.namespace}' (uid {found['metadata']['uid']}, labels {labels}) that is not of attempt "
                f"'{wanted[ATTEMPT_LABEL]}' of installation '{wanted[INSTALLATION_LABEL]}'; it was left alone: remove "
                "it, or give the run another name"
            )
        return found

    def _find(self, path: str) -> Json | None:
        try:
            found: Json = self._api.json("GET", path)
        except ApiRefusal as refusal:
            if refusal.status == 404:
                return None
            raise
        return found

    def _delete(self, path: str, options: Mapping[str, Any] | None = None, *, body: Json | None = None) -> bool:
        """Whether there was such an object."""
        try:
            self._api.json("DELETE", path, options, body=body)
        except ApiRefusal as refusal:
            if refusal.status == 404:
                return False
            raise
        return True

    def _gang(self, attempt: str, rank: int | None = None) -> list[Json]:
        """The pods of an attempt that runs as a Job, or the one of that rank."""
        labels = f"{ATTEMPT_LABEL}={attempt}" + ("" if rank is None else f",{COMPLETION_INDEX}={rank}")
        pods = self._api.items(self._paths["Pod"], {"labelSelector": labels})
        return [pod for pod in pods if pod["metadata"].get("ownerReferences")]

    def _gone(self, pod_name: str, node: str | None) -> PodState:
        """What is known of a pod that ended between two looks: its events say whether the platform took it away."""
        last = self._node(node) if node else None
        return PodState(
            name=pod_name,
            phase=PodPhase.GONE,
            cluster=self._cluster.name,
            node=node,
            disruption=eviction(self._events(pod_name)),
            node_exists=last.exists if last else None,
            node_ready=last.ready if last else None,
            node_changed_at=last.changed_at if last else None,
            node_deleted=last.leaving if last else False,
        )

    def _with_node(self, pod: Json) -> PodState:
        node = pod["spec"].get("nodeName")
        state = pod_state(pod, self._node(node) if node else None, cluster=self._cluster.name)
        if state.container_reason == "ImagePullBackOff" and state.container_message.endswith('"'):
            return self._with_pull_error(state)
        return state

    def _node(self, name: str) -> NodeCondition:
        return node_condition(self._find(f"/api/v1/nodes/{name}"))

    def _with_pull_error(self, state: PodState) -> PodState:
        """During back-off older nodes no longer say why the pull failed; their last event does."""
        why = pull_failure(self._events(state.name))
        return replace(state, container_message=f"{state.container_message}: {why}") if why else state

    def _events(self, pod_name: str) -> list[Json]:
        query = {"fieldSelector": f"involvedObject.kind=Pod,involvedObject.name={pod_name}"}
        return self._readable(f"/api/v1/namespaces/{self._cluster.namespace}/events", query)

    def _readable(self, path: str, query: Mapping[str, Any]) -> list[Json]:
        """The list; empty where the cluster does not let it be read, and what it tells can be missed."""
        try:
            return self._api.items(path, query)
        except AccessDenied as problem:
            _log.warning("%s is not known: %s", path, problem)
            return []

    def _no_namespace(self) -> Missing:
        return Missing("namespace", self._cluster.namespace, f"cluster '{self._cluster.name}'", fix="create it")


def client_from_kubeconfig(config: Mapping[str, Any], context: str | None = None) -> Any:
    """An ``ApiClient`` of the official client for one context, independent of any process-wide default.

    Raises:
        ConfigError: the kubeconfig has another shape, or the context does not exist.
    """
    from kubernetes.client import Configuration
    from kubernetes.config import ConfigException, new_client_from_config_dict

    own = type.__call__(Configuration)  # the class otherwise copies the default that other clusters may have set
    try:
        return new_client_from_config_dict(dict(config), context, persist_config=False, client_configuration=own)
    except (ConfigException, OSError, AttributeError, KeyError, TypeError, ValueError) as problem:
        raise ConfigError("kubeconfig", f"context '{context}'" if context else "", str(problem)) from problem
