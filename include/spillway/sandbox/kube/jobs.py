"""The job controller: one pod per index until each has succeeded or the back-off limit is passed."""

from __future__ import annotations

import copy
import secrets

from spillway.sandbox.kube.objects import Objects
from spillway.sandbox.kube.resources import JOBS, PODS, Object, condition, name_of, namespace_of, set_condition

INDEX = "batch.kubernetes.io/job-completion-index"
_CONTROLLER = "batch.kubernetes.io/controller-uid"


def run_jobs(objects: Objects) -> None:
    """One pass over every job that has not ended."""
    for job in objects.store.list(JOBS):
        if not (condition(job, "Complete") or condition(job, "Failed")):
            _run(objects, job)


def _run(objects: Objects, job: Object) -> None:
    spec, uid = job["spec"], job["metadata"]["uid"]
    by_phase: dict[str, list[Object]] = {"Succeeded": [], "Failed": [], "active": []}
    for pod in objects.store.list(PODS, namespace_of(job)):
        if (pod["metadata"].get("labels") or {}).get(_CONTROLLER) == uid:
            by_phase.get(pod["status"]["phase"], by_phase["active"]).append(pod)
    done, failed, active = {_index(pod) for pod in by_phase["Succeeded"]}, by_phase["Failed"], by_phase["active"]
    if len(done) >= spec["completions"]:
        ended = ("Complete", "CompletionsReached", "")
    elif len(failed) > spec["backoffLimit"]:
        ended = ("Failed", "BackoffLimitExceeded", "Job has reached the specified backoff limit")
        for pod in active:
            objects.delete(PODS, pod)
        active = []
    else:
        ended = None
        active += _start(objects, job, taken=done | {_index(pod) for pod in active}, running=len(active))
    _tell(objects, job, {"active": len(active), "succeeded": len(done), "failed": len(failed)}, ended)


def _start(objects: Objects, job: Object, *, taken: set[int], running: int) -> list[Object]:
    """Make pods for indexes that have none, as many as may run at once."""
    free = [index for index in range(job["spec"]["completions"]) if index not in taken]
    room = max(job["spec"]["parallelism"] - running, 0)
    return [objects.create(PODS, namespace_of(job), _pod(job, index)) for index in free[:room]]


def _tell(objects: Objects, job: Object, counts: Object, ended: tuple[str, str, str] | None) -> None:
    now = objects.now()

    def change(new: Object) -> None:
        new["status"] = {"startTime": now, **new["status"], **counts}
        if ended:
            kind, reason, message = ended
            set_condition(new, kind, "True", reason, message, now=now)
            new["status"].update({"completionTime": now} if kind == "Complete" else {})

    if ended or any(job["status"].get(name) != count for name, count in counts.items()):
        objects.edit(job, change)


def _pod(job: Object, index: int) -> Object:
    template = copy.deepcopy(job["spec"]["template"])
    metadata, spec = template.get("metadata") or {}, template["spec"]
    name, uid = name_of(job), job["metadata"]["uid"]
    source = {"fieldRef": {"apiVersion": "v1", "fieldPath": f"metadata.labels['{INDEX}']"}}
    for container in spec["containers"] + (spec.get("initContainers") or []):
        container["env"] = [*(container.get("env") or []), {"name": "JOB_COMPLETION_INDEX", "valueFrom": source}]
    labels = {"batch.kubernetes.io/job-name": name, "job-name": name, _CONTROLLER: uid, INDEX: str(index)}
    owner = {"apiVersion": "batch/v1", "kind": "Job", "name": name, "uid": uid, "controller": True}
    return {
        "metadata": {
            **metadata,
            "name": f"{name}-{index}-{secrets.token_hex(3)[:5]}",
            "labels": {**(metadata.get("labels") or {}), **labels},
            "annotations": {**(metadata.get("annotations") or {}), INDEX: str(index)},
            "ownerReferences": [{**owner, "blockOwnerDeletion": True}],
        },
        "spec": {**spec, "hostname": f"{name}-{index}"},
    }


def _index(pod: Object) -> int:
    return int(pod["metadata"]["labels"][INDEX])
