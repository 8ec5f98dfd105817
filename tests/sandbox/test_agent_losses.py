"""Every way in which a cluster takes a pod away, as the pod and its node tell it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from kubernetes.client import ApiException
from urllib3.exceptions import ProtocolError

from spillway.testing.kube_server import KubeCluster
from spillway.testing.kube_space import Space, condition_reasons, eventually, terminated

TOLERATE_ALL = {"tolerations": [{"operator": "Exists"}]}
"""For tests that restart an agent or shut one down: however slow that is, nobody deletes the pod meanwhile."""
UNTIL_TERM = "trap 'echo got-term; exit 143' TERM; echo up; while :; do sleep 0.05; done"


def _run_on(space: Space, node: str, **spec: Any) -> None:
    """A pod ``p`` on the node, when it has written its first line."""
    space.run("p", UNTIL_TERM, spec={"nodeSelector": {"kubernetes.io/hostname": node}, **spec})
    space.says("p", "up")


def _told(pod: Any) -> tuple[str, str, int, str | None]:
    """Phase, reason, exit code and disruption of a pod that has ended."""
    status = pod.status
    return status.phase, status.reason, terminated(pod).exit_code, condition_reasons(pod).get("DisruptionTarget")


def _ready(space: Space, node: str) -> Any:
    """The node's condition Ready."""
    return next(c for c in space.core.read_node(node).status.conditions if c.type == "Ready")


def _processes_of(pod: str) -> list[str]:
    """Processes of this machine whose environment says that they run in the pod."""
    found = []
    for directory in Path("/proc").iterdir():
        try:
            if f"HOSTNAME={pod}\0".encode() in (directory / "environ").read_bytes():
                found.append(directory.name)
        except OSError:
            continue
    return found


def test_an_evicted_pod_fails_with_143_and_the_reason(kube_api: KubeCluster, kube_space: Space) -> None:
    _run_on(kube_space, "node-1")

    assert kube_api.drill("node-1", f"/evict/{kube_space.name}/p") == ["p"]

    assert _told(kube_space.ended("p")) == ("Failed", "Evicted", 143, "TerminationByKubelet")
    assert kube_space.log("p") == "up\ngot-term\n"
    assert kube_api.drill("node-1", f"/evict/{kube_space.name}/p") == []


def test_a_node_that_shuts_down_ends_its_pods_and_takes_no_more(
    kube_api: KubeCluster, kube_space: Space, spare_node: str
) -> None:
    _run_on(kube_space, spare_node, **TOLERATE_ALL)

    assert kube_api.drill(spare_node, "/shutdown") == ["p"]

    assert _told(kube_space.ended("p")) == ("Failed", "Terminated", 143, "TerminationByKubelet")
    ready = _ready(kube_space, spare_node)
    assert ready.status == "False"
    eventually(lambda: _ready(kube_space, spare_node).last_heartbeat_time > ready.last_heartbeat_time)
    assert _ready(kube_space, spare_node).last_transition_time == ready.last_transition_time
    kube_space.run("late", "true", spec={"nodeName": spare_node, **TOLERATE_ALL})
    assert kube_space.ended("late").status.reason == "NodeShutdown"


def test_a_node_that_falls_silent_is_unknown_and_its_pods_stay_until_the_node_is_deleted(
    kube_api: KubeCluster, kube_space: Space, spare_node: str
) -> None:
    _run_on(kube_space, spare_node)
    kube_api.agents[spare_node].kill()

    eventually(lambda: kube_space.find("p").metadata.deletion_timestamp)
    pod, node = kube_space.find("p"), kube_space.core.read_node(spare_node)
    assert (pod.status.phase, condition_reasons(pod)["DisruptionTarget"]) == ("Running", "DeletionByTaintManager")
    assert _ready(kube_space, spare_node).status == "Unknown"
    assert {taint.key for taint in node.spec.taints} == {"node.kubernetes.io/unreachable"}

    kube_space.core.delete_node(spare_node)
    kube_space.gone("p")


def test_containers_do_not_outlive_their_agent_and_its_successor_reports_them(
    kube_api: KubeCluster, kube_space: Space, spare_node: str
) -> None:
    hostname = kube_space.name
    kube_space.run(
        "p",
        "echo up; sleep 600 & sleep 600",
        env=[{"name": "HOSTNAME", "value": hostname}],
        spec={"nodeSelector": {"kubernetes.io/hostname": spare_node}, **TOLERATE_ALL},
    )
    kube_space.says("p", "up")
    eventually(lambda: len(_processes_of(hostname)) == 3, lambda: _processes_of(hostname))

    kube_api.agents[spare_node].kill()
    eventually(lambda: not _processes_of(hostname), lambda: _processes_of(hostname))
    kube_api.agents[spare_node].start()

    pod = kube_space.ended("p")
    assert _told(pod) == ("Failed", "NodeAgentRestarted", 137, "TerminationByKubelet")
    assert terminated(pod).reason == "ContainerStatusUnknown"
    assert kube_space.log("p") == "up\n"
    kube_space.run("next", "true", spec={"nodeSelector": {"kubernetes.io/hostname": spare_node}})
    assert kube_space.ended("next").status.phase == "Succeeded"


def test_a_log_that_is_followed_breaks_off_with_its_node(
    kube_api: KubeCluster, kube_space: Space, spare_node: str
) -> None:
    _run_on(kube_space, spare_node)
    log = kube_space.core.read_namespaced_pod_log("p", kube_space.name, follow=True, _preload_content=False)
    stream = log.stream()
    assert next(stream) == b"up\n"

    kube_api.agents[spare_node].kill()

    with pytest.raises(ProtocolError):
        next(stream)
    with pytest.raises(ApiException) as refused:
        kube_space.log("p")
    assert refused.value.status == 500
    assert "Traceback" not in kube_api.api.log.read_text()


def test_a_pod_whose_start_was_never_reported_is_not_run_a_second_time(
    kube_api: KubeCluster, kube_space: Space, spare_node: str
) -> None:
    kube_api.agents[spare_node].kill()
    pod = kube_space.run("p", "echo again", spec={"nodeName": spare_node, **TOLERATE_ALL})
    directory = kube_api.directory / spare_node / "pods" / pod.metadata.uid
    directory.mkdir()
    (directory / "base.termination").touch()  # what an agent leaves that was killed right after the start

    kube_api.agents[spare_node].start()

    assert _told(kube_space.ended("p")) == ("Failed", "NodeAgentRestarted", 137, "TerminationByKubelet")
    assert kube_space.log("p") == ""


@pytest.mark.slow
def test_an_agent_that_is_stopped_takes_its_containers_with_it_at_once(
    kube_api: KubeCluster, kube_space: Space, spare_node: str
) -> None:
    hostname = kube_space.name
    kube_space.run(
        "p",
        "trap '' TERM; echo up; while :; do sleep 0.05; done",
        env=[{"name": "HOSTNAME", "value": hostname}],
        spec={"nodeSelector": {"kubernetes.io/hostname": spare_node}, **TOLERATE_ALL},
    )
    kube_space.says("p", "up")
    agent = kube_api.agents[spare_node].process
    assert agent is not None

    agent.terminate()

    assert agent.wait(60) == 0
    assert _processes_of(hostname) == []
    kube_api.agents[spare_node].start()
    assert kube_space.ended("p").status.reason == "NodeAgentRestarted"


def test_a_pod_runs_on_while_the_api_server_is_killed_and_its_end_is_reported_when_it_is_back(
    kube_api: KubeCluster, kube_space: Space, tmp_path: Path
) -> None:
    go = tmp_path / "go"
    volume = {"volumes": [{"name": "h", "hostPath": {"path": str(tmp_path)}}]}
    running = kube_space.run(
        "p",
        "echo up; until test -e /mnt/go; do sleep 0.05; done; echo over; touch /mnt/over; exit 5",
        spec=volume,
        volumeMounts=[{"name": "h", "mountPath": "/mnt"}],
    )
    kube_space.says("p", "up")

    kube_api.api.kill()
    go.touch()
    eventually((tmp_path / "over").exists)
    kube_api.api.start()

    pod = kube_space.ended("p")
    assert (pod.metadata.uid, terminated(pod).exit_code) == (running.metadata.uid, 5)
    assert kube_space.log("p") == "up\nover\n"
    kube_space.run("next", "true")
    assert kube_space.ended("next").status.phase == "Succeeded"
