"""The declared files become values."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from datetime import timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from spillway.config import Configuration, configuration_directory, load, load_iteration, load_job
from spillway.config.clusters import (
    ClusterEntry,
    GpuShareEntry,
    LinkEntry,
    PoolEntry,
    RegistryEntry,
    ReservedEntry,
    StoreEntry,
)
from spillway.config.datasets import DatasetEntry
from spillway.config.job import JobFile
from spillway.config.schema import IterationEntry, QuotaEntry, RepositoryEntry, RetentionEntry, RunsEntry
from spillway.errors import ConfigError
from spillway.model import (
    Billing,
    CloudAccess,
    Cluster,
    Dataset,
    GpuShare,
    JobSpec,
    Link,
    MirroredRepository,
    NodePool,
    OffPeak,
    PlacementPolicy,
    QuotaShare,
    RegistryRef,
    ReservedContract,
    Retention,
    RunPolicy,
    StoreRef,
    Tier,
)
from spillway.testing.builders import cloud_cluster, node_pool, onprem_cluster
from spillway.windows import Iteration

Write = Callable[..., Path]


def test_the_files_become_values(directory: Path) -> None:
    cloud_pool = node_pool(name="h100", prices_per_gpu_hour={Billing.ON_DEMAND: Decimal("8.0")})
    stores = onprem_cluster().object_store
    assert load(directory) == Configuration(
        clusters={
            "onprem": onprem_cluster(provider="kubernetes"),
            "cloud": cloud_cluster(
                provider="kubernetes",
                connection="onprem_kubernetes",
                pools=(cloud_pool,),
                object_store=stores,
                registry=onprem_cluster().registry,
            ),
        },
        datasets={"digits": Dataset(name="digits", home="onprem", prefix="digits/", tier=Tier.PUBLIC)},
        policy=PlacementPolicy(
            weights={"qos": Decimal("0.7"), "cost": Decimal("0.15"), "affinity": Decimal("0.15")},
            quotas={"research": QuotaShare(onprem=Decimal("0.2"), cloud=Decimal("0.3"))},
            cloud_access={
                "research": CloudAccess(
                    clusters=frozenset({"cloud"}), billing=frozenset({Billing.SPOT}), dags=("train*",)
                )
            },
        ),
        runs=RunPolicy(),
    )


def test_which_sites_are_of_low_latency_is_declared_and_on_premises_where_nothing_is_said(
    directory: Path, write: Write
) -> None:
    def low_latency() -> set[str]:
        return {name for name, cluster in load(directory).clusters.items() if cluster.is_low_latency}

    assert low_latency() == {"onprem"}
    write("clusters.yaml", ("clusters", 1, "low_latency"), True)
    assert low_latency() == {"onprem", "cloud"}
    write("clusters.yaml", ("clusters", 0, "low_latency"), False)
    assert low_latency() == set()


def test_a_pool_may_give_its_gpus_away_in_parts_and_a_job_take_one(directory: Path, write: Write) -> None:
    share = {"resource": "nvidia.com/mig-1g.10gb", "per_gpu": 7, "memory_gib": 10}
    write("clusters.yaml", ("clusters", 0, "pools", 0, "gpu_share"), share)
    pool = load(directory).clusters["onprem"].pools[0]
    assert pool.gpu_share == GpuShare(resource="nvidia.com/mig-1g.10gb", per_gpu=7, memory_gib=10)
    assert (pool.gpu_resource, pool.devices_per_node, pool.max_gpus) == ("nvidia.com/mig-1g.10gb", 56, 32)
    file = write("job.yaml", ("gpus_per_node",), ...)
    file.write_text(file.read_text() + "gpu_fraction: 1/7\n")
    job = load_job(file, {})
    assert (job.gpus_per_node, job.gpus, pool.gpu_share.fraction) == (1, Decimal("0.142"), Decimal("0.142"))


def test_a_pool_may_be_of_cores_and_a_job_take_no_gpu(directory: Path, write: Write) -> None:
    cores = {
        "name": "cpu",
        "gpus_per_node": 0,
        "max_nodes": 2,
        "cpu_cores_per_node": 32,
        "memory_gib_per_node": 128,
        "node_selector": {"pool": "cpu"},
        "prices_per_core_hour": {"owned": 0.05},
    }
    write("clusters.yaml", ("clusters", 0, "pools", 1), cores)
    pool = load(directory).clusters["onprem"].pool("cpu")
    assert (pool.prices_per_hour, pool.priced_units) == ({Billing.OWNED: Decimal("0.05")}, 64)
    job = load_job(write("job.yaml", ("gpus_per_node",), 0), {})
    assert (job.gpus, job.cores_paid, job.priced_units) == (0, 1, 1)
    for key, value in (("gpu_model", "H100"), ("gpu_memory_gib", 80), ("max_price_per_gpu_hour", 2)):
        file = write("job.yaml", ("gpus_per_node",), 0)
        file.write_text(file.read_text() + f"{key}: {value}\n")
        with pytest.raises(ConfigError, match=rf"{key}: is about GPUs, and the job takes none"):
            load_job(file, {})


def test_a_pool_may_have_off_peak_hours_and_a_job_wait_for_them(directory: Path, write: Write) -> None:
    night = {"hours": "22:00-06:30", "time_zone": "Europe/Berlin", "prices_per_hour": {"on-demand": 5.2}}
    write("clusters.yaml", ("clusters", 1, "pools", 0, "off_peak"), night)
    assert load(directory).clusters["cloud"].pools[0].off_peak == OffPeak(
        begins=timedelta(hours=22),
        ends=timedelta(hours=6, minutes=30),
        time_zone="Europe/Berlin",
        prices_per_hour={Billing.ON_DEMAND: Decimal("5.2")},
    )
    assert load_job(write("job.yaml", ("off_peak_ok",), True), {}).off_peak_ok


def test_who_may_use_the_cloud_is_nobody_where_nothing_is_said(directory: Path, write: Write) -> None:
    write("policy.yaml", ("placement", "cloud_access"), ...)
    assert load(directory).policy.cloud_access == {}
    write("policy.yaml", ("placement", "cloud_access", "research", "clusters"), "all")
    access = load(directory).policy.cloud_access
    assert access is not None
    assert access["research"].clusters is None


def test_what_is_left_out_has_the_defaults_of_the_values(directory: Path, write: Write) -> None:
    job = load_job(write("job.yaml", ("nodes",), 1), {})
    assert job == JobSpec(
        name=job.name,
        department=job.department,
        priority=job.priority,
        image=job.image,
        command=job.command,
        gpus_per_node=1,
    )
    write("policy.yaml", ("runs",), {"lease": "1m"})
    assert load(directory).runs == RunPolicy(lease=timedelta(minutes=1))


def test_without_retention_every_checkpoint_is_kept(directory: Path, write: Write) -> None:
    assert load(directory).retention is None
    write("policy.yaml", ("checkpoints",), {"retention": {"last": 5, "minimum_age": "2h"}})
    assert load(directory).retention == Retention(last=5, minimum_age=timedelta(hours=2))


@pytest.mark.parametrize(
    ("written", "iteration"),
    [
        ({}, Iteration(days=7, time_zone="UTC")),
        ({"days": 10, "time_zone": "Asia/Kolkata"}, Iteration(days=10, time_zone="Asia/Kolkata")),
        ({"days": "ISO week"}, Iteration(days=None, time_zone="UTC")),
    ],
)
def test_when_the_monthly_iteration_is_can_be_read_by_itself(
    directory: Path, write: Write, written: Any, iteration: Iteration
) -> None:
    assert load_iteration(directory) == load(directory).iteration == Iteration()
    write("policy.yaml", ("iteration",), written)
    assert load(directory).iteration == iteration
    (directory / "clusters.yaml").unlink()
    assert load_iteration(directory) == iteration


@pytest.mark.parametrize(
    ("entry", "value"),
    [
        (ClusterEntry, Cluster),
        (PoolEntry, NodePool),
        (GpuShareEntry, GpuShare),
        (ReservedEntry, ReservedContract),
        (LinkEntry, Link),
        (StoreEntry, StoreRef),
        (RegistryEntry, RegistryRef),
        (DatasetEntry, Dataset),
        (RepositoryEntry, MirroredRepository),
        (QuotaEntry, QuotaShare),
        (RunsEntry, RunPolicy),
        (RetentionEntry, Retention),
        (IterationEntry, Iteration),
        (JobFile, JobSpec),
    ],
    ids=lambda kind: kind.__name__,
)
def test_the_files_have_a_key_for_every_field_of_their_values(entry: Any, value: Any) -> None:
    short = {"dataset", "part"} if value is JobSpec else set()
    assert set(entry.model_fields) - short == {field.name for field in dataclasses.fields(value)}


def test_the_environment_chooses_the_directory() -> None:
    assert configuration_directory({"SPILLWAY_CONFIG_DIR": "/etc/spillway"}) == Path("/etc/spillway")
    assert configuration_directory({}) == configuration_directory({"SPILLWAY_CONFIG_DIR": ""})


def test_the_shipped_example_is_valid() -> None:
    configuration = load(configuration_directory({}))
    assert set(configuration.clusters) == {"onprem", "cloud"}
    assert configuration.clusters["cloud"].pools[0].prices_per_gpu_hour == {
        Billing.ON_DEMAND: Decimal("8.0"),
        Billing.RESERVED: Decimal("5.6"),
        Billing.SPOT: Decimal("2.8"),
    }
