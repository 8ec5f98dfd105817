"""Airflow Connections -> the library's services; nothing else reads Connections.

The sandbox and an installation differ only in their configuration directory and their Connections.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import yaml
from airflow.sdk import BaseHook, Connection, get_current_context

from spillway.config import Configuration, configuration_directory, jobs_directory, load, load_image_uses
from spillway.connections import ConnectionSpec, database_url, require_type
from spillway.errors import ConfigError, Missing
from spillway.ledger import Ledger, check_workers_reach, open_ledger
from spillway.model import Cluster
from spillway.runs.local import LEDGER_CONNECTION
from spillway.runs.services import Connect, Services
from spillway.runs.sites import site_opener
from spillway_airflow.threads import in_thread


def worker_services() -> Services:
    """The services of a task; Connections are read when a site is first used."""
    return replace(_services(configuration(), _connect), actor=_task())


def ledger() -> Ledger:
    """The ledger, for what needs nothing else of an installation.

    Raises:
        Missing: Airflow has no Connection of it.
        ConfigError, Unreachable, AccessDenied: as ``open_ledger``.
    """
    return _open_ledger(_connect)


def _connect(conn_id: str) -> ConnectionSpec:
    from airflow.sdk.exceptions import AirflowNotFoundException

    try:
        return connection_spec(BaseHook.get_connection(conn_id))
    except AirflowNotFoundException as absent:
        raise _missing(conn_id) from absent


def _task() -> str | None:
    """The task that this is, ``dag/run/task`` with its map index; None outside of one."""
    try:
        ti = get_current_context()["ti"]
    except RuntimeError:
        return None
    mapped = f"[{ti.map_index}]" if ti.map_index is not None and ti.map_index >= 0 else ""
    return f"{ti.dag_id}/{ti.run_id}/{ti.task_id}{mapped}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """What services are made of, as it was at one moment; a Connection that was not found is not among them."""

    configuration: Configuration
    connections: Mapping[str, ConnectionSpec]


async def triggerer_settings(known: Mapping[str, ConnectionSpec] | None = None) -> Settings:
    """The settings of a trigger; every Connection is read now, for a trigger's threads cannot ask for one later.

    Airflow says that a Connection is not there also when its own database does not answer. The ledger's is asked for
    first and must be found; of the others, one that is not found stays as it is in ``known``.

    Raises:
        ConfigError: the declared configuration is wrong.
        Missing: the ledger's Connection is not found.
    """
    from airflow.sdk.exceptions import AirflowNotFoundException

    declared = await in_thread(configuration)
    found: dict[str, ConnectionSpec] = {}
    for conn_id in connection_ids(declared):
        try:
            found[conn_id] = connection_spec(await BaseHook.aget_connection(conn_id))
        except AirflowNotFoundException as absent:
            if conn_id == LEDGER_CONNECTION:
                raise _missing(conn_id) from absent
            if known and conn_id in known:
                found[conn_id] = known[conn_id]
    return Settings(configuration=declared, connections=found)


def services_of(settings: Settings) -> Services:
    """The services that the settings describe; asks the ledger whether it is there."""

    def connect(conn_id: str) -> ConnectionSpec:
        if conn_id not in settings.connections:
            raise _missing(conn_id)
        return settings.connections[conn_id]

    return _services(settings.configuration, connect)


async def triggerer_services() -> Services:
    """The services of a trigger with the settings of this moment."""
    return await in_thread(services_of, await triggerer_settings())


def configuration() -> Configuration:
    """The declared configuration of this installation."""
    return load(configuration_directory(os.environ))


def connection_ids(declared: Configuration) -> tuple[str, ...]:
    """Every Connection that the configuration names, the ledger's first."""
    ids = [LEDGER_CONNECTION]
    for cluster in declared.clusters.values():
        store = cluster.object_store
        named = (store.public_connection, store.public_pod_connection, store.cache_connection)
        others = [conn_id for conn_id in named if conn_id is not None]
        ids += [cluster.connection, store.connection, store.pod_connection, *others, cluster.registry.connection]
    for dataset in declared.datasets.values():
        ids += [dataset.remote_read] if dataset.remote_read is not None else []
        ids += [dataset.cache.connection] if dataset.cache is not None else []
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
    opened = _open_ledger(connect)  # a task finds out at its start
    return Services(
        configuration=declared,
        open_ledger=lambda: opened,
        open_site=site_opener(connect, open_cluster),
        connect=connect,
        image_uses=partial(load_image_uses, jobs_directory(os.environ), declared.datasets),
    )


def _open_ledger(connect: Connect) -> Ledger:
    from airflow.configuration import conf

    url = database_url(connect(LEDGER_CONNECTION))
    check_workers_reach(url, executor_is_local="LocalExecutor" in conf.get("core", "executor"))
    return open_ledger(url)


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

    require_type(connection, "kubernetes")
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
