"""The job controller: one pod per index until each has succeeded or the back-off limit is passed."""

from __future__ import annotations

import copy
import secrets

from spillway.sandbox.kube.objects import Objects
from spillway.sandbox.kube.resources import JOBS, PODS, Object, condition, name_of, namespace_of, set_condition

INDEX = "batch.kubernetes.io/job-completion-index"
_JOB_NAME = "batch.kubernetes.io/job-name"
_CONTROLLER = "batch.kubernetes.io/controller-uid"


def run_jobs(objects: Objects) -> None:
    """One pass over every job that has not ended."""
    for job in objects.store.list(JOBS):
        if not (_ended(job) or job["metadata"].get("deletionTimestamp")):
            _run(objects, job)


def _ended(job: Object) -> bool:
    return any((condition(job, kind) or {}).get("status") == "True" for kind in ("Complete", "Failed"))


def _run(objects: Objects, job: Object) -> None:
    spec, uid = job["spec"], job["metadata"]["uid"]
    pods = [
        pod
        for pod in objects.store.list(PODS, namespace_of(job))
        if (pod["metadata"].get("labels") or {}).get(_CONTROLLER) == uid
    ]
    succeeded = [pod for pod in pods if pod["status"]["phase"] == "Succeeded"]
    failed = [pod for pod in pods if pod["status"]["phase"] == "Failed"]
    active = [pod for pod in pods if pod not in succeeded and pod not in failed]
    done = sorted({_index(pod) for pod in succeeded}) if spec["completionMode"] == "Indexed" else None
    count = len(succeeded) if done is None else len(done)
    status: Object = {
        "startTime": job.get("status", {}).get("startTime") or objects.now(),
        "active": len(active),
        "succeeded": count,
        "failed": len(failed),
        **({"completedIndexes": ranges(done)} if done is not None else {}),
    }
    if count >= spec["completions"]:
        _finish(objects, job, {**status, "completionTime": objects.now()}, "Complete", "CompletionsReached", "")
    elif len(failed) > spec["backoffLimit"]:
        for pod in active:
            objects.delete(PODS, pod)
        message = "Job has reached the specified backoff limit"
        _finish(objects, job, {**status, "active": 0}, "Failed", "BackoffLimitExceeded", message)
    else:
        started = [] if spec["suspend"] else _start(objects, job, active, done, missing=spec["completions"] - count)
        status["active"] += len(started)
        if {**job.get("status", {}), **status} != job.get("status"):
            objects.edit(job, lambda new: new["status"].update(status))


def _start(
    objects: Objects, job: Object, active: list[Object], done: list[int] | None, *, missing: int
) -> list[Object]:
    room = min(job["spec"]["parallelism"], missing) - len(active)
    if done is None:
        return [objects.create(PODS, namespace_of(job), _pod(job, None)) for _ in range(room)]
    taken = {*done, *(_index(pod) for pod in active)}
    free = [index for index in range(job["spec"]["completions"]) if index not in taken]
    return [objects.create(PODS, namespace_of(job), _pod(job, index)) for index in free[: max(room, 0)]]


def _pod(job: Object, index: int | None) -> Object:
    template = copy.deepcopy(job["spec"]["template"])
    metadata = dict(template.get("metadata") or {})
    name, uid = name_of(job), job["metadata"]["uid"]
    labels = {**(metadata.get("labels") or {}), _JOB_NAME: name, "job-name": name, _CONTROLLER: uid}
    annotations = dict(metadata.get("annotations") or {})
    middle = ""
    if index is not None:
        middle = f"{index}-"
        labels[INDEX] = annotations[INDEX] = str(index)
        template["spec"]["hostname"] = f"{name}-{index}"
        source = {"fieldRef": {"apiVersion": "v1", "fieldPath": f"metadata.labels['{INDEX}']"}}
        for container in template["spec"]["containers"] + (template["spec"].get("initContainers") or []):
            container["env"] = [*(container.get("env") or []), {"name": "JOB_COMPLETION_INDEX", "valueFrom": source}]
    owner = {"apiVersion": "batch/v1", "kind": "Job", "name": name, "uid": uid, "controller": True}
    metadata.update(
        name=f"{name}-{middle}{secrets.token_hex(3)[:5]}",
        labels=labels,
        annotations=annotations,
        ownerReferences=[{**owner, "blockOwnerDeletion": True}],
    )
    return {"metadata": metadata, "spec": template["spec"]}


def _index(pod: Object) -> int:
    return int(pod["metadata"]["labels"][INDEX])


def _finish(objects: Objects, job: Object, status: Object, kind: str, reason: str, message: str) -> None:
    def finish(new: Object) -> None:
        new["status"].update(status)
        set_condition(new, kind, "True", reason, message, now=objects.now())

    objects.edit(job, finish)


def ranges(indexes: list[int]) -> str:
    """Sorted indexes as ``0-2,5``."""
    parts: list[list[int]] = []
    for index in indexes:
        if parts and parts[-1][1] == index - 1:
            parts[-1][1] = index
        else:
            parts.append([index, index])
    return ",".join(str(first) if first == last else f"{first}-{last}" for first, last in parts)
