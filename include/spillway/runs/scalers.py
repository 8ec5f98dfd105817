"""The scaler of a cluster's pools from its declared facts and its Connections."""

from __future__ import annotations

from spillway.clouds.api import KubernetesApi
from spillway.clouds.base import ClusterClient, NodePoolScaler, NodeProvider
from spillway.connections import require_type
from spillway.errors import ConfigError, SpillwayError, UnknownName
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
                providers[pool.name] = _provider(cluster, pool, pool.scaled_by, client.api, connect)
            except SpillwayError as problem:
                providers[pool.name] = problem
    return NodePools(cluster=cluster, api=client.api, providers=providers)


def _provider(
    cluster: Cluster, pool: NodePool, scaled_by: ScaledBy, api: KubernetesApi, connect: Connect
) -> NodeProvider:
    """Raises ConfigError and what ``connect`` raises."""
    named = f"{cluster.name}/{pool.name}"
    match scaled_by.provider:
        case "placeholders":
            from spillway.clouds.placeholders import Placeholders

            return Placeholders(cluster=cluster, pool=pool, image=scaled_by.image, api=api)
        case "eks":
            from spillway.clouds.aws import AwsClients
            from spillway.clouds.eks import EksNodeGroup

            clients = AwsClients(connect(str(scaled_by.connection)))
            place = {"cluster": str(scaled_by.cluster), "node_group": str(scaled_by.node_group)}
            return EksNodeGroup(pool=named, clients=clients, **place)
        case "sandbox":
            from spillway.clouds.sandbox_machines import SandboxMachines

            connection = connect(str(scaled_by.connection))
            require_type(connection, "http")
            if not connection.host or not connection.port:
                where = f"{connection.conn_id}.host"
                raise ConfigError("Connections", where, "expected host and port of the provider, got nothing")
            address = {"host": connection.host, "token": connection.password or ""}
            return SandboxMachines(pool=named, group=str(scaled_by.node_group), port=connection.port, **address)
    raise UnknownName("provider of nodes", scaled_by.provider, ("eks", "placeholders", "sandbox"))
