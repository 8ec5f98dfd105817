"""A job of several nodes: an Indexed Job, the headless Service by which its pods find each other, and one state."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from spillway.clouds.base import ATTEMPT_LABEL, INSTALLATION_LABEL
from spillway.clouds.facts import Json, moment
from spillway.model import PodPhase, PodState

COMPLETION_INDEX = "batch.kubernetes.io/job-completion-index"
_LIVE = frozenset({PodPhase.PENDING, PodPhase.RUNNING})


def gang_of(pod: Mapping[str, Any], nodes: int) -> Mapping[str, Any]:
    """The Job that runs ``nodes`` copies of the pod, all or none.

    Each copy knows its rank (``JOB_COMPLETION_INDEX``, set by the control plane), their number (``SPILLWAY_NODES``) and
    the name of the first (``SPILLWAY_COORDINATOR``). The first failure ends all: a gang resumes from its checkpoint as
    a whole.
    """
    metadata, spec = pod["metadata"], pod["spec"]
    name = metadata["name"]
    told = [
        {"name": "SPILLWAY_COORDINATOR", "value": f"{name}-0.{name}"},
        {"name": "SPILLWAY_NODES", "value": str(nodes)},
    ]
    containers = [
        {**container, "env": [*container["env"], *told]} if index == 0 else container
        for index, container in enumerate(spec["containers"])
    ]
    template = {key: value for key, value in metadata.items() if key in {"labels", "annotations"}}
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": metadata,
        "spec": {
            "completionMode": "Indexed",
            "completions": nodes,
            "parallelism": nodes,
            "backoffLimit": 0,
            "template": {"metadata": template, "spec": {**spec, "subdomain": name, "containers": containers}},
        },
    }


def headless_service(job: Json) -> Mapping[str, Any]:
    """The Service of a Job that was created; it goes when the Job goes."""
    metadata = job["metadata"]
    owner = {"apiVersion": "batch/v1", "kind": "Job", "name": metadata["name"], "uid": metadata["uid"]}
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": metadata["name"], "labels": metadata["labels"], "ownerReferences": [owner]},
        "spec": {
            "clusterIP": "None",
            "publishNotReadyAddresses": True,  # the first pod must be found before all are ready
            "selector": {ATTEMPT_LABEL: metadata["labels"][ATTEMPT_LABEL]},
        },
    }


def job_state(job: Json, *, cluster: str) -> PodState:
    """The state of a gang none of whose pods is there: not yet, or no more where its Job has ended.

    Its pods took along when their trainers began, so an ended one began when its Job did.
    """
    metadata, status = job["metadata"], job.get("status") or {}
    labels = metadata.get("labels") or {}
    true = {item["type"]: item for item in status.get("conditions") or () if item["status"] == "True"}
    phase = PodPhase.SUCCEEDED if "Complete" in true else PodPhase.FAILED if "Failed" in true else PodPhase.PENDING
    ended = true.get("Complete") or true.get("Failed")
    return PodState(
        name=metadata["name"],
        phase=phase,
        cluster=cluster,
        uid=metadata["uid"],
        created_at=moment(metadata["creationTimestamp"]),
        started_at=moment(status.get("startTime")) if ended else None,
        finished_at=moment(ended.get("lastTransitionTime")) if ended else None,
        attempt=labels.get(ATTEMPT_LABEL),
        installation=labels.get(INSTALLATION_LABEL),
    )


def gang_state(name: str, uid: str, pods: Sequence[PodState]) -> PodState:
    """One state for the pods of a gang, at least one: the facts of the pod that decides what became of it.

    What the platform did to one pod comes before the errors that the others ran into because of it; of several
    failures the first is the cause.
    """
    ordered = sorted(pods, key=_telling)
    decisive = ordered[0]
    others = any(pod.phase in _LIVE and pod.exit_code is None for pod in ordered[1:])
    return replace(decisive, name=name, uid=uid, others_running=others)


def _telling(pod: PodState) -> tuple[int, float, str]:
    ended = pod.finished_at.timestamp() if pod.finished_at else float("inf")
    if pod.disruption is not None or pod.reason:
        rank = 0
    elif pod.node_exists is False or pod.node_ready is False or pod.node_deleted:
        rank = 1
    elif pod.phase is PodPhase.FAILED or pod.exit_code:
        rank = 2
    elif pod.deleted_at is not None:
        rank = 3
    else:
        rank = {PodPhase.PENDING: 4, PodPhase.RUNNING: 5}.get(pod.phase, 6)
    return rank, ended, pod.name
