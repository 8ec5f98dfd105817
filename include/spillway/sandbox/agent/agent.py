"""The agent: which pods of its node run, which end, and which did not survive."""

from __future__ import annotations

import asyncio
import logging
import shutil
from collections.abc import Coroutine, Mapping
from pathlib import Path
from typing import Any

from spillway.sandbox.agent.client import UNAVAILABLE, ApiClient, ApiFailure, persist
from spillway.sandbox.agent.container import was_started
from spillway.sandbox.agent.images import ImageStore
from spillway.sandbox.agent.lost import lost_status, rejected_status, was_reported
from spillway.sandbox.agent.node import Node
from spillway.sandbox.agent.pod import Pod

log = logging.getLogger(__name__)

Object = Mapping[str, Any]
_RELIST_SECONDS = 0.5


class Agent:
    """Keeps the pods of one node as the API server wants them."""

    def __init__(self, node: Node, api: ApiClient, images: ImageStore) -> None:
        self._node, self._api, self._images = node, api, images
        self._pods: dict[str, Pod] = {}
        self._seen: dict[str, Object] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    async def run(self) -> None:
        """Follow the node's pods for ever, through every outage of the API server."""
        query = {"fieldSelector": f"spec.nodeName={self._node.facts.name}"}
        while True:
            try:
                async for kind, payload in self._api.follow("/api/v1/pods", query):
                    self._take(kind, payload)
            except (ApiFailure, *UNAVAILABLE) as problem:
                log.warning("cannot follow the pods: %r", problem)
            await asyncio.sleep(_RELIST_SECONDS)

    def find(self, namespace: str, name: str) -> Object | None:
        """The newest pod of that name that this node knows, ended ones included."""
        matching = [
            pod
            for pod in self._seen.values()
            if (pod["metadata"]["namespace"], pod["metadata"]["name"]) == (namespace, name)
        ]
        return matching[-1] if matching else None

    def running(self, uid: str) -> Pod | None:
        """What runs of the pod; None where it has ended before this agent started."""
        return self._pods.get(uid)

    def log_file(self, uid: str, container: str) -> Path:
        return self._node.pod_directory(uid) / f"{container}.log"

    async def evict(self, uid: str) -> list[str]:
        """End one pod as a node short of memory does; gives its name, nothing where it does not run here any more."""
        pod = self._pods.get(uid)
        if pod is None or pod.over:
            return []
        await pod.disrupt("Evicted", "The node was low on resource: memory.")
        return [pod.name]

    async def shut_down(self) -> list[str]:
        """End every pod as a machine does that was told to go; no pod is taken after it. Gives the pods' names."""
        self._node.shutting_down = True
        await persist(self._node.send_status)
        pods = [pod for pod in self._pods.values() if not pod.over]
        message = "Pod was terminated in response to imminent node shutdown."
        await asyncio.gather(*(pod.disrupt("Terminated", message) for pod in pods))
        return [pod.name for pod in pods]

    async def stop(self) -> None:
        """Kill everything that runs, telling nobody: the next agent finds out and tells."""
        await asyncio.gather(*(pod.discard() for pod in self._pods.values()))

    def _take(self, kind: str, payload: Any) -> None:
        if kind == "LIST":
            present = {pod["metadata"]["uid"] for pod in payload}
            for uid in set(self._seen) - present:
                self._forget(uid)
            self._clear_directories(present)
            for pod in payload:
                self._see(pod)
        elif kind == "DELETED":
            self._forget(payload["metadata"]["uid"])
        else:
            self._see(payload)

    def _see(self, obj: Object) -> None:
        metadata, uid = obj["metadata"], obj["metadata"]["uid"]
        known = uid in self._seen
        self._seen[uid] = obj
        ended = obj["status"]["phase"] in {"Succeeded", "Failed"}
        if uid in self._pods:
            if metadata.get("deletionTimestamp"):
                self._spawn(self._pods[uid].delete(metadata["deletionGracePeriodSeconds"]))
        elif metadata.get("deletionTimestamp"):
            options = {"gracePeriodSeconds": 0, "preconditions": {"uid": uid}}
            self._spawn(persist(lambda: self._api.send("DELETE", _path(obj), options)))
        elif known or ended:
            return
        elif was_started(self._node.pod_directory(uid)) or was_reported(obj):
            self._spawn(self._fail(obj, lost_status(obj)))
        elif self._node.shutting_down:
            self._spawn(self._fail(obj, rejected_status()))
        else:
            self._pods[uid] = Pod(obj, self._node, self._api, self._images)

    def _forget(self, uid: str) -> None:
        self._seen.pop(uid, None)
        pod = self._pods.pop(uid, None)

        async def clean() -> None:
            if pod is not None:
                await pod.discard()
            await asyncio.to_thread(shutil.rmtree, self._node.pod_directory(uid), ignore_errors=True)

        self._spawn(clean())

    def _clear_directories(self, present: set[str]) -> None:
        """Remove what earlier agents kept of pods that are gone."""
        root = self._node.pod_directory("any").parent
        for directory in root.iterdir() if root.is_dir() else ():
            if directory.name not in present:
                self._spawn(asyncio.to_thread(shutil.rmtree, directory, ignore_errors=True))

    async def _fail(self, obj: Object, status: Object) -> None:
        """Report a pod as failed that does not run here."""
        body = {"metadata": {"uid": obj["metadata"]["uid"]}, "status": status}
        await persist(lambda: self._api.send("PATCH", f"{_path(obj)}/status", body))

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)


def _path(obj: Object) -> str:
    return f"/api/v1/namespaces/{obj['metadata']['namespace']}/pods/{obj['metadata']['name']}"
