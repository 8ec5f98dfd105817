"""The objects of Kubernetes that one attempt is made of, as plain data."""

from __future__ import annotations

import base64
import json
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from spillway.clouds.base import ATTEMPT_LABEL, INSTALLATION_LABEL, OWNED_LABEL, RUN_LABEL
from spillway.clouds.facts import TOLERATED_TAINTS, TRAINER_CONTAINER
from spillway.clouds.gang import gang_of
from spillway.clouds.overrides import merge_overrides
from spillway.errors import LaunchRefused
from spillway.model import GPU_RESOURCE, Attempt, Cluster, JobSpec

FLUSH_MARGIN = timedelta(seconds=10)
"""Between the stop signal and the kill there is time for a checkpoint, measured, and this much more."""
NODE_TOLERATION = timedelta(seconds=30)
"""How long a pod stays bound to a silent node before the control plane deletes it; Kubernetes waits five minutes."""

CA_FILE = "ca.crt"
"""What the certificates that vouch for a store are called, in their ConfigMap and in the pod."""

_MANAGED_BY = {"app.kubernetes.io/managed-by": "spillway"}
_DNS_LABEL = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")
_BY_DIGEST = re.compile(r"[^@\s]+/[^@\s]+@sha256:[0-9a-f]{64}")


@dataclass(frozen=True, slots=True, kw_only=True)
class PodAccess:
    """The objects of its namespace by which a pod reaches store and registry, by name.

    ``store_secret`` and ``cache_secret``: their keys become the environment of the trainer; None where it has no cache.
    ``store_ca`` and ``cache_ca``: ConfigMaps with the certificates that vouch for its store and for its cache's, each
    for that one alone; None where the image knows them.
    ``pull_secret``: what its node shows the registry.
    """

    store_secret: str
    pull_secret: str
    cache_secret: str | None = None
    store_ca: str | None = None
    cache_ca: str | None = None

    @property
    def certificates(self) -> Mapping[str, str]:
        """The ConfigMaps by what they vouch for."""
        named = {"store": self.store_ca, "cache": self.cache_ca}
        return {what: name for what, name in named.items() if name is not None}


def build_pod(
    *,
    attempt: Attempt,
    installation: str,
    cluster: Cluster,
    image: str,
    environment: Mapping[str, str],
    access: PodAccess,
    measured_flush: timedelta | None = None,
    prefers: Sequence[str] = (),
) -> Mapping[str, Any]:
    """The pod of one attempt, the same one whenever it is built but for the nodes that it prefers.

    Args:
        installation: the id of the ledger that the attempt is in.
        image: ``host/repository@sha256:...``; a tag is refused.
        environment: of the trainer, all of it.
        measured_flush: how long the job's last checkpoints took; a shorter grace is raised to it and FLUSH_MARGIN.
        prefers: the nodes that its pods go to where they still have room.
    Raises:
        LaunchRefused: a name or image that Kubernetes cannot take.
        ConfigError: an override that would change what the platform relies on.
    """
    _check(attempt, image)
    job, pool = attempt.job, cluster.pool(attempt.candidate.pool)
    spec = {
        "restartPolicy": "Never",
        "terminationGracePeriodSeconds": grace_seconds(job.grace, measured_flush),
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        "nodeSelector": dict(pool.node_selector),
        "tolerations": _tolerations(on_gpus=bool(job.gpus_per_node)),
        "imagePullSecrets": [{"name": access.pull_secret}],
        "containers": [_trainer(job, image, environment, access, pool.gpu_resource)],
        "volumes": _volumes(job, access),
        **_affinity(prefers),
    }
    metadata = {"name": attempt.label, "namespace": cluster.namespace, "labels": _labels(attempt, installation)}
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}
    merged = merge_overrides(
        pod, job.pod_overrides, job=job.name, container=TRAINER_CONTAINER, gpu_resource=pool.gpu_resource
    )
    return merged if job.nodes == 1 else gang_of(merged, job.nodes)


def grace_seconds(declared: timedelta, measured_flush: timedelta | None) -> int:
    """The pod's grace: as declared, but never less than a flush and its margin."""
    needed = timedelta() if measured_flush is None else measured_flush + FLUSH_MARGIN
    return math.ceil(max(declared, needed).total_seconds())


def store_secret(name: str, namespace: str, environment: Mapping[str, str], *, installation: str) -> Mapping[str, Any]:
    """A Secret that carries an object store's credentials, a key for each variable of the environment."""
    return _secret(name, namespace, "Opaque", environment, installation)


def store_ca(name: str, namespace: str, certificates: str, *, installation: str) -> Mapping[str, Any]:
    """The ConfigMap with the certificates (PEM) that vouch for an object store."""
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": _metadata(name, namespace, installation),
        "data": {CA_FILE: certificates},
    }


def pull_secret(
    name: str, namespace: str, *, host: str, username: str, password: str, installation: str
) -> Mapping[str, Any]:
    """The Secret that lets nodes pull from the registry ``host``."""
    token = base64.b64encode(f"{username}:{password}".encode()).decode()
    document = {"auths": {host: {"username": username, "password": password, "auth": token}}}
    text = json.dumps(document, sort_keys=True)
    return _secret(name, namespace, "kubernetes.io/dockerconfigjson", {".dockerconfigjson": text}, installation)


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


def _labels(attempt: Attempt, installation: str) -> dict[str, str]:
    whose = {ATTEMPT_LABEL: attempt.label, RUN_LABEL: attempt.run, INSTALLATION_LABEL: installation}
    return whose | {OWNED_LABEL: "true", **_MANAGED_BY}


def _tolerations(*, on_gpus: bool) -> list[dict[str, Any]]:
    """Work without GPUs does not tolerate the taint that keeps it off their nodes."""
    seconds = int(NODE_TOLERATION.total_seconds())
    taints = [taint for taint in TOLERATED_TAINTS if on_gpus or taint != GPU_RESOURCE]
    return [
        *({"key": key, "operator": "Exists", "effect": "NoSchedule"} for key in taints),
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


def _affinity(prefers: Sequence[str]) -> dict[str, Any]:
    """A wish and no demand, by the nodes' own names: their label of the host name may say something else.

    In the default scheduler it weighs twice as much as that a node is empty, which alone would spread pods.
    """
    if not prefers:
        return {}
    named = [{"key": "metadata.name", "operator": "In", "values": [node]} for node in prefers]
    wishes = [{"weight": 100, "preference": {"matchFields": [field]}} for field in named]
    return {"affinity": {"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": wishes}}}


def _trainer(
    job: JobSpec, image: str, environment: Mapping[str, str], access: PodAccess, gpu_resource: str
) -> dict[str, Any]:
    """The container; its command is given as ``args``.

    So the image's entrypoint stays process 1, and no shell keeps the stop signal from the trainer.
    """
    gpus = {gpu_resource: str(job.gpus_per_node)} if job.gpus_per_node else {}
    mounts: list[dict[str, Any]] = [{"name": "shm", "mountPath": "/dev/shm"}]  # noqa: S108 - the container's memory
    for what in access.certificates:
        folder = f"/etc/spillway/{what}"
        environment = {**environment, f"SPILLWAY_{what.upper()}_CA_FILE": f"{folder}/{CA_FILE}"}
        mounts.append({"name": f"{what}-ca", "mountPath": folder, "readOnly": True})
    return {
        "name": TRAINER_CONTAINER,
        "image": image,
        "imagePullPolicy": "IfNotPresent",
        "args": list(job.command),
        "env": [{"name": name, "value": environment[name]} for name in sorted(environment)],
        "envFrom": [{"secretRef": {"name": name}} for name in (access.store_secret, access.cache_secret) if name],
        "resources": {
            "requests": {
                "cpu": f"{job.cpu_millicores}m",
                "memory": f"{job.memory_mib}Mi",
                **gpus,
            },
            "limits": gpus,
        },
        "volumeMounts": mounts,
        "terminationMessagePolicy": "FallbackToLogsOnError",
    }


def _volumes(job: JobSpec, access: PodAccess) -> list[dict[str, Any]]:
    """What ``_trainer`` mounts."""
    shared_memory = {"medium": "Memory", "sizeLimit": f"{math.ceil(job.memory_gib * 512)}Mi"}
    volumes: list[dict[str, Any]] = [{"name": "shm", "emptyDir": shared_memory}]
    volumes += [{"name": f"{what}-ca", "configMap": {"name": name}} for what, name in access.certificates.items()]
    return volumes


def _secret(name: str, namespace: str, kind: str, values: Mapping[str, str], installation: str) -> Mapping[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": _metadata(name, namespace, installation),
        "type": kind,
        "data": {key: base64.b64encode(value.encode()).decode() for key, value in values.items()},
    }


def _metadata(name: str, namespace: str, installation: str) -> dict[str, Any]:
    return {"name": name, "namespace": namespace, "labels": {INSTALLATION_LABEL: installation, **_MANAGED_BY}}
