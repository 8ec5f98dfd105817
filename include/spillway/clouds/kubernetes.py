"""A cluster through its Kubernetes API."""

from __future__ import annotations

import logging
import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from email.utils import parsedate_to_datetime
from typing import Any

from spillway.clouds.api import ApiRefusal, KubernetesApi
from spillway.clouds.base import ATTEMPT_LABEL, OWNED_LABEL, LogLines
from spillway.clouds.events import eviction, pull_failure
from spillway.clouds.facts import (
    TRAINER_CONTAINER,
    Json,
    NodeCondition,
    moment,
    node_condition,
    node_state,
    pod_state,
    pod_use,
)
from spillway.clouds.gang import COMPLETION_INDEX, gang_state, headless_service
from spillway.clouds.logs import new_lines
from spillway.errors import AccessDenied, ConfigError, LaunchRefused, Missing
from spillway.model import Cluster, ClusterState, PodPhase, PodState

LOG_BYTES = 4 << 20
"""The most that one call gives; the rest comes with the next one."""

_COLLECTIONS = {"Secret": "secrets", "ConfigMap": "configmaps", "Service": "services"}
_MERGE_PATCH = "application/merge-patch+json"
_log = logging.getLogger(__name__)


class KubernetesCluster:
    """A ``ClusterClient`` on the official client.

    ``state`` remembers on which node each pod was last seen, because a pod that is gone no longer says so.
    """

    def __init__(self, *, cluster: Cluster, api_client: Any) -> None:
        self._cluster = cluster
        self._api = KubernetesApi(api_client, endpoint=f"cluster '{cluster.name}'")
        self._paths = {
            "Pod": f"/api/v1/namespaces/{cluster.namespace}/pods",
            "Job": f"/apis/batch/v1/namespaces/{cluster.namespace}/jobs",
        }
        self._last_node: dict[str, str] = {}

    @property
    def cluster(self) -> Cluster:
        return self._cluster

    def describe(self) -> ClusterState:
        nodes = [node_state(node, self._cluster.pools) for node in self._api.items("/api/v1/nodes")]
        live = {"fieldSelector": "status.phase!=Succeeded,status.phase!=Failed"}
        uses = [pod_use(pod) for pod in self._api.items("/api/v1/pods", live)]
        return ClusterState(
            cluster=self._cluster, nodes=tuple(nodes), pods=tuple(use for use in uses if use is not None)
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
            created = self._adopt(kind, name, manifest["metadata"]["labels"][ATTEMPT_LABEL])
        if kind == "Pod":
            return self._with_node(created)
        self.apply([headless_service(created)])
        return self.state(name)

    def state(self, pod_name: str) -> PodState:
        pod = self._find(f"{self._paths['Pod']}/{pod_name}")
        if pod is not None:
            return self._with_node(pod)
        job = self._find(f"{self._paths['Job']}/{pod_name}")
        members = self._gang(pod_name)
        if members:
            uid = members[0]["metadata"]["ownerReferences"][0]["uid"]
            state = gang_state(pod_name, uid, [self._with_node(member) for member in members])
            if state.node:
                self._last_node[pod_name] = state.node
            return state
        if job is not None:
            return PodState(
                name=pod_name,
                phase=PodPhase.PENDING,
                cluster=self._cluster.name,
                uid=job["metadata"]["uid"],
                created_at=moment(job["metadata"]["creationTimestamp"]),
                attempt=pod_name,
            )
        return self._gone(pod_name)

    def stop(self, pod_name: str, *, grace: timedelta) -> None:
        """As the protocol says; the pods of a gang have the grace that they were built with."""
        # Zero would take the object away at once, while its container may still run.
        seconds = max(1, math.ceil(grace.total_seconds()))
        if not self._delete(f"{self._paths['Pod']}/{pod_name}", {"gracePeriodSeconds": seconds}):
            self._delete(f"{self._paths['Job']}/{pod_name}", {"propagationPolicy": "Background"})

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
            self._apply_one(item)

    def owned(self) -> tuple[PodState, ...]:
        nodes = {node["metadata"]["name"]: node_condition(node) for node in self._api.items("/api/v1/nodes")}
        gangs: dict[str, list[PodState]] = {}
        owned = []
        for pod in self._api.items(self._paths["Pod"], {"labelSelector": f"{OWNED_LABEL}=true"}):
            name = pod["spec"].get("nodeName")
            condition = nodes.get(name, NodeCondition(exists=False)) if name else None
            state = pod_state(pod, condition, cluster=self._cluster.name)
            job = pod["metadata"].get("ownerReferences")
            if job:
                gangs.setdefault(job[0]["uid"], []).append(state)
            else:
                owned.append(state)
        return (*owned, *(gang_state(str(pods[0].attempt), uid, pods) for uid, pods in gangs.items()))

    def namespace_exists(self) -> bool:
        return self._find(f"/api/v1/namespaces/{self._cluster.namespace}") is not None

    def server_time(self) -> datetime | None:
        """The API's clock, to the second; None where a proxy left its header out."""
        written = self._api.headers("GET", "/version").get("Date")
        return parsedate_to_datetime(written) if written else None

    def _adopt(self, kind: str, name: str, attempt: str) -> Json:
        found: Json = self._api.json("GET", f"{self._paths[kind]}/{name}")
        labels = found["metadata"].get("labels") or {}
        if labels.get(ATTEMPT_LABEL) != attempt:
            raise LaunchRefused(
                f"cluster '{self._cluster.name}' already has a {kind} '{name}' in namespace "
                f"'{self._cluster.namespace}' (uid {found['metadata']['uid']}, labels {labels}) that is not of attempt "
                f"'{attempt}'; it was left alone: remove it, or give the run another name"
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

    def _delete(self, path: str, options: Mapping[str, Any]) -> bool:
        """Whether there was such an object."""
        try:
            self._api.json("DELETE", path, options)
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

    def _gone(self, pod_name: str) -> PodState:
        """What is known of a pod that ended between two looks: its events say whether the platform took it away."""
        node = self._last_node.get(pod_name)
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
        if node:
            self._last_node[pod["metadata"]["name"]] = node
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
        """The pod's events; none where the cluster does not let them be read."""
        query = {"fieldSelector": f"involvedObject.kind=Pod,involvedObject.name={pod_name}"}
        try:
            return self._api.items(f"/api/v1/namespaces/{self._cluster.namespace}/events", query)
        except AccessDenied as problem:
            _log.warning("events of pod %s are unknown: %s", pod_name, problem)
            return []

    def _apply_one(self, item: Mapping[str, Any]) -> None:
        kind, name = item["kind"], item["metadata"]["name"]
        collection = f"/api/v1/namespaces/{self._cluster.namespace}/{_COLLECTIONS[kind]}"
        for attempt in range(2):
            try:
                if kind == "Service":  # its address is assigned by the cluster and must stay
                    self._api.json("PATCH", f"{collection}/{name}", body=item, content_type=_MERGE_PATCH)
                else:
                    self._api.json("PUT", f"{collection}/{name}", body=item)
                return
            except ApiRefusal as refusal:
                if refusal.status != 404:
                    raise
            try:
                self._api.json("POST", collection, body=item)
                return
            except ApiRefusal as refusal:
                if refusal.status == 404:
                    raise self._no_namespace() from refusal
                if refusal.status != 409 or attempt:  # 409 once: somebody else created it just now
                    raise

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
