"""Reading pods as an API describes them."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from spillway.clouds.base import ATTEMPT_LABEL
from spillway.clouds.facts import NodeCondition, pod_state, pod_use
from spillway.model import PodPhase, PodState, PodUse

AT = "2026-11-30T12:00:00Z"
MOMENT = datetime(2026, 11, 30, 12, tzinfo=UTC)
READY = NodeCondition(exists=True, ready=True, changed_at=MOMENT)
TRAINER = {"name": "trainer", "image": "r/t@sha256:0", "resources": {"limits": {"nvidia.com/gpu": 2}}}


def pod(status: dict[str, Any], **metadata: Any) -> dict[str, Any]:
    return {
        "metadata": {
            "name": "digits-1",
            "namespace": "training",
            "uid": "u-1",
            "creationTimestamp": AT,
            "labels": {ATTEMPT_LABEL: "digits-1"},
            **metadata,
        },
        "spec": {
            "nodeName": "n1",
            "terminationGracePeriodSeconds": 60,
            "containers": [{"name": "side", "image": "s"}, TRAINER],
        },
        "status": status,
    }


def test_a_pod_takes_gpus_until_it_has_ended() -> None:
    for phase in ("Pending", "Running", "Unknown"):
        assert pod_use(pod({"phase": phase}), namespace="training") == PodUse(
            name="digits-1", namespace="training", gpus=2, attempt="digits-1", node="n1"
        )
    assert pod_use(pod({"phase": "Succeeded"}), namespace="training") is None
    assert pod_use(pod({"phase": "Failed"}), namespace="training") is None
    foreign = pod({}, labels=None)
    del foreign["spec"]["nodeName"]
    assert pod_use(foreign, namespace="training") == PodUse(name="digits-1", namespace="training", gpus=2)
    without = {"metadata": {"name": "x"}, "spec": {"containers": [{"name": "c"}]}}
    assert pod_use(without, namespace="training") is None


def test_a_pod_of_ours_is_counted_without_gpus_too() -> None:
    """Its reservation stands for the same cores, which would count twice otherwise."""
    ours = pod({"phase": "Running"})
    ours["spec"]["containers"] = [{"name": "c", "resources": {"requests": {"cpu": "4"}}}]
    assert pod_use(ours, namespace="training") == PodUse(
        name="digits-1", namespace="training", gpus=0, cpu_millicores=4000, attempt="digits-1", node="n1"
    )
    assert pod_use(ours, namespace="elsewhere") is None


def test_a_pod_may_take_a_part_of_a_gpu() -> None:
    part = "nvidia.com/mig-3g.40gb"
    seen = pod({"phase": "Running"})
    seen["spec"]["containers"] = [{"name": "c", "resources": {"limits": {part: 1}}}]
    assert pod_use(seen, namespace="elsewhere") is None
    assert pod_use(seen, namespace="training", resources=["nvidia.com/gpu", part]) == PodUse(
        name="digits-1", namespace="training", gpus=1, gpu_resource=part, attempt="digits-1", node="n1"
    )


def test_the_pod_of_another_namespace_is_nobodys_attempt_here() -> None:
    theirs = pod({"phase": "Running"}, namespace="elsewhere")
    assert pod_use(theirs, namespace="training") == PodUse(name="digits-1", namespace="elsewhere", gpus=2, node="n1")


KNOWN = {
    "name": "digits-1",
    "cluster": "onprem",
    "image": "r/t@sha256:0",
    "uid": "u-1",
    "node": "n1",
    "grace": timedelta(seconds=60),
    "created_at": MOMENT,
    "node_ready": True,
    "node_changed_at": MOMENT,
    "node_exists": True,
    "scheduled": True,
    "attempt": "digits-1",
}
SIDE = {"name": "side", "state": {"running": {"startedAt": "2026-11-30T11:00:00Z"}}}


def container(**state: Any) -> list[dict[str, Any]]:
    return [SIDE, {"name": "trainer", "state": state}]


STATES: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "nothing yet": ({}, {"phase": PodPhase.PENDING}),
    "running": (
        {"phase": "Running", "containerStatuses": container(running={"startedAt": AT})},
        {"phase": PodPhase.RUNNING, "started_at": MOMENT},
    ),
    "older control planes on a silent node": ({"phase": "Unknown"}, {"phase": PodPhase.RUNNING}),
    "pull error": (
        {"phase": "Pending", "containerStatuses": container(waiting={"reason": "ErrImagePull", "message": "m"})},
        {"phase": PodPhase.PENDING, "container_reason": "ErrImagePull", "container_message": "m"},
    ),
    "ended": (
        {
            "phase": "Failed",
            "containerStatuses": container(
                terminated={
                    "exitCode": 137,
                    "reason": "OOMKilled",
                    "message": "killed",
                    "startedAt": AT,
                    "finishedAt": "2026-11-30T12:00:09.5Z",
                }
            ),
        },
        {
            "phase": PodPhase.FAILED,
            "exit_code": 137,
            "container_reason": "OOMKilled",
            "container_message": "killed",
            "started_at": MOMENT,
            "finished_at": MOMENT + timedelta(seconds=9.5),
        },
    ),
    "disrupted": (
        {
            "phase": "Failed",
            "reason": "Evicted",
            "message": "low on memory",
            "conditions": [{"type": "DisruptionTarget", "status": "True", "reason": "TerminationByKubelet"}],
        },
        {
            "phase": PodPhase.FAILED,
            "reason": "Evicted",
            "message": "low on memory",
            "disruption": "TerminationByKubelet",
        },
    ),
    "a disruption that was called off": (
        {"phase": "Running", "conditions": [{"type": "DisruptionTarget", "status": "False", "reason": "x"}]},
        {"phase": PodPhase.RUNNING},
    ),
    "no node fits": (
        {
            "phase": "Pending",
            "conditions": [{"type": "PodScheduled", "status": "False", "message": "0/2 nodes are available"}],
        },
        {"phase": PodPhase.PENDING, "message": "0/2 nodes are available"},
    ),
    "a failed init container decides": (
        {
            "phase": "Failed",
            "initContainerStatuses": [{"name": "i", "state": {"terminated": {"exitCode": 3, "reason": "Error"}}}],
            "containerStatuses": container(waiting={"reason": "PodInitializing"}),
        },
        {"phase": PodPhase.FAILED, "exit_code": 3, "container_reason": "Error"},
    ),
    "an init container that is done does not": (
        {
            "phase": "Running",
            "initContainerStatuses": [{"name": "i", "state": {"terminated": {"exitCode": 0}}}],
            "containerStatuses": container(running={"startedAt": AT}),
        },
        {"phase": PodPhase.RUNNING, "started_at": MOMENT},
    ),
}


@pytest.mark.parametrize(("status", "fields"), STATES.values(), ids=STATES)
def test_the_facts_of_a_pod_are_of_its_trainer(status: dict[str, Any], fields: dict[str, Any]) -> None:
    assert pod_state(pod(status), READY, cluster="onprem") == PodState(**KNOWN, **fields)


def test_a_deletion_is_dated_to_its_request_and_not_to_the_end_of_the_grace() -> None:
    going = pod({"phase": "Running"}, deletionTimestamp="2026-11-30T12:01:30Z", deletionGracePeriodSeconds=90)
    state = pod_state(going, READY, cluster="onprem")
    assert (state.deleted_at, state.grace) == (MOMENT, timedelta(seconds=90))


def test_a_pod_without_a_node_says_nothing_of_one() -> None:
    waiting = pod({"phase": "Pending"})
    del waiting["spec"]["nodeName"]
    state = pod_state(waiting, None, cluster="onprem")
    assert (state.node, state.scheduled, state.node_ready, state.node_exists) == (None, False, None, None)


@pytest.mark.parametrize(
    ("states", "began"),
    [
        pytest.param([{"running": {"startedAt": AT}}, {"running": {"startedAt": "2026-11-30T12:00:09Z"}}], 9, id="all"),
        pytest.param([{"terminated": {"startedAt": AT}}, {"running": {"startedAt": AT}}], 0, id="one has ended"),
        pytest.param(
            [{"running": {"startedAt": AT}}, {"waiting": {"reason": "ImagePullBackOff"}}], None, id="one waits"
        ),
        pytest.param([], None, id="none yet"),
    ],
)
def test_a_pod_began_when_the_last_of_its_containers_did(states: list[dict[str, Any]], began: int | None) -> None:
    containers = [{"name": f"c{index}", "state": state} for index, state in enumerate(states)]
    use = pod_use(pod({"phase": "Running", "containerStatuses": containers}), namespace="training")
    assert use is not None
    expected = None if began is None else MOMENT + timedelta(seconds=began)
    assert (use.created_at, use.started_at) == (MOMENT, expected)
