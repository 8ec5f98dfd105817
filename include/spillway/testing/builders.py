"""Values with safe defaults, so that a test states only what matters to it.

Each builder takes the fields of its class as keywords. Defaults: a job of research that needs one GPU; an on-premises
cluster with one pool of 8-GPU nodes; a cloud cluster beside it; a moment that never moves.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any

from spillway.model import (
    Attempt,
    AttemptState,
    Billing,
    Candidate,
    Cluster,
    ClusterState,
    CoolDown,
    Dataset,
    DatasetUse,
    ImageUse,
    JobSpec,
    Link,
    Move,
    MoveEstimate,
    MoveState,
    NodePool,
    NodeState,
    OpenAttempt,
    PlacementPolicy,
    PodUse,
    Priority,
    QueuedRun,
    QuotaShare,
    RegistryRef,
    Reservation,
    SiteKind,
    Snapshot,
    StoreRef,
    Tier,
)

NOW = datetime(2026, 1, 5, 12, 0, tzinfo=UTC)
INSTALLATION = "5f0c7a52-4f8e-4f3a-9d0b-2d9a7c1e6b11"


def job_spec(**fields: Any) -> JobSpec:
    """``dataset`` is short for the name of the only one it reads."""
    return replace(
        JobSpec(
            name="digits",
            department="research",
            priority=Priority.RESEARCH,
            image="train:v1",
            command=("digits",),
            gpus_per_node=1,
            tier=Tier.PUBLIC,
        ),
        **job_fields(fields),
    )


def job_fields(fields: Mapping[str, Any]) -> dict[str, Any]:
    """The fields of a job, ``dataset`` spelled out."""
    if "dataset" not in fields:
        return dict(fields)
    name = fields["dataset"]
    uses = () if name is None else (DatasetUse(name=name),)
    return {key: value for key, value in fields.items() if key != "dataset"} | {"datasets": uses}


def image_use(job: JobSpec) -> ImageUse:
    """What the file of this job says of its image."""
    return ImageUse(job=job.name, image=job.image, tier=job.tier)


def node_pool(**fields: Any) -> NodePool:
    return replace(
        NodePool(
            name="a100",
            gpu_model="A100",
            gpu_memory_gib=80,
            gpus_per_node=8,
            max_nodes=4,
            prices_per_gpu_hour={Billing.OWNED: Decimal("2.5")},
        ),
        **fields,
    )


def cpu_pool(**fields: Any) -> NodePool:
    """Nodes of 32 cores without GPUs."""
    pool = NodePool(
        name="cpu",
        gpus_per_node=0,
        max_nodes=2,
        cpu_cores_per_node=32.0,
        memory_gib_per_node=128.0,
        prices_per_core_hour={Billing.OWNED: Decimal("0.05")},
    )
    return replace(pool, **fields)


def cloud_pool(**fields: Any) -> NodePool:
    cloud = node_pool(
        name="h100",
        gpu_model="H100",
        prices_per_gpu_hour={Billing.ON_DEMAND: Decimal("8.0"), Billing.SPOT: Decimal("2.8")},
    )
    return replace(cloud, **fields)


def onprem_cluster(**fields: Any) -> Cluster:
    return replace(_cluster("onprem", SiteKind.ONPREM, node_pool(), frozenset({Tier.CORE, Tier.PUBLIC})), **fields)


def cloud_cluster(**fields: Any) -> Cluster:
    return replace(_cluster("cloud", SiteKind.CLOUD, cloud_pool(), frozenset({Tier.PUBLIC})), **fields)


def node(**fields: Any) -> NodeState:
    """A usable node of the on-premises pool with 8 GPUs."""
    return replace(NodeState(name="a100-0", pool="a100", ready=True, schedulable=True, allocatable_gpus=8), **fields)


def nodes_of(pool: NodePool, count: int) -> tuple[NodeState, ...]:
    """``count`` usable nodes of the pool's shape, named after it; only those without GPUs say what cores they have."""
    room = {}
    if not pool.gpus_per_node:
        room = {
            "cpu_millicores": int((pool.cpu_cores_per_node or 0) * 1000),
            "memory_mib": int((pool.memory_gib_per_node or 0) * 1024),
        }
    shape = {"pool": pool.name, "allocatable_gpus": pool.devices_per_node, **room}
    return tuple(node(name=f"{pool.name}-{index}", **shape) for index in range(count))


def pod(**fields: Any) -> PodUse:
    """A foreign pod with one GPU that has no node yet."""
    return replace(PodUse(name="foreign", namespace="default", gpus=1), **fields)


def cluster_state(
    cluster: Cluster, *, nodes: Iterable[NodeState] | None = None, pods: Iterable[PodUse] = ()
) -> ClusterState:
    """A reachable cluster; without ``nodes`` every declared node of its pools runs."""
    running = [node for pool in cluster.pools for node in nodes_of(pool, pool.max_nodes)] if nodes is None else nodes
    return ClusterState(cluster=cluster, nodes=tuple(running), pods=tuple(pods))


def snapshot(*clusters: ClusterState, **fields: Any) -> Snapshot:
    """A snapshot of the clusters; of an empty on-premises and an empty cloud cluster where none are given."""
    seen = clusters or (cluster_state(onprem_cluster()), cluster_state(cloud_cluster()))
    return replace(Snapshot(taken_at=NOW, clusters=seen), **fields)


def placement_policy(**fields: Any) -> PlacementPolicy:
    """The default weights, and one department, research, that may use everything."""
    return replace(
        PlacementPolicy(
            weights={"qos": Decimal("0.7"), "cost": Decimal("0.15"), "affinity": Decimal("0.15")},
            quotas={"research": QuotaShare(onprem=Decimal(1), cloud=Decimal(1))},
        ),
        **fields,
    )


def candidate(**fields: Any) -> Candidate:
    return replace(Candidate(cluster="onprem", pool="a100", billing=Billing.OWNED), **fields)


def move(**fields: Any) -> Move:
    """One that was just ordered, of a run's first attempt from the on-premises pool to the cloud."""
    return replace(
        Move(
            run="r",
            number=1,
            attempt=1,
            target=Candidate(cluster="cloud", pool="h100", billing=Billing.ON_DEMAND),
            state=MoveState.ORDERED,
            reason="maintenance",
            origin={"run_id": "a"},
            estimate=MoveEstimate(beforehand={}, pause={}),
            ordered_at=NOW,
            lease_expires_at=NOW + timedelta(minutes=10),
        ),
        **fields,
    )


def reservation(**fields: Any) -> Reservation:
    """One GPU on one node of the on-premises pool."""
    return replace(
        Reservation(
            attempt="other-1",
            department="research",
            cluster="onprem",
            pool="a100",
            billing=Billing.OWNED,
            gpus_per_node=1,
            nodes=1,
        ),
        **fields,
    )


def open_attempt(**fields: Any) -> OpenAttempt:
    """The attempt behind ``reservation()``: interruptible, it trains for an hour and has committed nothing."""
    return replace(
        OpenAttempt(
            attempt="other-1",
            priority=Priority.RESEARCH,
            interruptible=True,
            lease_expires_at=NOW + timedelta(minutes=10),
            started_at=NOW - timedelta(hours=1),
        ),
        **fields,
    )


def queued_run(**fields: Any) -> QueuedRun:
    """A run of a whole node of the on-premises pool that has waited for ten minutes."""
    return replace(
        QueuedRun(
            run="big-1",
            priority=Priority.RESEARCH,
            since=NOW - timedelta(minutes=10),
            nodes=1,
            gpus_per_node=8,
            cpu_millicores_per_node=1000,
            memory_mib_per_node=1024,
            places=frozenset({("onprem", "a100")}),
        ),
        **fields,
    )


def cooling(**fields: Any) -> CoolDown:
    return replace(
        CoolDown(cluster="onprem", pool="a100", until=NOW + timedelta(minutes=5), reason="lost its node"), **fields
    )


def dataset(**fields: Any) -> Dataset:
    return replace(Dataset(name="digits", home="onprem", prefix="digits/", tier=Tier.PUBLIC), **fields)


def attempt(**fields: Any) -> Attempt:
    """The first attempt of a run, just reserved."""
    return replace(
        Attempt(
            run="digits-7f3a",
            number=1,
            job=job_spec(),
            state=AttemptState.RESERVED,
            candidate=candidate(),
            reserved_at=NOW,
            lease_expires_at=NOW + timedelta(minutes=10),
        ),
        **fields,
    )


def _cluster(name: str, kind: SiteKind, pool: NodePool, residency: frozenset[Tier]) -> Cluster:
    return Cluster(
        name=name,
        kind=kind,
        provider="sandbox",
        connection=f"{name}_kubernetes",
        namespace="training",
        region="local",
        pools=(pool,),
        link=Link(bandwidth_gbps=10.0),
        object_store=StoreRef(
            connection=f"{name}_store",
            pod_connection=f"{name}_store_pods",
            dataset_bucket="datasets",
            checkpoint_bucket="checkpoints",
        ),
        registry=RegistryRef(connection=f"{name}_registry"),
        residency=residency,
    )
