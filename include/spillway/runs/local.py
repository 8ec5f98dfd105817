"""Services outside Airflow: a configuration directory and a file of Connections."""

from __future__ import annotations

import getpass
import json
import os
import socket
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

from spillway.clouds.base import ClusterClient
from spillway.config import jobs_directory, load, load_image_uses
from spillway.connections import ConnectionSpec, connections_from_file, database_url, require_type
from spillway.errors import ConfigError, Missing
from spillway.ledger import ledger_opener
from spillway.model import Cluster
from spillway.runs.services import Connect, Services
from spillway.runs.sites import site_opener

LEDGER_CONNECTION = "spillway_ledger"


def local_services(configuration: Path, connections: Path, jobs: Path | None = None) -> Services:
    """The services that they describe; ``connections`` is what ``airflow connections export`` writes.

    Args:
        jobs: the directory of job files, where it is not the environment's.
    """
    connect, declared = connector(connections), load(configuration)
    return Services(
        configuration=declared,
        open_ledger=ledger_opener(lambda: database_url(connect(LEDGER_CONNECTION))),
        open_site=site_opener(connect, open_cluster),
        connect=connect,
        image_uses=partial(load_image_uses, jobs or jobs_directory(os.environ), declared.datasets),
        actor=f"{_user()}@{socket.gethostname()}",
    )


def _user() -> str:
    """Who runs this process; its number where the system has no name for it, as in a container."""
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return f"uid {os.getuid()}"


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

    require_type(connection, "kubernetes")
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
