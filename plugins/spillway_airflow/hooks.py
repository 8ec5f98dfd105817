"""Airflow Connections -> the library's services; nothing else reads Connections.

The sandbox and an installation differ only in their configuration directory and their Connections.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from typing import Any

from airflow.sdk import BaseHook, Connection

from spillway.config import Configuration, configuration_directory, load
from spillway.connections import ConnectionSpec, database_url
from spillway.errors import ConfigError, Missing
from spillway.ledger import check_workers_reach, open_ledger
from spillway.model import Cluster
from spillway.runs.local import LEDGER_CONNECTION
from spillway.runs.services import Services
from spillway.runs.sites import Connect, site_opener


def worker_services() -> Services:
    """The services of a task; Connections are read when a site is first used."""
    from airflow.sdk.exceptions import AirflowNotFoundException

    def connect(conn_id: str) -> ConnectionSpec:
        try:
            return connection_spec(BaseHook.get_connection(conn_id))
        except AirflowNotFoundException as absent:
            raise _missing(conn_id) from absent

    return _services(configuration(), connect)


async def triggerer_services() -> Services:
    """The services of a trigger; every Connection is read now, for a trigger's threads cannot ask for one later."""
    from airflow.sdk.exceptions import AirflowNotFoundException

    declared = configuration()
    found: dict[str, ConnectionSpec] = {}
    for conn_id in connection_ids(declared):
        try:
            found[conn_id] = connection_spec(await BaseHook.aget_connection(conn_id))
        except AirflowNotFoundException:
            continue

    def connect(conn_id: str) -> ConnectionSpec:
        if conn_id not in found:
            raise _missing(conn_id)
        return found[conn_id]

    return _services(declared, connect)


def configuration() -> Configuration:
    """The declared configuration of this installation."""
    return load(configuration_directory(os.environ))


def connection_ids(declared: Configuration) -> tuple[str, ...]:
    """Every Connection that the configuration names, the ledger's first."""
    ids = [LEDGER_CONNECTION]
    for cluster in declared.clusters.values():
        store = cluster.object_store
        ids += [cluster.connection, store.connection, store.pod_connection, cluster.registry.connection]
    return tuple(dict.fromkeys(ids))


def connection_spec(connection: Connection) -> ConnectionSpec:
    """The library's own value of a Connection."""
    return ConnectionSpec(
        conn_id=connection.conn_id,
        conn_type=connection.conn_type or "",
        host=connection.host,
        port=connection.port,
        schema=connection.schema,
        login=connection.login,
        password=connection.password,
        extra=connection.extra_dejson,
    )


def _services(declared: Configuration, connect: Connect) -> Services:
    from airflow.configuration import conf

    url = database_url(connect(LEDGER_CONNECTION))
    check_workers_reach(url, executor_is_local="LocalExecutor" in conf.get("core", "executor"))
    return Services(configuration=declared, ledger=open_ledger(url), open_site=site_opener(connect, open_cluster))


def open_cluster(cluster: Cluster, connection: ConnectionSpec) -> Any:
    """A cluster client that authenticates as the provider's hook does for the same Connection.

    The hook gets a Configuration of its own, so that clusters never share the process-wide default.
    """
    from airflow.providers.cncf.kubernetes.hooks.kubernetes import KubernetesHook
    from kubernetes.client import Configuration as ClientConfiguration

    from spillway.clouds.kubernetes import KubernetesCluster

    extra = connection.extra
    in_cluster = bool(extra.get("in_cluster"))
    hook = KubernetesHook(
        kubernetes_conn_id=None,
        client_configuration=None if in_cluster else ClientConfiguration(),
        cluster_context=extra.get("cluster_context"),
        config_file=extra.get("kube_config_path"),
        config_dict=_kubeconfig(connection.conn_id, extra.get("kube_config")),
        in_cluster=in_cluster or None,
        disable_verify_ssl=bool(extra.get("disable_verify_ssl")),
    )
    return KubernetesCluster(cluster=cluster, api_client=hook.get_conn())


def _kubeconfig(conn_id: str, written: Any) -> dict[str, Any] | None:
    if not written or isinstance(written, Mapping):
        return dict(written) if written else None
    try:
        parsed = json.loads(written)
    except ValueError as problem:
        raise ConfigError("Connections", f"{conn_id}.extra.kube_config", f"expected JSON: {problem}") from problem
    return dict(parsed)


def _missing(conn_id: str) -> Missing:
    return Missing(
        "Connection",
        conn_id,
        "Airflow",
        fix="create it (Admin > Connections, or a secrets backend); see docs/clusters.md",
    )
