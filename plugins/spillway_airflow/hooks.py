"""Airflow Connections -> the library's services; nothing else reads Connections.

The sandbox and an installation differ only in their configuration directory and their Connections.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

import yaml
from airflow.sdk import BaseHook, Connection

from spillway.config import Configuration, configuration_directory, load
from spillway.connections import ConnectionSpec, database_url
from spillway.errors import ConfigError, Missing
from spillway.ledger import check_workers_reach, open_ledger
from spillway.model import Cluster
from spillway.runs.local import LEDGER_CONNECTION
from spillway.runs.services import Services
from spillway.runs.sites import Connect, site_opener
from spillway_airflow.threads import in_thread


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

    declared = await in_thread(configuration)
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

    return await in_thread(_services, declared, connect)


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

    The hook gets a Configuration of its own, and certificates are left unchecked there alone: the provider's own
    switch would turn the check off for every later client of the process.

    Raises:
        ConfigError: the Connection does not say how to authenticate, or says it in two ways.
    """
    from airflow.providers.cncf.kubernetes.hooks.kubernetes import KubernetesHook
    from airflow.sdk.exceptions import AirflowException
    from kubernetes.client import Configuration as ClientConfiguration
    from kubernetes.config import ConfigException

    from spillway.clouds.kubernetes import KubernetesCluster

    extra = connection.extra
    in_cluster = _flag(extra.get("in_cluster"))
    own = ClientConfiguration()
    own.verify_ssl = not _flag(extra.get("disable_verify_ssl"))
    hook = KubernetesHook(
        kubernetes_conn_id=None,
        client_configuration=None if in_cluster else own,
        cluster_context=extra.get("cluster_context") or None,
        config_file=extra.get("kube_config_path") or None,
        config_dict=_kubeconfig(connection.conn_id, extra.get("kube_config")),
        in_cluster=in_cluster or None,
    )
    try:
        return KubernetesCluster(cluster=cluster, api_client=hook.get_conn())
    except (AirflowException, ConfigException, OSError) as problem:
        file = extra.get("kube_config_path")
        where = f"{connection.conn_id}.extra" + (f" (kube_config_path {file})" if file else "")
        raise ConfigError("Connections", where, str(problem)) from problem


def _kubeconfig(conn_id: str, written: Any) -> dict[str, Any] | None:
    """The kubeconfig of a Connection, which is a document or the text of one, in JSON or YAML."""
    if not written:
        return None
    if isinstance(written, str):
        try:
            written = yaml.safe_load(written)
        except yaml.YAMLError:
            # The text holds credentials, and the parser's message would quote them.
            raise ConfigError("Connections", f"{conn_id}.extra.kube_config", "expected JSON or YAML") from None
    if not isinstance(written, Mapping):
        raise ConfigError("Connections", f"{conn_id}.extra.kube_config", "expected a kubeconfig document")
    return dict(written)


def _flag(written: Any) -> bool:
    """A switch of a Connection's extra fields, which the form writes as a boolean and people as text."""
    return str(written).lower() in {"true", "1"}


def _missing(conn_id: str) -> Missing:
    return Missing(
        "Connection",
        conn_id,
        "Airflow",
        fix="create it (Admin > Connections, or a secrets backend); see docs/clusters.md",
    )
