"""Clients of a site from its declared facts and its Connections.

Connections are Airflow's own kinds: ``kubernetes`` for the cluster, ``aws`` for the object store (login and password,
``endpoint_url`` and ``region_name`` in extra), ``http`` for the registry (schema, host, port, login, password).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, cast
from urllib.parse import urlsplit

from spillway.clouds.base import ClusterClient
from spillway.connections import ConnectionSpec, require_type
from spillway.errors import ConfigError
from spillway.model import Cluster
from spillway.registries.base import ImageRegistry
from spillway.registries.http import HttpRegistry
from spillway.runs.services import Connect, OpenSite, Site
from spillway.stores.base import ObjectStore
from spillway.stores.http_pool import Origin
from spillway.stores.patience import AWAY_SECONDS
from spillway.stores.s3 import open_store

OpenCluster = Callable[[Cluster, ConnectionSpec], ClusterClient]


def site_opener(connect: Connect, open_cluster: OpenCluster) -> OpenSite:
    """How a site is opened with these Connections; ``open_cluster`` is given by whoever knows how to authenticate."""
    return _Opener(connect, open_cluster)


@dataclass(frozen=True, slots=True)
class _Opener:
    connect: Connect
    open_cluster: OpenCluster

    def __call__(self, cluster: Cluster) -> Site:
        site = self._open(cluster)
        return replace(site, client=self.open_cluster(cluster, self.connect(cluster.connection)))

    def stores(self, cluster: Cluster) -> Site:
        """The site without its cluster; stores that are away are waited for."""
        return self._open(cluster, away_seconds=AWAY_SECONDS)

    def _open(self, cluster: Cluster, *, away_seconds: float = 0.0) -> Site:
        declared = cluster.object_store
        store, pod_store = self.connect(declared.connection), self.connect(declared.pod_connection)
        public = self.connect(declared.public_connection) if declared.public_connection else None
        store_endpoint(pod_store)  # else a pod would be the first to miss it
        pull = self.connect(cluster.registry.connection)
        open_bucket = partial(bucket, site=cluster.name, away_seconds=away_seconds)
        return Site(
            cluster=cluster,
            client=cast(Any, None),
            datasets=open_bucket(store, declared.dataset_bucket),
            checkpoints=open_bucket(store, declared.checkpoint_bucket),
            registry=registry(pull, cluster),
            pod_store=pod_store,
            pull=pull,
            public_datasets=open_bucket(public, declared.dataset_bucket) if public else None,
            store_tls=urlsplit(store_endpoint(store)).scheme == "https",
            registry_tls=_registry_scheme(pull) == "https",
        )


def bucket(connection: ConnectionSpec, name: str, site: str, *, away_seconds: float = 0.0) -> ObjectStore:
    """A bucket through an ``aws`` Connection; ``away_seconds`` as in ``S3Endpoint``."""
    return open_store(
        name=site,
        bucket=name,
        endpoint_url=store_endpoint(connection),
        region=str(connection.extra.get("region_name", "us-east-1")),
        access_key=connection.login or "",
        secret_key=connection.password or "",
        session_token=connection.extra.get("aws_session_token"),
        ca_file=ca_file(connection),
        credentials=f"Connection '{connection.conn_id}'",
        away_seconds=away_seconds,
    )


def store_endpoint(connection: ConnectionSpec) -> str:
    """Where the store is, of AWS too: pods are told it."""
    require_type(connection, "aws")
    endpoint, path = connection.extra.get("endpoint_url"), f"{connection.conn_id}.extra.endpoint_url"
    if not endpoint:
        aws = "of AWS too (https://s3.<region>.amazonaws.com)"
        raise ConfigError("Connections", path, f"expected the store's address, {aws}, got nothing")
    try:
        Origin.of(str(endpoint))
    except ValueError as problem:
        raise ConfigError("Connections", path, str(problem)) from problem
    return str(endpoint)


def registry(connection: ConnectionSpec, cluster: Cluster) -> ImageRegistry:
    """A site's registry through an ``http`` Connection; https unless the Connection says otherwise."""
    require_type(connection, "http")
    if not connection.host:
        raise ConfigError("Connections", f"{connection.conn_id}.host", "expected the registry's host, got nothing")
    if "/" in connection.host:
        elsewhere = "its scheme belongs into schema, a path into registry.prefix of clusters.yaml"
        seen = f"expected a host alone, got '{connection.host}'; {elsewhere}"
        raise ConfigError("Connections", f"{connection.conn_id}.host", seen)
    vouching = ca_file(connection)
    return HttpRegistry(
        name=cluster.name,
        url=f"{_registry_scheme(connection)}://{registry_host(connection)}",
        username=connection.login,
        password=connection.password,
        prefix=cluster.registry.prefix,
        ca_file=str(vouching) if vouching else None,
        credentials=f"Connection '{connection.conn_id}'",
    )


def _registry_scheme(connection: ConnectionSpec) -> str:
    return connection.schema or "https"


def ca_file(connection: ConnectionSpec) -> Path | None:
    """The certificates that vouch for the endpoint (``verify`` in extra); None where those of the system do."""
    file = connection.extra.get("verify")
    return Path(file) if isinstance(file, str) else None


def registry_host(connection: ConnectionSpec) -> str:
    """``host:port`` as image references name the registry."""
    return f"{connection.host}:{connection.port}" if connection.port else str(connection.host)
