"""What Airflow's Kubernetes provider needs: its hooks, its pod manager, its pod operator."""

from __future__ import annotations

import asyncio
import json
import os
from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any

import pytest
from kubernetes import client

from spillway.testing.kube_space import Space, eventually
from spillway.testing.runnable_image import SHELL

CONNECTION = "contract_cluster"


@pytest.fixture(autouse=True)
def connection(
    request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """An Airflow Connection to the cluster, from the environment."""
    kubeconfig = request.getfixturevalue("access").kubeconfig
    document = {"conn_type": "kubernetes", "extra": {"kube_config": json.dumps(kubeconfig)}}
    if "AIRFLOW_HOME" not in os.environ:
        monkeypatch.setenv("AIRFLOW_HOME", str(tmp_path_factory.mktemp("airflow")))
    monkeypatch.setenv(f"AIRFLOW_CONN_{CONNECTION.upper()}", json.dumps(document))


class TestHook:
    def test_the_connection_is_tested_and_pods_jobs_and_logs_are_read(self, space: Space) -> None:
        from airflow.providers.cncf.kubernetes.hooks.kubernetes import KubernetesHook

        hook = KubernetesHook(conn_id=CONNECTION)
        space.run("hooked", "echo by-hook")
        space.ended("hooked")
        template = {"spec": space.pod("unused", *SHELL, "true")["spec"]}
        job = client.V1Job(
            metadata=client.V1ObjectMeta(name="hooked", namespace=space.name),
            spec=client.V1JobSpec(template=template, completion_mode="Indexed", completions=1),
        )

        assert hook.test_connection()[0] is True
        assert hook.get_pod("hooked", space.name).status.phase == "Succeeded"
        listed = hook.get_namespaced_pod_list(namespace=space.name, label_selector="app=contract")
        assert "hooked" in {pod["metadata"]["name"] for pod in json.loads(listed.data)["items"]}
        assert [line.decode() for line in hook.get_pod_logs("hooked", namespace=space.name)] == ["by-hook\n"]
        hook.create_job(job=job)
        done = hook.wait_until_job_complete("hooked", space.name, job_poll_interval=0.2)
        assert hook.is_job_successful(done)


class TestAsyncHook:
    def test_pods_logs_and_events_are_read_and_a_pod_is_deleted(self, space: Space) -> None:
        from airflow.providers.cncf.kubernetes.hooks.kubernetes import AsyncKubernetesHook

        space.run("async", "echo by-hook; sleep 600")
        space.says("async", "by-hook")
        hook = AsyncKubernetesHook(conn_id=CONNECTION, in_cluster=False)

        async def use() -> tuple[Any, ...]:
            pod = await hook.get_pod("async", space.name)
            logs = await hook.read_logs("async", space.name, container_name="base")
            events = await hook.get_pod_events("async", space.name)
            async for event in hook.watch_pod_events("async", space.name, timeout_seconds=1):
                if event.reason == "Scheduled":
                    await hook.delete_pod("async", space.name, grace_period_seconds=0)
            return pod, logs, events

        pod, logs, events = asyncio.run(asyncio.wait_for(use(), 120))

        assert pod.status.phase == "Running"
        assert [line.partition(" ")[2] for line in logs if line] == ["by-hook"]
        assert "Scheduled" in {event.reason for event in events.items}
        space.gone("async")


class TestPodOperator:
    """The stock operator, executed with a stand-in for the context that a scheduler would give it."""

    @pytest.fixture
    def context(self) -> dict[str, Any]:
        pushed: dict[str, Any] = {}
        instance = SimpleNamespace(
            dag_id="dag",
            task_id="task",
            map_index=-1,
            try_number=1,
            start_date=datetime.now(UTC),
            xcom_push=lambda *, key, value: pushed.__setitem__(key, value),
        )
        return {"ti": instance, "run_id": "run", "dag": SimpleNamespace(), "pushed": pushed}

    def _operator(self, space: Space, script: str, **options: Any) -> Any:
        from airflow.providers.cncf.kubernetes.operators.pod import KubernetesPodOperator

        secrets = [client.V1LocalObjectReference("pull")] if space.image.docker_config else []
        return KubernetesPodOperator(
            task_id="task",
            name="by-operator",
            namespace=space.name,
            kubernetes_conn_id=CONNECTION,
            in_cluster=False,
            image=space.image.name,
            image_pull_secrets=secrets,
            cmds=list(SHELL),
            arguments=[script],
            automount_service_account_token=False,
            termination_grace_period=1,
            startup_check_interval_seconds=1,
            **options,
        )

    def test_it_runs_a_pod_to_its_end_shows_the_log_and_deletes_the_pod(
        self, space: Space, context: dict[str, Any], capfd: pytest.CaptureFixture[str]
    ) -> None:
        self._operator(space, "echo line-of-the-pod").execute(context)

        name = context["pushed"]["pod_name"]
        assert name.startswith("by-operator-")
        assert "line-of-the-pod" in capfd.readouterr().out
        space.gone(name)

    def test_it_fails_with_a_failing_pod(self, space: Space, context: dict[str, Any]) -> None:
        from airflow.providers.common.compat.sdk import AirflowException

        operator = self._operator(space, "exit 3", on_finish_action="keep_pod")

        with pytest.raises(AirflowException, match="returned a failure"):
            operator.execute(context)
        assert space.ended(context["pushed"]["pod_name"]).status.phase == "Failed"

    def test_it_deletes_the_pod_when_it_is_killed(self, space: Space, context: dict[str, Any]) -> None:
        operator = self._operator(space, "echo up; exec sleep 60")
        operator.pod_request_obj = operator.build_pod_request_obj(context)
        operator.pod = operator.get_or_create_pod(pod_request_obj=operator.pod_request_obj, context=context)
        space.says(operator.pod.metadata.name, "up")

        operator.on_kill()

        eventually(lambda: space.find(operator.pod.metadata.name) is None)
