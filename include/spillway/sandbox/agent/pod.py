"""One pod on its node, from the first pull to the last status."""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from spillway.sandbox.agent.client import STRATEGIC_PATCH, UNAVAILABLE, ApiClient, ApiFailure
from spillway.sandbox.agent.container import Container, Start
from spillway.sandbox.agent.environment import BadContainerConfig, command, decoded, environment
from spillway.sandbox.agent.images import ImageStore, PullFailed
from spillway.sandbox.agent.node import GPU, Node
from spillway.sandbox.agent.report import StatusReport, back_off, persist
from spillway.sandbox.agent.volumes import mounts, prepare
from spillway.sandbox.kube.quantities import quantity

log = logging.getLogger(__name__)

_DISRUPTED = "TerminationByKubelet"
_DISCARD_SECONDS = 5
_GPU_TRIES, _GPU_PAUSE_SECONDS = 50, 0.1


class GpuPool:
    """The indices of the node's GPUs that no pod has."""

    def __init__(self, count: int) -> None:
        self._free = list(range(count))

    def take(self, count: int) -> list[int] | None:
        """That many indices, the lowest first; None where they are not there."""
        if count > len(self._free):
            return None
        taken, self._free = self._free[:count], self._free[count:]
        return taken

    def give_back(self, indices: list[int]) -> None:
        self._free = sorted(self._free + indices)


class Pod:
    """Runs the pod's containers as its restart policy says, and tells the API server."""

    def __init__(self, obj: Mapping[str, Any], node: Node, api: ApiClient, images: ImageStore, gpus: GpuPool) -> None:
        self.obj, self._node, self._api, self._images, self._gpus = obj, node, api, images, gpus
        metadata = obj["metadata"]
        self.namespace, self.name, self.uid = metadata["namespace"], metadata["name"], metadata["uid"]
        self.directory = node.pod_directory(self.uid)
        self.directory.mkdir(parents=True, exist_ok=True)
        self._inits = [Container(spec, self.directory) for spec in obj["spec"].get("initContainers") or []]
        self._containers = [Container(spec, self.directory) for spec in obj["spec"]["containers"]]
        self._everyone = (*self._inits, *self._containers)
        self.over = False
        self._final_phase: str | None = None
        self._reason = ("", "")
        self._disruption = ""
        self._conditions: dict[str, dict[str, str]] = {}
        self._started_at = _now()
        self._indices: list[int] = []
        self._ending = asyncio.Event()
        self._report = StatusReport(self._send_status)
        self._task = asyncio.create_task(self._run())

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
        if self.over:
            return
        self._reason = (reason, message)
        self._disruption = message
        await self._report.push()
        self._end(self.obj["spec"].get("terminationGracePeriodSeconds", 30))
        await asyncio.wait([self._task])

    async def discard(self) -> None:
        """Kill what runs and stop talking about the pod."""
        self._end(0)
        await self._report.close()
        await asyncio.wait([self._task], timeout=_DISCARD_SECONDS)
        self._task.cancel()

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

    async def _run(self) -> None:
        try:
            await self._run_containers()
        except Exception as problem:
            log.exception("pod %s/%s failed inside the agent", self.namespace, self.name)
            self._final_phase, self._reason = "Failed", ("AgentError", repr(problem))
            self._end(0)
        finally:
            self._gpus.give_back(self._indices)
            self.over = True
        await self._report.push(wait=True)

    async def _run_containers(self) -> None:
        spec = self.obj["spec"]
        if not await self._take_gpus(_gpu_count(spec)):
            self._final_phase = "Failed"
            self._reason = ("UnexpectedAdmissionError", f"Allocate failed: the node has not enough {GPU} left")
            return
        timer = asyncio.create_task(self._watch_deadline(spec.get("activeDeadlineSeconds")))
        try:
            for container in self._inits:
                if await self._keep(container, once=True) != 0:
                    break
            else:
                await asyncio.gather(*(self._keep(container, once=False) for container in self._containers))
        finally:
            timer.cancel()
        done = all(container.exit_code == 0 for container in self._containers) and not self._reason[0]
        self._final_phase = "Succeeded" if done else "Failed"

    async def _take_gpus(self, count: int) -> bool:
        """Have the GPUs; those of a pod that was deleted by force come back a moment after its object is gone."""
        for _ in range(_GPU_TRIES):
            indices = self._gpus.take(count)
            if indices is not None:
                self._indices = indices
                return True
            await self._pause(_GPU_PAUSE_SECONDS)
        return False

    async def _watch_deadline(self, seconds: int | None) -> None:
        if seconds is not None:
            await asyncio.sleep(seconds)
            self._reason = ("DeadlineExceeded", "Pod was active on the node longer than the specified deadline")
            self._end(self.obj["spec"].get("terminationGracePeriodSeconds", 30))

    async def _keep(self, container: Container, *, once: bool) -> int | None:
        """Run the container until its policy is content, init containers until they succeed ``once``.

        Gives the last exit code, None where the pod ends before it ever started.
        """
        policy = self.obj["spec"]["restartPolicy"]
        for pause in back_off():
            start = await self._make(container)
            if start is None or self._ending.is_set():
                break
            await container.start(start)
            if self._ending.is_set():  # the order to end came while it was being started
                container.kill()
            await self._report.push()
            code = await container.wait()
            content = policy == "Never" or (code == 0 and (once or policy == "OnFailure"))
            if self._ending.is_set() or content:
                break
            container.restarts += 1
            container.set_waiting("CrashLoopBackOff", f"back-off {pause}s restarting failed container")
            await self._report.push()
            await self._pause(pause)
        await self._report.push()
        return container.exit_code

    async def _make(self, container: Container) -> Start | None:
        """What to start the container from, tried until it is there; None where the pod ends before."""
        for attempt, pause in enumerate(back_off()):
            if self._ending.is_set():
                return None
            try:
                return await self._prepare(container)
            except PullFailed as problem:
                reason, message = ("ErrImagePull" if attempt == 0 else "ImagePullBackOff"), str(problem)
            except BadContainerConfig as problem:
                reason, message = "CreateContainerConfigError", str(problem)
            except (ApiFailure, *UNAVAILABLE) as problem:
                reason, message = "CreateContainerConfigError", f"the API server did not answer: {problem!r}"
            if container.set_waiting(reason, message):
                await self._report.push()
                await self._node.event(self.obj, "Warning", "Failed", message)
            await self._pause(pause)
        return None

    async def _prepare(self, container: Container) -> Start:
        spec, node = container.spec, self._node
        volumes = await prepare(self.obj, self.directory / "volumes", self._fetch)
        if node.isolation == "plain" and spec.get("volumeMounts"):
            raise BadContainerConfig("this node can't make mount namespaces, so it can't mount volumes")
        image = await self._images.pull(spec["image"], await self._docker_configs())
        values = await environment(spec, image, self.obj, node.facts, self._fetch)
        if self._indices:
            values["NVIDIA_VISIBLE_DEVICES"] = ",".join(map(str, self._indices))
        return Start(
            image=image,
            argv=command(spec, image, values),
            environment=values,
            working_directory=spec.get("workingDir") or image.config.get("WorkingDir") or "/",
            mounts=mounts(spec, volumes),
            masks=node.masks,
            isolation=node.isolation,
            memory_limit_bytes=_memory_limit(spec),
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

    async def _pause(self, seconds: float) -> None:
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._ending.wait(), seconds)

    async def _send_status(self) -> None:
        body = {"metadata": {"uid": self.uid}, "status": self.status()}
        await self._api.send("PATCH", f"{self.path}/status", body, content_type=STRATEGIC_PATCH)

    @property
    def _phase(self) -> str:
        if self._final_phase:
            return self._final_phase
        return "Running" if all(container.image_id for container in self._containers) else "Pending"

    def status(self) -> dict[str, Any]:
        phase, address = self._phase, self._node.address
        ready = phase == "Running" and all(container.running for container in self._containers)
        why = "" if ready else {"Succeeded": "PodCompleted", "Failed": "PodFailed"}.get(phase, "ContainersNotReady")
        self._set_condition("Initialized", "True", "", "")
        for kind in ("Ready", "ContainersReady"):
            self._set_condition(kind, str(ready), why, "")
        if self._disruption:
            self._set_condition("DisruptionTarget", "True", _DISRUPTED, self._disruption)
        status: dict[str, Any] = {
            "phase": phase,
            "conditions": list(self._conditions.values()),
            "containerStatuses": [container.status() for container in self._containers],
            "startTime": self._started_at,
            "hostIP": address,
            "podIP": address,
            "podIPs": [{"ip": address}],
        }
        if self._inits:
            status["initContainerStatuses"] = [container.status() for container in self._inits]
        if self._reason[0]:
            status["reason"], status["message"] = self._reason
        return status

    def _set_condition(self, kind: str, status: str, reason: str, message: str) -> None:
        old = self._conditions.get(kind)
        since = old["lastTransitionTime"] if old and old["status"] == status else _now()
        told = {key: text for key, text in (("reason", reason), ("message", message)) if text}
        self._conditions[kind] = {"type": kind, "status": status, "lastTransitionTime": since, **told}


def _gpu_count(spec: Mapping[str, Any]) -> int:
    limits = [(container.get("resources") or {}).get("limits") or {} for container in spec["containers"]]
    return sum(int(limit.get(GPU, 0)) for limit in limits)


def _memory_limit(spec: Mapping[str, Any]) -> int | None:
    text = ((spec.get("resources") or {}).get("limits") or {}).get("memory")
    return None if text is None else int(quantity(text))


def _now() -> str:
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
