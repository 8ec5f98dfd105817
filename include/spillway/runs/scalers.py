"""The scaler of a cluster's pools from its declared facts and its Connections."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from spillway.clouds.base import ClusterClient, NodePoolScaler, NodeProvider
from spillway.connections import require_type
from spillway.errors import ConfigError, SpillwayError
from spillway.model import Cluster, NodePool, ScaledBy
from spillway.runs.services import Connect


def open_scaler(cluster: Cluster, client: ClusterClient, connect: Connect) -> NodePoolScaler | None:
    """The scaler of the pools that say what scales them; None where none does, or ``client`` is no real cluster's.

    A provider that cannot be opened stops only its own pool, whose error the scaler gives in its place.
    """
    from spillway.clouds.kubernetes import KubernetesCluster
    from spillway.clouds.node_pools import NodePools

    if not isinstance(client, KubernetesCluster) or not any(pool.scaled_by for pool in cluster.pools):
        return None
    providers: dict[str, NodeProvider | SpillwayError] = {}
    for pool in cluster.pools:
        if pool.scaled_by is not None:
            try:
                providers[pool.name] = PROVIDERS[pool.scaled_by.provider](cluster, pool, pool.scaled_by, connect)
            except SpillwayError as problem:
                providers[pool.name] = problem
    return NodePools(cluster=cluster, api=client.api, providers=providers)


def _sandbox(cluster: Cluster, pool: NodePool, scaled_by: ScaledBy, connect: Connect) -> NodeProvider:
    from spillway.clouds.sandbox_machines import SandboxMachines

    connection = connect(str(scaled_by.connection))
    require_type(connection, "http")
    if not connection.host or not connection.port:
        raise ConfigError("Connections", f"{connection.conn_id}.host", "expected host and port of the provider")
    return SandboxMachines(
        pool=f"{cluster.name}/{pool.name}",
        group=str(scaled_by.node_group),
        host=connection.host,
        port=connection.port,
        token=connection.password or "",
    )


PROVIDERS: Mapping[str, Callable[[Cluster, NodePool, ScaledBy, Connect], NodeProvider]] = {"sandbox": _sandbox}
