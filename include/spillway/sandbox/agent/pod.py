"""One pod on its node, from the first pull to the last status."""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from spillway.clouds.quantities import quantity
from spillway.sandbox.agent.client import UNAVAILABLE, ApiClient, ApiFailure, back_off, persist
from spillway.sandbox.agent.container import Container, Start
from spillway.sandbox.agent.environment import BadContainerConfig, command, decoded, environment
from spillway.sandbox.agent.images import ImageStore, PullFailed
from spillway.sandbox.agent.node import Node
from spillway.sandbox.agent.volumes import mounts, prepare
from spillway.sandbox.kube.quantities import stamp

log = logging.getLogger(__name__)

_DISCARD_SECONDS = 5


class Pod:
    """Runs each of the pod's containers once, and tells the API server."""

    def __init__(self, obj: Mapping[str, Any], node: Node, api: ApiClient, images: ImageStore) -> None:
        self.obj, self._node, self._api, self._images = obj, node, api, images
        metadata = obj["metadata"]
        self.namespace, self.name, self.uid = metadata["namespace"], metadata["name"], metadata["uid"]
        self.directory = node.pod_directory(self.uid)
        self.directory.mkdir(parents=True, exist_ok=True)
        self._inits = [Container(spec, self.directory) for spec in obj["spec"].get("initContainers") or []]
        self._containers = [Container(spec, self.directory) for spec in obj["spec"]["containers"]]
        self._everyone = (*self._inits, *self._containers)
        self.over = False
        self._reason: dict[str, str] = {}
        self._disrupted = False
        self._conditions: dict[str, dict[str, str]] = {}
        self._started_at = stamp(datetime.now(UTC))
        self._ending, self._changed = asyncio.Event(), asyncio.Event()
        self._reporter = asyncio.create_task(self._report())
        self._task = asyncio.create_task(self._live())

    @property
    def path(self) -> str:
        return f"/api/v1/namespaces/{self.namespace}/pods/{self.name}"

    def container(self, name: str) -> Container | None:
        return next((c for c in self._everyone if c.name == name), None)

    async def delete(self, grace_seconds: int) -> None:
        """End the containers within the grace, then take the pod object away."""
        self._end(grace_seconds)
        await asyncio.wait([self._task])
        options = {"gracePeriodSeconds": 0, "preconditions": {"uid": self.uid}}
        await persist(lambda: self._api.send("DELETE", self.path, options))

    async def disrupt(self, reason: str, message: str) -> None:
        """End the pod for a reason of its node: it fails with that reason and a DisruptionTarget condition."""
        if not self.over:
            self._disrupted = True
            self._fail(reason, message)
            await asyncio.wait([self._task])

    async def discard(self) -> None:
        """Kill what runs and stop talking about the pod."""
        self._reporter.cancel()
        self._end(0)
        await asyncio.wait([self._task], timeout=_DISCARD_SECONDS)
        self._task.cancel()

    def _fail(self, reason: str, message: str) -> None:
        self._reason = {"reason": reason, "message": message}
        self._changed.set()
        self._end(self.obj["spec"]["terminationGracePeriodSeconds"])

    def _end(self, grace_seconds: float) -> None:
        """TERM now and KILL after the grace; a later call with a shorter one hurries."""
        if not self._ending.is_set():
            self._ending.set()
            for container in self._everyone:
                container.terminate()
        asyncio.get_running_loop().call_later(grace_seconds, self._kill)

    def _kill(self) -> None:
        for container in self._everyone:
            container.kill()

    async def _live(self) -> None:
        """Run the pod to its end; return when its last status was delivered."""
        try:
            await self._run()
        except Exception as problem:
            log.exception("pod %s/%s failed inside the agent", self.namespace, self.name)
            self._fail("AgentError", repr(problem))
        self.over = True
        self._changed.set()
        await asyncio.wait([self._reporter])

    async def _report(self) -> None:
        """Deliver the newest status, however long the API server is away, until the pod is over."""
        last = False
        while not last:
            await self._changed.wait()
            self._changed.clear()
            last = self.over
            await persist(self._send_status)

    async def _run(self) -> None:
        spec, loop = self.obj["spec"], asyncio.get_running_loop()
        if spec["restartPolicy"] != "Never":
            told = f"this node starts a container once: expected restartPolicy Never, got {spec['restartPolicy']}"
            return self._fail("UnexpectedAdmissionError", told)
        late = "Pod was active on the node longer than the specified deadline"
        seconds = spec.get("activeDeadlineSeconds")
        deadline = loop.call_later(seconds, self._fail, "DeadlineExceeded", late) if seconds else None
        try:
            for container in self._inits:
                if await self._run_once(container) != 0:
                    return None
            await asyncio.gather(*map(self._run_once, self._containers))
        finally:
            if deadline:
                deadline.cancel()

    async def _run_once(self, container: Container) -> int | None:
        """The container's exit code; None where the pod ends before it ever started."""
        start = await self._make(container)
        if start is not None and not self._ending.is_set():
            await container.start(start)
            if self._ending.is_set():  # the order to end came while it was being started
                container.kill()
            self._changed.set()
            await container.wait()
            self._changed.set()
        return container.exit_code

    async def _make(self, container: Container) -> Start | None:
        """What to start the container from, tried until it is there; None where the pod ends before."""
        for attempt, pause in enumerate(back_off()):
            if self._ending.is_set():
                return None
            try:
                return await self._prepare(container)
            except PullFailed as problem:
                container.set_waiting("ErrImagePull" if attempt == 0 else "ImagePullBackOff", str(problem))
            except BadContainerConfig as problem:
                container.set_waiting("CreateContainerConfigError", str(problem))
            except (ApiFailure, *UNAVAILABLE) as problem:
                container.set_waiting("CreateContainerConfigError", f"the API server did not answer: {problem!r}")
            self._changed.set()
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._ending.wait(), pause)
        return None

    async def _prepare(self, container: Container) -> Start:
        spec, facts = container.spec, self._node.facts
        volumes = await prepare(self.obj, self.directory / "volumes", self._fetch)
        if facts.isolation == "plain" and spec.get("volumeMounts"):
            raise BadContainerConfig("this node can't make mount namespaces, so it can't mount volumes")
        image = await self._images.pull(spec["image"], await self._docker_configs())
        values = await environment(spec, image, self.obj, self._node.fields, self._fetch)
        limit = ((spec.get("resources") or {}).get("limits") or {}).get("memory")
        return Start(
            image_digest=image.digest,
            image_root=str(image.root),
            argv=command(spec, image, values),
            environment=values,
            working_directory=spec.get("workingDir") or image.config.get("WorkingDir") or "/",
            mounts=mounts(spec, volumes),
            masks=list(facts.masks),
            isolation=facts.isolation,
            memory_limit_bytes=None if limit is None else int(quantity(limit)),
        )

    async def _docker_configs(self) -> list[Mapping[str, Any]]:
        found = []
        for reference in self.obj["spec"].get("imagePullSecrets") or []:
            data = await self._fetch("secrets", reference["name"])
            if data and ".dockerconfigjson" in data:
                found.append(json.loads(data[".dockerconfigjson"]))
        return found

    async def _fetch(self, plural: str, name: str) -> dict[str, bytes] | None:
        found = await self._api.find(f"/api/v1/namespaces/{self.namespace}/{plural}/{name}")
        return None if found is None else decoded(found)

    async def _send_status(self) -> None:
        await self._api.send("PATCH", f"{self.path}/status", {"metadata": {"uid": self.uid}, "status": self._status()})

    @property
    def _phase(self) -> str:
        if self.over:
            done = not self._reason and all(container.exit_code == 0 for container in self._containers)
            return "Succeeded" if done else "Failed"
        return "Running" if all(container.image_id for container in self._containers) else "Pending"

    def _status(self) -> dict[str, Any]:
        phase, address = self._phase, self._node.facts.address
        ready = phase == "Running" and all(container.running for container in self._containers)
        self._set_condition("Ready", str(ready))
        if self._disrupted:
            self._set_condition("DisruptionTarget", "True", **{**self._reason, "reason": "TerminationByKubelet"})
        return {
            "phase": phase,
            "conditions": list(self._conditions.values()),
            "containerStatuses": [container.status() for container in self._containers],
            "initContainerStatuses": [container.status() for container in self._inits],
            "startTime": self._started_at,
            "hostIP": address,
            "podIP": address,
            "podIPs": [{"ip": address}],
            **self._reason,
        }

    def _set_condition(self, kind: str, status: str, **told: str) -> None:
        old = self._conditions.get(kind)
        since = old["lastTransitionTime"] if old and old["status"] == status else stamp(datetime.now(UTC))
        self._conditions[kind] = {"type": kind, "status": status, "lastTransitionTime": since, **told}
