"""A namespace for tests of pods on any Kubernetes cluster: manifests, waiting, logs."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from itertools import count
from typing import Any

from spillway.testing.runnable_image import SHELL

DEADLINE_SECONDS = 60
PULL_SECRET = "pull"
_numbers = count(1)


@dataclass(frozen=True, kw_only=True)
class Image:
    """An image with a shell, and what its pull secret holds; None where it is public."""

    name: str
    docker_config: Mapping[str, Any] | None


class Space:
    """A namespace of its own with everything that a test of pods needs; it is deleted as a whole."""

    def __init__(self, api_client: Any, image: Image) -> None:
        from kubernetes import client

        self.api_client, self.image = api_client, image
        self.core = client.CoreV1Api(api_client)
        self._refusal = client.ApiException
        self.name = f"contract-{os.getpid()}-{next(_numbers)}"

    def open(self) -> None:
        """Create the namespace; return when pods can be created in it."""
        self.core.create_namespace({"metadata": {"name": self.name}})
        if self.image.docker_config:
            data = {".dockerconfigjson": json.dumps(self.image.docker_config)}
            body = {"metadata": {"name": PULL_SECRET}, "type": "kubernetes.io/dockerconfigjson", "stringData": data}
            self.core.create_namespaced_secret(self.name, body)
        eventually(self._accepts_pods)

    def close(self) -> None:
        self.core.delete_namespace(self.name)

    def pod(self, name: str, *command: str, spec: Mapping[str, Any] | None = None, **container: Any) -> dict[str, Any]:
        """The manifest of a pod of one container; ``spec`` is merged into the pod's, the rest into the container's."""
        main = {"name": "base", "image": self.image.name, "command": list(command), **container}
        secrets = {"imagePullSecrets": [{"name": PULL_SECRET}]} if self.image.docker_config else {}
        fixed = {"restartPolicy": "Never", "terminationGracePeriodSeconds": 5, "automountServiceAccountToken": False}
        return {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": name, "namespace": self.name, "labels": {"app": "contract"}},
            "spec": {**fixed, **secrets, "containers": [main], **(spec or {})},
        }

    def create(self, body: Mapping[str, Any]) -> Any:
        """The pod as it was created."""
        return self.core.create_namespaced_pod(self.name, body)

    def run(self, name: str, script: str, **fields: Any) -> Any:
        """A pod that runs the shell script."""
        return self.create(self.pod(name, *SHELL, script, **fields))

    def _accepts_pods(self) -> bool:
        """False where the namespace has no service account yet, which a real cluster makes a moment later."""
        try:
            self.core.create_namespaced_pod(self.name, self.pod("trial", "true"), dry_run="All")
        except self._refusal as problem:
            if problem.status == 403 and "serviceaccount" in str(problem.body):
                return False
            raise
        return True

    def find(self, name: str) -> Any:
        try:
            return self.core.read_namespaced_pod(name, self.name)
        except self._refusal as problem:
            if problem.status == 404:
                return None
            raise

    def phase(self, name: str, *phases: str) -> Any:
        """The pod when it is in one of the phases."""

        def reached() -> Any:
            pod = self.find(name)
            return pod if pod and pod.status.phase in phases else None

        return eventually(reached, lambda: self.find(name))

    def ended(self, name: str) -> Any:
        return self.phase(name, "Succeeded", "Failed")

    def gone(self, name: str) -> None:
        """Return when there is no pod of that name."""
        eventually(lambda: self.find(name) is None, lambda: self.find(name))

    def waiting(self, name: str, *reasons: str) -> Any:
        """The container's waiting state when it has one of the reasons."""

        def told() -> Any:
            statuses = self.find(name).status.container_statuses
            state = statuses[0].state.waiting if statuses else None
            return state if state and state.reason in reasons else None

        return eventually(told, lambda: self.find(name))

    def log(self, name: str, **options: Any) -> str:
        answer = self.core.read_namespaced_pod_log(name, self.name, _preload_content=False, **options)
        text: str = answer.data.decode()
        return text

    def says(self, name: str, text: str) -> None:
        """Return when the pod's log has the text."""
        self.phase(name, "Running", "Succeeded", "Failed")
        eventually(lambda: text in self.log(name), lambda: self.log(name))


def eventually(probe: Callable[[], Any], describe: Callable[[], Any] = lambda: "") -> Any:
    """The first truthy answer of the probe within the deadline; ``describe`` says what is there instead."""
    deadline = time.monotonic() + DEADLINE_SECONDS
    while not (found := probe()):
        assert time.monotonic() < deadline, f"not within {DEADLINE_SECONDS} s: {describe()}"
        time.sleep(0.05)
    return found


def terminated(pod: Any) -> Any:
    """The terminated state of the pod's container."""
    return pod.status.container_statuses[0].state.terminated


def condition_reasons(pod: Any) -> dict[str, str | None]:
    """The reason of each condition of the pod."""
    return {condition.type: condition.reason for condition in pod.status.conditions or []}
