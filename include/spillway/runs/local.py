"""Services outside Airflow: a configuration directory and a file of Connections."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from spillway.clouds.base import ClusterClient
from spillway.config import load
from spillway.connections import ConnectionSpec, connections_from_file, database_url
from spillway.errors import ConfigError, Missing
from spillway.ledger import open_ledger
from spillway.model import Cluster
from spillway.runs.services import Services
from spillway.runs.sites import Connect, site_opener

LEDGER_CONNECTION = "spillway_ledger"


def local_services(configuration: Path, connections: Path) -> Services:
    """The services that the two describe; ``connections`` is what ``airflow connections export`` writes."""
    connect = connector(connections)
    return Services(
        configuration=load(configuration),
        ledger=open_ledger(database_url(connect(LEDGER_CONNECTION))),
        open_site=site_opener(connect, open_cluster),
    )


def connector(connections: Path) -> Connect:
    """How Connections of the file are found by name; the file is read each time, for a password may have changed.

    What it gives raises ConfigError where the file is missing or has another shape.
    """

    def connect(conn_id: str) -> ConnectionSpec:
        known = connections_from_file(connections)
        if conn_id not in known:
            raise Missing("Connection", conn_id, str(connections), fix="add it to the file")
        return known[conn_id]

    return connect


def open_cluster(cluster: Cluster, connection: ConnectionSpec) -> ClusterClient:
    """A cluster's client from the kubeconfig that a ``kubernetes`` Connection holds."""
    from spillway.clouds.kubernetes import KubernetesCluster, client_from_kubeconfig

    written: Any = connection.extra.get("kube_config")
    if isinstance(written, str):
        try:
            written = json.loads(written)
        except ValueError:
            raise ConfigError("Connections", f"{connection.conn_id}.extra.kube_config", "expected JSON") from None
    if not isinstance(written, Mapping):
        raise ConfigError("Connections", f"{connection.conn_id}.extra.kube_config", "expected a kubeconfig as JSON")
    context = connection.extra.get("cluster_context")
    return KubernetesCluster(cluster=cluster, api_client=client_from_kubeconfig(written, context))
