"""The objects of Kubernetes that one attempt is made of, as plain data."""

from __future__ import annotations

import base64
import json
import math
import re
from collections.abc import Mapping
from datetime import timedelta
from typing import Any

from spillway.clouds.base import ATTEMPT_LABEL, OWNED_LABEL, RUN_LABEL
from spillway.clouds.facts import GPU_RESOURCE, TOLERATED_TAINTS, TRAINER_CONTAINER
from spillway.clouds.gang import gang_of
from spillway.clouds.overrides import merge_overrides
from spillway.errors import LaunchRefused
from spillway.model import Attempt, Cluster, JobSpec

FLUSH_MARGIN = timedelta(seconds=10)
"""Between the stop signal and the kill there is time for a checkpoint, measured, and this much more."""
NODE_TOLERATION = timedelta(seconds=30)
"""How long a pod stays bound to a silent node before the control plane deletes it; Kubernetes waits five minutes."""

_MANAGED_BY = {"app.kubernetes.io/managed-by": "spillway"}
_DNS_LABEL = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")
_BY_DIGEST = re.compile(r"[^@\s]+/[^@\s]+@sha256:[0-9a-f]{64}")


def build_pod(
    *,
    attempt: Attempt,
    cluster: Cluster,
    image: str,
    environment: Mapping[str, str],
    store_secret: str | None,
    pull_secret: str | None,
    measured_flush: timedelta | None = None,
) -> Mapping[str, Any]:
    """The pod of one attempt, the same one whenever it is built; of a job of several nodes, the Job of such pods.

    The job's command is given as ``args``: the image's entrypoint stays process 1 and no shell keeps the stop signal
    from the trainer.

    Args:
        image: ``host/repository@sha256:...``; a tag is refused.
        environment: of the platform; it wins over the job's own.
        store_secret: Secret whose keys become the environment of the trainer; None where nodes carry an identity.
        pull_secret: Secret for the registry; None where nodes may pull without one.
        measured_flush: how long the job's last checkpoints took; a shorter grace is raised to it and FLUSH_MARGIN.
    Raises:
        LaunchRefused: a name or image that Kubernetes cannot take.
        ConfigError: an override that would change what the platform relies on.
    """
    _check(attempt, image)
    job = attempt.job
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": attempt.label, "namespace": cluster.namespace, "labels": _labels(attempt)},
        "spec": {
            "restartPolicy": "Never",
            "terminationGracePeriodSeconds": grace_seconds(job.grace, measured_flush),
            "automountServiceAccountToken": False,
            "enableServiceLinks": False,
            "nodeSelector": dict(cluster.pool(attempt.candidate.pool).node_selector),
            "tolerations": _tolerations(),
            "imagePullSecrets": [{"name": pull_secret}] if pull_secret else [],
            "containers": [_trainer(job, image, {**job.environment, **environment}, store_secret)],
            "volumes": [{"name": "shm", "emptyDir": {"medium": "Memory", "sizeLimit": _mebibytes(job.memory_gib / 2)}}],
        },
    }
    merged = merge_overrides(pod, job.pod_overrides, job=job.name, container=TRAINER_CONTAINER)
    return merged if job.nodes == 1 else gang_of(merged, job.nodes)


def grace_seconds(declared: timedelta, measured_flush: timedelta | None) -> int:
    """The pod's grace: as declared, but never less than a flush and its margin."""
    needed = timedelta() if measured_flush is None else measured_flush + FLUSH_MARGIN
    return math.ceil(max(declared, needed).total_seconds())


def store_secret(name: str, namespace: str, environment: Mapping[str, str]) -> Mapping[str, Any]:
    """The Secret that carries the object store's credentials, a key for each variable of the environment."""
    return _secret(name, namespace, "Opaque", environment)


def pull_secret(name: str, namespace: str, *, host: str, username: str, password: str) -> Mapping[str, Any]:
    """The Secret that lets nodes pull from the registry ``host``."""
    token = base64.b64encode(f"{username}:{password}".encode()).decode()
    document = {"auths": {host: {"username": username, "password": password, "auth": token}}}
    text = json.dumps(document, sort_keys=True)
    return _secret(name, namespace, "kubernetes.io/dockerconfigjson", {".dockerconfigjson": text})


def _check(attempt: Attempt, image: str) -> None:
    gang = attempt.job.nodes > 1
    longest = 63 - len(f"-{attempt.job.nodes}") if gang else 63  # each pod of a gang adds its rank
    named = _DNS_LABEL.fullmatch(attempt.label) and len(attempt.label) <= longest
    if not named or (gang and not attempt.label[0].isalpha()):
        raise LaunchRefused(
            f"attempt '{attempt.label}' cannot name a pod: expected at most {longest} of a-z, 0-9 and '-', beginning "
            "and ending with a letter or digit (a gang's with a letter); give the run a shorter or simpler name"
        )
    if not _BY_DIGEST.fullmatch(image):
        raise LaunchRefused(
            f"attempt '{attempt.label}': image '{image}' is not pinned; expected host/repository@sha256:<64 hex "
            "digits>, because a tag may point at something else by the time the node pulls it"
        )


def _labels(attempt: Attempt) -> dict[str, str]:
    return {ATTEMPT_LABEL: attempt.label, RUN_LABEL: attempt.run, OWNED_LABEL: "true", **_MANAGED_BY}


def _tolerations() -> list[dict[str, Any]]:
    seconds = int(NODE_TOLERATION.total_seconds())
    return [
        *({"key": key, "operator": "Exists", "effect": "NoSchedule"} for key in TOLERATED_TAINTS),
        *(
            {
                "key": f"node.kubernetes.io/{key}",
                "operator": "Exists",
                "effect": "NoExecute",
                "tolerationSeconds": seconds,
            }
            for key in ("not-ready", "unreachable")
        ),
    ]


def _trainer(job: JobSpec, image: str, environment: Mapping[str, str], store_secret: str | None) -> dict[str, Any]:
    gpus = str(job.gpus_per_node)
    return {
        "name": TRAINER_CONTAINER,
        "image": image,
        "imagePullPolicy": "IfNotPresent",
        "args": list(job.command),
        "env": [{"name": name, "value": environment[name]} for name in sorted(environment)],
        "envFrom": [{"secretRef": {"name": store_secret}}] if store_secret else [],
        "resources": {
            "requests": {
                "cpu": f"{math.ceil(job.cpu_cores * 1000)}m",
                "memory": _mebibytes(job.memory_gib),
                GPU_RESOURCE: gpus,
            },
            "limits": {GPU_RESOURCE: gpus},
        },
        "volumeMounts": [{"name": "shm", "mountPath": "/dev/shm"}],  # noqa: S108 - the shared memory of the container
        "terminationMessagePolicy": "FallbackToLogsOnError",
    }


def _mebibytes(gib: float) -> str:
    return f"{math.ceil(gib * 1024)}Mi"


def _secret(name: str, namespace: str, kind: str, values: Mapping[str, str]) -> Mapping[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {"name": name, "namespace": namespace, "labels": dict(_MANAGED_BY)},
        "type": kind,
        "data": {key: base64.b64encode(value.encode()).decode() for key, value in values.items()},
    }
