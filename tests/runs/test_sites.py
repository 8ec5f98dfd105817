"""A site is opened from its Connections; what they lack is told with its place."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pytest

from spillway.clouds.base import ClusterClient
from spillway.config import Configuration
from spillway.connections import ConnectionSpec
from spillway.errors import ConfigError
from spillway.ledger import Ledger
from spillway.model import Cluster, RunPolicy
from spillway.runs import sites
from spillway.runs.local import open_cluster
from spillway.runs.services import Services
from spillway.runs.sites import site_opener
from spillway.sandbox.settings import INCLUDE
from spillway.stores.base import ObjectStore
from spillway.testing.builders import onprem_cluster, placement_policy
from spillway.testing.installed import install

CLUSTER = onprem_cluster()
REFERENCE = CLUSTER.object_store


def any_cluster(cluster: Cluster, connection: ConnectionSpec) -> ClusterClient:
    return cast(ClusterClient, object())


@pytest.mark.parametrize(
    ("mixed_up", "expected"),
    [(REFERENCE.connection, "aws"), (REFERENCE.pod_connection, "aws"), (CLUSTER.registry.connection, "http")],
)
def test_a_connection_of_another_type_opens_no_site(mixed_up: str, expected: str) -> None:
    def connect(conn_id: str) -> ConnectionSpec:
        right = "http" if conn_id == CLUSTER.registry.connection else "aws"
        return ConnectionSpec(
            conn_id=conn_id,
            conn_type="ssh" if conn_id == mixed_up else right,
            host="127.0.0.1",
            login="key",
            password="secret",
            extra={"endpoint_url": "http://127.0.0.1:1"},
        )

    with pytest.raises(ConfigError, match=f"^Connections: {mixed_up}.conn_type: expected {expected}, got 'ssh'$"):
        site_opener(connect, any_cluster)(CLUSTER)


def test_a_cluster_is_not_opened_with_the_connection_of_a_store() -> None:
    store = ConnectionSpec(conn_id="store", conn_type="aws", extra={"kube_config": "{}"})
    with pytest.raises(ConfigError, match=r"^Connections: store\.conn_type: expected kubernetes, got 'aws'$"):
        open_cluster(CLUSTER, store)


@pytest.mark.parametrize("lacking", [REFERENCE.connection, REFERENCE.pod_connection])
def test_a_store_connection_without_an_endpoint_opens_no_site(lacking: str) -> None:
    def connect(conn_id: str) -> ConnectionSpec:
        whole = ConnectionSpec(
            conn_id=conn_id,
            conn_type="aws",
            login="key",
            password="secret",
            extra={"endpoint_url": "http://127.0.0.1:1"},
        )
        return replace(whole, extra={}) if conn_id == lacking else whole

    with pytest.raises(ConfigError, match=f"^Connections: {lacking}.extra.endpoint_url: expected the store's address"):
        site_opener(connect, any_cluster)(CLUSTER)


@pytest.mark.parametrize(
    ("conn_id", "changes", "told"),
    [
        (REFERENCE.connection, {"extra": {"endpoint_url": "store:9000"}}, ".extra.endpoint_url: expected http:// or"),
        (REFERENCE.connection, {"extra": {"endpoint_url": "http://store:99999"}}, ".extra.endpoint_url: Port out of"),
        (CLUSTER.registry.connection, {"host": "https://registry.example"}, ".host: expected a host alone, got"),
        (CLUSTER.registry.connection, {"host": "registry.example/team"}, ".host: expected a host alone, got"),
    ],
)
def test_an_address_that_is_none_is_told_with_its_connection(conn_id: str, changes: Any, told: str) -> None:
    def connect(name: str) -> ConnectionSpec:
        whole = ConnectionSpec(
            conn_id=name,
            conn_type="http" if name == CLUSTER.registry.connection else "aws",
            host="127.0.0.1",
            login="key",
            password="secret",
            extra={"endpoint_url": "http://127.0.0.1:1"},
        )
        return replace(whole, **changes) if name == conn_id else whole

    with pytest.raises(ConfigError) as refused:
        site_opener(connect, any_cluster)(CLUSTER)
    assert str(refused.value).startswith(f"Connections: {conn_id}{told}")


def test_whoever_moves_bytes_waits_for_stores_that_are_away_and_whoever_looks_does_not(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def connect(name: str) -> ConnectionSpec:
        return ConnectionSpec(
            conn_id=name,
            conn_type="http" if name == CLUSTER.registry.connection else "aws",
            host="127.0.0.1",
            login="key",
            password="secret",
            extra={"endpoint_url": "http://127.0.0.1:1"},
        )

    def note(**settings: Any) -> ObjectStore:
        asked.append(settings["away_seconds"])
        return cast(ObjectStore, object())

    asked: list[float] = []
    monkeypatch.setattr(sites, "open_store", note)
    services = Services(
        configuration=Configuration(
            clusters={CLUSTER.name: CLUSTER}, datasets={}, policy=placement_policy(), runs=RunPolicy()
        ),
        open_ledger=lambda: cast(Ledger, object()),
        open_site=site_opener(connect, any_cluster),
        image_uses=tuple,
    )
    services.site(CLUSTER.name)
    assert set(asked) == {0.0}
    asked.clear()
    services.stores(CLUSTER.name)
    assert set(asked) == {sites.AWAY_SECONDS}


def test_whoever_only_moves_bytes_opens_no_cluster(tmp_path: Path) -> None:
    program = (
        "import sys\n"
        "from spillway.__main__ import main\n"
        "from spillway.runs import sites\n"
        "sites.AWAY_SECONDS = 0.0\n"
        "code = main(['sync', 'digits', 'cloud', '--dry-run'])\n"
        "assert code == 1 and 'spillway.runs.moving_datasets' in sys.modules, code\n"
        "assert not {'kubernetes', 'boto3', 'airflow', 'pandas'} & set(sys.modules)\n"
    )
    with pytest.MonkeyPatch.context() as environment:
        installed = install(tmp_path, environment)
        done = subprocess.run(
            [sys.executable, "-c", program],
            env={
                "PYTHONPATH": str(INCLUDE),
                "SPILLWAY_CONFIG_DIR": str(installed.settings.config),
                "SPILLWAY_CONNECTIONS": str(installed.settings.connections),
            },
            capture_output=True,
            text=True,
            check=False,
        )
    assert (done.returncode, "s3://datasets@" in done.stderr) == (0, True), done.stderr
