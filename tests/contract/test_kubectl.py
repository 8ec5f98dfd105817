"""What a person at a terminal needs: kubectl against the API."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from spillway.testing.kube_space import Space

Kubectl = Callable[..., str]


@pytest.fixture(scope="module")
def kubectl(space: Space, request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Kubectl:
    """Runs kubectl in the namespace of these tests and gives its output; stdin may be an object."""
    file = request.getfixturevalue("access").file
    program = shutil.which("kubectl", path=f"{Path(sys.executable).parent}:/usr/local/bin:/usr/bin")
    assert program, "kubectl is not installed; it comes with requirements.txt"
    home = tmp_path_factory.mktemp("kubectl")

    def run(*arguments: str, stdin: Any = None, fails: bool = False) -> str:
        done = subprocess.run(
            [program, "--kubeconfig", str(file), "--namespace", space.name, *arguments],
            input=None if stdin is None else json.dumps(stdin),
            capture_output=True,
            text=True,
            timeout=90,
            env={"HOME": str(home)},
            check=False,
        )
        assert (done.returncode != 0) is fails, done.stderr
        return done.stderr if fails else done.stdout

    return run


def test_objects_are_applied_changed_and_deleted(kubectl: Kubectl) -> None:
    body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "applied"}, "data": {"a": "1"}}

    assert kubectl("apply", "-f", "-", stdin=body) == "configmap/applied created\n"
    assert kubectl("apply", "-f", "-", stdin={**body, "data": {"a": "2"}}) == "configmap/applied configured\n"
    assert kubectl("apply", "-f", "-", stdin={**body, "data": {"a": "2"}}) == "configmap/applied unchanged\n"
    assert kubectl("get", "configmap", "applied", "-o", "jsonpath={.data.a}") == "2"
    assert kubectl("label", "configmap", "applied", "x=y") == "configmap/applied labeled\n"
    assert "NotFound" in kubectl("get", "configmap", "none", fails=True)
    assert "deleted" in kubectl("delete", "configmap", "applied")


def test_a_pod_is_run_waited_for_shown_and_read(kubectl: Kubectl, space: Space) -> None:
    kubectl("apply", "-f", "-", stdin=space.pod("shown", "/bin/sh", "-c", "echo from-kubectl"))

    assert "condition met" in kubectl("wait", "pod/shown", "--for=jsonpath={.status.phase}=Succeeded", "--timeout=60s")
    header, row = kubectl("get", "pods", "shown").splitlines()
    assert header.split()[:4] == ["NAME", "READY", "STATUS", "RESTARTS"]
    assert row.split()[:4] == ["shown", "0/1", "Completed", "0"]
    watched = kubectl("get", "po", "shown", "--watch", "--output-watch-events", "--request-timeout=5s")
    assert watched.split()[-6:-1] == ["ADDED", "shown", "0/1", "Completed", "0"]
    assert kubectl("logs", "shown") == "from-kubectl\n"
    assert kubectl("logs", "-f", "shown") == "from-kubectl\n"
    described = kubectl("describe", "pod", "shown")
    assert re.search(r"^Status: +Succeeded$", described, re.MULTILINE)
    assert "Successfully assigned" in described


def test_nodes_are_shown_cordoned_tainted_and_given_back(kubectl: Kubectl) -> None:
    node = kubectl("get", "nodes", "-o", "jsonpath={.items[0].metadata.name}")
    try:
        assert kubectl("cordon", node) == f"node/{node} cordoned\n"
        assert "Ready,SchedulingDisabled" in kubectl("get", "node", node)
        assert kubectl("taint", "node", node, "spillway.dev/test=1:NoSchedule") == f"node/{node} tainted\n"
        assert "spillway.dev/test=1:NoSchedule" in kubectl("describe", "node", node)
    finally:
        kubectl("taint", "node", node, "spillway.dev/test-")
        kubectl("uncordon", node)
    assert "SchedulingDisabled" not in kubectl("get", "node", node)


def test_a_pod_is_deleted_with_its_grace(kubectl: Kubectl, space: Space) -> None:
    script = "trap 'exit 0' TERM; echo up; while :; do sleep 0.1; done"
    kubectl("apply", "-f", "-", stdin=space.pod("deleted", "/bin/sh", "-c", script))
    assert "condition met" in kubectl("wait", "pod/deleted", "--for=condition=Ready", "--timeout=60s")

    assert "deleted" in kubectl("delete", "pod", "deleted", "--wait=true", "--timeout=60s")

    assert space.find("deleted") is None


def test_kinds_and_versions_are_listed(kubectl: Kubectl) -> None:
    assert "Server Version: v1." in kubectl("version")
    listed = kubectl("api-resources", "-o", "name").split()
    assert {"pods", "nodes", "jobs.batch", "leases.coordination.k8s.io"} <= set(listed)
