"""Clients of a site from its declared facts and its Connections.

Connections are Airflow's own kinds: ``kubernetes`` for the cluster, ``aws`` for the object store (login and password,
``endpoint_url`` and ``region_name`` in extra), ``http`` for the registry (schema, host, port, login, password).
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from spillway.clouds.base import ClusterClient
from spillway.connections import ConnectionSpec
from spillway.errors import ConfigError
from spillway.model import Cluster
from spillway.registries.base import ImageRegistry
from spillway.registries.http import HttpRegistry
from spillway.runs.services import OpenSite, Site
from spillway.stores.base import ObjectStore
from spillway.stores.s3 import open_store

Connect = Callable[[str], ConnectionSpec]
"""Gives the Connection of that name; raises Missing where there is none."""
OpenCluster = Callable[[Cluster, ConnectionSpec], ClusterClient]


def site_opener(connect: Connect, open_cluster: OpenCluster) -> OpenSite:
    """How a site is opened with these Connections; ``open_cluster`` is given by whoever knows how to authenticate."""

    def open_site(cluster: Cluster) -> Site:
        store = connect(cluster.object_store.connection)
        pull = connect(cluster.registry.connection)
        return Site(
            cluster=cluster,
            client=open_cluster(cluster, connect(cluster.connection)),
            datasets=bucket(store, cluster.object_store.dataset_bucket, cluster.name),
            checkpoints=bucket(store, cluster.object_store.checkpoint_bucket, cluster.name),
            registry=registry(pull, cluster),
            pod_store=connect(cluster.object_store.pod_connection),
            pull=pull,
        )

    return open_site


def bucket(connection: ConnectionSpec, name: str, site: str) -> ObjectStore:
    """A bucket through an ``aws`` Connection; without an endpoint it is AWS itself."""
    ca_file = connection.extra.get("verify")
    return open_store(
        name=site,
        bucket=name,
        endpoint_url=connection.extra.get("endpoint_url"),
        region=str(connection.extra.get("region_name", "us-east-1")),
        access_key=connection.login or "",
        secret_key=connection.password or "",
        ca_file=Path(ca_file) if isinstance(ca_file, str) else None,
    )


def registry(connection: ConnectionSpec, cluster: Cluster) -> ImageRegistry:
    """A site's registry through an ``http`` Connection; https unless the Connection says otherwise."""
    if not connection.host:
        raise ConfigError("Connections", f"{connection.conn_id}.host", "expected the registry's host, got nothing")
    ca_file = connection.extra.get("verify")
    return HttpRegistry(
        name=cluster.name,
        url=f"{connection.schema or 'https'}://{registry_host(connection)}",
        username=connection.login,
        password=connection.password,
        prefix=cluster.registry.prefix,
        ca_file=ca_file if isinstance(ca_file, str) else None,
    )


def registry_host(connection: ConnectionSpec) -> str:
    """``host:port`` as image references name the registry."""
    return f"{connection.host}:{connection.port}" if connection.port else str(connection.host)
