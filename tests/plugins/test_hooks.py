"""Airflow Connections -> the library's services, on a real Kubernetes API."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import kubernetes.config.incluster_config as in_cluster
import pytest
import yaml
from airflow.sdk import Connection
from airflow.sdk.execution_time.context import set_current_context

from spillway.connections import ConnectionSpec
from spillway.errors import AccessDenied, ConfigError, Missing, SandboxError, Unreachable
from spillway.sandbox.settings import sandbox_settings
from spillway.testing.builders import onprem_cluster
from spillway.testing.installed import Installed
from spillway.testing.kube_server import KubeCluster, start_cluster
from spillway_airflow.hooks import (
    configuration,
    connection_ids,
    connection_spec,
    open_cluster,
    triggerer_services,
    worker_services,
)

CLUSTER = onprem_cluster()


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KubeCluster]:
    cluster = start_cluster("hooks", tmp_path_factory.mktemp("kube"))
    try:
        yield cluster
    finally:
        cluster.stop()


def test_the_servers_that_do_not_run_are_where_no_sandbox_can_be(
    installed: Installed, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SPILLWAY_SANDBOX_PORT", str(installed.settings.base_port))
    with pytest.raises(SandboxError, match="expected a port from 1024"):
        sandbox_settings(Path("another"))


def connection(**extra: Any) -> ConnectionSpec:
    return ConnectionSpec(conn_id="onprem_kubernetes", conn_type="kubernetes", extra=extra)


def without(kubeconfig: dict[str, Any], **changes: Any) -> dict[str, Any]:
    """A copy of the kubeconfig with another token, or without its certificate authority."""
    copy: dict[str, Any] = json.loads(json.dumps(kubeconfig))
    if "token" in changes:
        copy["users"][0]["user"]["token"] = changes["token"]
    if changes.get("ca", True) is None:
        copy["clusters"][0]["cluster"].pop("certificate-authority-data", None)
        copy["clusters"][0]["cluster"].pop("certificate-authority", None)
    return copy


class TestWaysToAuthenticate:
    def test_kubeconfig_as_json(self, server: KubeCluster) -> None:
        client = open_cluster(CLUSTER, connection(kube_config=json.dumps(server.kubeconfig)))
        assert client.describe().cluster == CLUSTER

    def test_kubeconfig_as_yaml(self, server: KubeCluster) -> None:
        client = open_cluster(CLUSTER, connection(kube_config=yaml.safe_dump(server.kubeconfig)))
        assert client.describe().cluster == CLUSTER

    def test_kubeconfig_as_a_document(self, server: KubeCluster) -> None:
        client = open_cluster(CLUSTER, connection(kube_config=server.kubeconfig))
        assert client.describe().cluster == CLUSTER

    def test_kubeconfig_in_a_file_with_a_context(self, server: KubeCluster) -> None:
        context = server.kubeconfig["contexts"][0]["name"]
        named = connection(kube_config_path=str(server.kubeconfig_file), cluster_context=context)
        assert open_cluster(CLUSTER, named).describe().cluster == CLUSTER

    def test_in_cluster_by_the_files_that_a_pod_would_have(
        self, server: KubeCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        token = tmp_path / "token"
        token.write_text(server.token)
        monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "127.0.0.1")
        monkeypatch.setenv("KUBERNETES_SERVICE_PORT", str(server.api.port))
        monkeypatch.setattr(in_cluster, "SERVICE_TOKEN_FILENAME", str(token))
        monkeypatch.setattr(in_cluster, "SERVICE_CERT_FILENAME", str(server.certificates.ca_file))
        assert open_cluster(CLUSTER, connection(in_cluster=True)).describe().cluster == CLUSTER


@pytest.mark.parametrize(
    ("extra", "said"),
    [
        ({"kube_config": "{"}, "extra.kube_config: expected JSON or YAML"),
        ({"kube_config": "7"}, "extra.kube_config: expected a kubeconfig document"),
        ({"kube_config": {"a": 1}, "kube_config_path": "/x"}, "mutually exclusive"),
        ({"kube_config_path": "/nowhere/kubeconfig"}, "/nowhere/kubeconfig"),
        ({"in_cluster": "true"}, "Service host/port is not set"),
    ],
    ids=["broken_text", "no_document", "two_ways", "no_file", "not_in_a_pod"],
)
def test_a_connection_that_cannot_be_used_is_one_clear_message(
    extra: dict[str, Any], said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
    with pytest.raises(ConfigError) as raised:
        open_cluster(CLUSTER, connection(**extra))
    assert str(raised.value).startswith("Connections: onprem_kubernetes.extra")
    assert said in str(raised.value)


def test_two_clusters_in_one_process_never_share_a_token(server: KubeCluster) -> None:
    right = open_cluster(CLUSTER, connection(kube_config=server.kubeconfig))
    wrong = open_cluster(replace(CLUSTER, name="other"), connection(kube_config=without(server.kubeconfig, token="no")))

    with pytest.raises(AccessDenied):
        wrong.describe()
    assert right.describe().cluster == CLUSTER
    with pytest.raises(AccessDenied):
        wrong.describe()


@pytest.mark.filterwarnings("ignore:Unverified HTTPS request")
def test_leaving_certificates_unchecked_for_one_cluster_leaves_them_checked_for_the_next(server: KubeCluster) -> None:
    anonymous = without(server.kubeconfig, ca=None)
    trusting = open_cluster(CLUSTER, connection(kube_config=anonymous, disable_verify_ssl=True))
    checking = open_cluster(CLUSTER, connection(kube_config=anonymous, disable_verify_ssl="false"))

    assert trusting.describe().cluster == CLUSTER
    with pytest.raises(Unreachable, match="certificate"):
        checking.describe()


def test_a_cluster_is_not_opened_with_the_connection_of_a_store() -> None:
    with pytest.raises(
        ConfigError, match=r"^Connections: onprem_kubernetes\.conn_type: expected kubernetes, got 'aws'$"
    ):
        open_cluster(CLUSTER, replace(connection(in_cluster=True), conn_type="aws"))


def test_a_connection_is_converted_with_all_its_fields() -> None:
    given = Connection(
        conn_id="onprem_registry",
        conn_type="http",
        schema="https",
        host="registry.example",
        port=5000,
        login="mover",
        password="secret-password",
        extra='{"verify": "/etc/ca.pem"}',
    )
    assert connection_spec(given) == ConnectionSpec(
        conn_id="onprem_registry",
        conn_type="http",
        schema="https",
        host="registry.example",
        port=5000,
        login="mover",
        password="secret-password",
        extra={"verify": "/etc/ca.pem"},
    )


KINDS = ("kubernetes", "store", "store_pods", "store_public", "store_public_pods", "store_cache", "registry")


class TestServices:
    @pytest.fixture(autouse=True)
    def without_the_cloud(self, installed: Installed) -> None:
        """Nobody has made the cloud's Connections."""
        for kind in KINDS:
            installed.connection(f"cloud_{kind}", None)

    def test_every_connection_that_the_configuration_names_is_known(self) -> None:
        expected = ["spillway_ledger", *(f"{site}_{kind}" for site in ("onprem", "cloud") for kind in KINDS)]
        assert connection_ids(configuration()) == tuple(expected)

    @pytest.mark.parametrize(("map_index", "actor"), [(-1, "train/manual-1/place"), (3, "train/manual-1/place[3]")])
    def test_a_worker_says_which_task_asks(self, map_index: int, actor: str) -> None:
        ti = SimpleNamespace(dag_id="train", run_id="manual-1", task_id="place", map_index=map_index)
        with set_current_context({"ti": ti}):  # type: ignore[typeddict-item]
            assert worker_services().actor == actor
        assert worker_services().actor is None

    def test_a_worker_opens_a_site_and_names_a_connection_that_is_missing(self) -> None:
        services = worker_services()
        assert services.site("onprem").pull.login == "spillway"
        with pytest.raises(Missing) as raised:
            services.site("cloud")
        assert str(raised.value) == (
            "Connection 'cloud_store' is not in Airflow; "
            "create it (Admin > Connections, or a secrets backend); see docs/clusters.md"
        )
        assert isinstance(services.clients()["cloud"], Missing)

    def test_a_triggerer_reads_all_connections_at_once_and_names_the_same_one(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        services = asyncio.run(triggerer_services())
        for name in ("ONPREM_KUBERNETES", "ONPREM_STORE", "ONPREM_STORE_PODS", "ONPREM_REGISTRY", "SPILLWAY_LEDGER"):
            monkeypatch.delenv(f"AIRFLOW_CONN_{name}")

        assert services.site("onprem").pull.login == "spillway"
        with pytest.raises(Missing, match="Connection 'cloud_store' is not in Airflow"):
            services.site("cloud")

    def test_without_a_ledger_connection_nothing_begins(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.delenv("AIRFLOW_CONN_SPILLWAY_LEDGER")
        with pytest.raises(Missing, match="Connection 'spillway_ledger' is not in Airflow"):
            worker_services()
