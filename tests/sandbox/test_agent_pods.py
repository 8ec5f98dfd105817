"""A pod's life on a real node agent, from its start to an end of its own."""

from __future__ import annotations

import time
from pathlib import Path

from spillway.testing.kube_space import Space, condition_reasons, terminated
from spillway.testing.runnable_image import SHELL

FOREVER = "echo up; while :; do sleep 0.05; done"


def test_volumes_and_devices_are_where_the_pod_wants_them(kube_space: Space, tmp_path: Path) -> None:
    (tmp_path / "host").write_text("host\n")
    body = {"metadata": {"name": "conf"}, "data": {"key": "config\n"}}
    kube_space.core.create_namespaced_config_map(kube_space.name, body)
    volumes = [
        {"name": "h", "hostPath": {"path": str(tmp_path)}},
        {"name": "c", "configMap": {"name": "conf"}},
        {"name": "e", "emptyDir": {}},
    ]
    mounts = [{"name": v["name"], "mountPath": f"/mnt/{v['name']}", "readOnly": v["name"] == "h"} for v in volumes]
    init = {"name": "init", "image": kube_space.image.name, "command": [*SHELL, "echo first > /mnt/e/first"]}
    script = (
        "cat /mnt/h/host /mnt/c/key /mnt/e/first; touch /mnt/h/x 2>/dev/null || echo read-only;"
        "test -d /dev/shm && test -c /dev/null && echo devices; echo $$; ls /proc | grep -c '^[0-9]'"
    )

    kube_space.run(
        "volumes",
        script,
        volumeMounts=mounts,
        spec={"volumes": volumes, "initContainers": [{**init, "volumeMounts": mounts}]},
    )

    assert kube_space.ended("volumes").status.phase == "Succeeded"
    *lines, processes = kube_space.log("volumes").splitlines()
    assert lines == ["host", "config", "first", "read-only", "devices", "1"]
    assert int(processes) < 10


def test_what_a_pod_refers_to_is_waited_for(kube_space: Space) -> None:
    source = {"name": "VALUE", "valueFrom": {"configMapKeyRef": {"name": "later", "key": "key"}}}
    kube_space.run("refers", "echo $VALUE", env=[source])

    assert kube_space.waiting("refers", "CreateContainerConfigError").message == 'configmap "later" not found'

    body = {"metadata": {"name": "later"}, "data": {"key": "here"}}
    kube_space.core.create_namespaced_config_map(kube_space.name, body)
    kube_space.ended("refers")
    assert kube_space.log("refers") == "here\n"


def test_a_failing_program_gives_its_code_and_its_termination_message(kube_space: Space) -> None:
    kube_space.run("fails", "printf 'step 7' > /dev/termination-log; exit 3")

    pod = kube_space.ended("fails")
    ended = terminated(pod)
    assert (pod.status.phase, ended.exit_code, ended.reason, ended.message) == ("Failed", 3, "Error", "step 7")
    assert "DisruptionTarget" not in condition_reasons(pod)


def test_the_end_of_the_log_is_the_message_where_the_pod_wants_it(kube_space: Space) -> None:
    kube_space.run("explains", "echo why; exit 1", terminationMessagePolicy="FallbackToLogsOnError")

    assert terminated(kube_space.ended("explains")).message == "why\n"


def test_a_program_that_is_not_there_is_a_start_error(kube_space: Space) -> None:
    kube_space.create(kube_space.pod("absent", "no-such-program"))

    ended = terminated(kube_space.ended("absent"))
    assert (ended.exit_code, ended.reason) == (128, "StartError")
    assert "'no-such-program': executable file not found" in ended.message


def test_a_pod_that_wants_to_be_started_again_is_refused_by_the_node(kube_space: Space) -> None:
    kube_space.run("retried", "exit 1", spec={"restartPolicy": "OnFailure"})

    pod = kube_space.ended("retried")
    assert (pod.status.phase, pod.status.reason) == ("Failed", "UnexpectedAdmissionError")
    assert "expected restartPolicy Never, got OnFailure" in pod.status.message


def test_a_volume_of_another_kind_is_told(kube_space: Space) -> None:
    volume = {"name": "v", "nfs": {"server": "files", "path": "/"}}
    kube_space.run("volume", "true", spec={"volumes": [volume]})

    told = kube_space.waiting("volume", "CreateContainerConfigError")
    assert told.message == "volume v is of a kind that this node agent does not know"


def test_a_pod_beyond_its_deadline_fails_with_that_reason(kube_space: Space) -> None:
    kube_space.run("late", "sleep 60", spec={"activeDeadlineSeconds": 1, "terminationGracePeriodSeconds": 0})

    pod = kube_space.ended("late")
    assert (pod.status.phase, pod.status.reason) == ("Failed", "DeadlineExceeded")


def test_deleting_a_pod_sends_term_to_its_first_process_and_waits_for_its_end(kube_space: Space) -> None:
    core, namespace = kube_space.core, kube_space.name
    kube_space.run("deleted", f"trap 'echo got-term; exit 0' TERM; {FOREVER}")
    kube_space.says("deleted", "up")
    log = core.read_namespaced_pod_log("deleted", namespace, follow=True, _preload_content=False)

    core.delete_namespaced_pod("deleted", namespace, grace_period_seconds=30)

    assert kube_space.find("deleted").metadata.deletion_timestamp is not None
    kube_space.gone("deleted")
    assert b"".join(log.stream()).decode().splitlines() == ["up", "got-term"]


def test_a_program_that_ignores_term_is_killed_after_the_grace(kube_space: Space) -> None:
    kube_space.run("stubborn", f"trap '' TERM; {FOREVER}")
    kube_space.says("stubborn", "up")

    started = time.monotonic()
    kube_space.core.delete_namespaced_pod("stubborn", kube_space.name, grace_period_seconds=1)
    kube_space.gone("stubborn")

    assert time.monotonic() - started >= 1


def test_a_program_beyond_its_memory_limit_is_killed_for_it(kube_space: Space) -> None:
    allocate = "held = bytearray(400 << 20); print(len(held))"
    for name, limit in (("over", "96Mi"), ("within", "1Gi")):
        kube_space.create(kube_space.pod(name, "python3", "-c", allocate, resources={"limits": {"memory": limit}}))

    killed = terminated(kube_space.ended("over"))
    assert (killed.exit_code, killed.reason) == (137, "OOMKilled")
    assert kube_space.ended("within").status.phase == "Succeeded"
