"""The declared files become values, and every mistake in them is told with its place and its cure."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from datetime import timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from spillway.config import Configuration, configuration_directory, load, load_job
from spillway.config.schema import (
    ClusterEntry,
    DatasetEntry,
    JobFile,
    LinkEntry,
    PoolEntry,
    QuotaEntry,
    RegistryEntry,
    RunsEntry,
    StoreEntry,
)
from spillway.errors import ConfigError
from spillway.model import (
    Billing,
    Cluster,
    Dataset,
    JobSpec,
    Link,
    NodePool,
    PlacementPolicy,
    QuotaShare,
    RegistryRef,
    RunPolicy,
    StoreRef,
    Tier,
)
from spillway.testing.builders import cloud_cluster, node_pool, onprem_cluster

Write = Callable[..., Path]

CLUSTER = ("clusters", 0)
POOL = (*CLUSTER, "pools", 0)


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
        ),
        runs=RunPolicy(),
    )


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


@pytest.mark.parametrize(
    ("entry", "value"),
    [
        (ClusterEntry, Cluster),
        (PoolEntry, NodePool),
        (LinkEntry, Link),
        (StoreEntry, StoreRef),
        (RegistryEntry, RegistryRef),
        (DatasetEntry, Dataset),
        (QuotaEntry, QuotaShare),
        (RunsEntry, RunPolicy),
        (JobFile, JobSpec),
    ],
    ids=lambda kind: kind.__name__,
)
def test_the_files_have_a_key_for_every_field_of_their_values(entry: Any, value: Any) -> None:
    assert set(entry.model_fields) == {field.name for field in dataclasses.fields(value)}


# file, field that is changed, its new value (... takes it away), the path and the problem that are told
MISTAKES = {
    "a word for a number": (
        "clusters.yaml",
        (*POOL, "max_nodes"),
        "eight",
        "clusters[0].pools[0].max_nodes",
        "expected an integer, got 'eight'",
    ),
    "a number in quotes": (
        "clusters.yaml",
        (*POOL, "gpus_per_node"),
        "8",
        "clusters[0].pools[0].gpus_per_node",
        "expected an integer, got '8'",
    ),
    "zero GPUs a node": (
        "clusters.yaml",
        (*POOL, "gpus_per_node"),
        0,
        "clusters[0].pools[0].gpus_per_node",
        "expected a number of at least 1, got 0",
    ),
    "negative nodes": (
        "clusters.yaml",
        (*POOL, "max_nodes"),
        -2,
        "clusters[0].pools[0].max_nodes",
        "expected a number of at least 1, got -2",
    ),
    "a key with a typo": (
        "clusters.yaml",
        (*POOL, "max_node"),
        4,
        "clusters[0].pools[0]",
        "unknown key 'max_node'; known: gpu_memory_gib, gpu_model, gpus_per_node, max_nodes, name, node_selector, "
        "prices_per_gpu_hour. Did you mean 'max_nodes'?",
    ),
    "a secret": (
        "clusters.yaml",
        (*CLUSTER, "registry", "password"),
        "hunter2",
        "clusters[0].registry",
        "unknown key 'password'; known: connection, prefix",
    ),
    "a missing key": ("clusters.yaml", (*CLUSTER, "namespace"), ..., "clusters[0].namespace", "is missing"),
    "an unknown provider": (
        "clusters.yaml",
        (*CLUSTER, "provider"),
        "kuberntes",
        "clusters[0].provider",
        "unknown provider 'kuberntes'; known: eks, kubernetes, sandbox. Did you mean 'kubernetes'?",
    ),
    "an unknown kind of site": (
        "clusters.yaml",
        (*CLUSTER, "kind"),
        "on-prem",
        "clusters[0].kind",
        "unknown kind of site 'on-prem'; known: cloud, onprem. Did you mean 'onprem'?",
    ),
    "an unknown tier": (
        "clusters.yaml",
        (*CLUSTER, "residency"),
        ["core", "pubic"],
        "clusters[0].residency[1]",
        "unknown tier 'pubic'; known: core, public. Did you mean 'public'?",
    ),
    "a text for a list": (
        "clusters.yaml",
        (*CLUSTER, "residency"),
        "core",
        "clusters[0].residency",
        "expected a list, got 'core'",
    ),
    "a list for a mapping": ("clusters.yaml", CLUSTER, [], "clusters[0]", "expected a mapping, got an empty list"),
    "nothing for a mapping": (
        "clusters.yaml",
        (*CLUSTER, "link"),
        None,
        "clusters[0].link",
        "expected a mapping, got nothing",
    ),
    "no clusters": ("clusters.yaml", ("clusters",), [], "clusters", "expected at least 1 entry, got an empty list"),
    "no pools": (
        "clusters.yaml",
        (*CLUSTER, "pools"),
        [],
        "clusters[0].pools",
        "expected at least 1 entry, got an empty list",
    ),
    "a cluster twice": (
        "clusters.yaml",
        ("clusters", 1, "name"),
        "onprem",
        "clusters",
        "'onprem' is declared twice ([0] and [1]); names are unique",
    ),
    "a name that is no DNS label": (
        "clusters.yaml",
        (*CLUSTER, "name"),
        "On Prem",
        "clusters[0].name",
        "expected text that matches ^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?$, got 'On Prem'",
    ),
    "a bandwidth of zero": (
        "clusters.yaml",
        (*CLUSTER, "link", "bandwidth_gbps"),
        0,
        "clusters[0].link.bandwidth_gbps",
        "expected a number above 0, got 0",
    ),
    "a bandwidth that is not a number": (
        "clusters.yaml",
        (*CLUSTER, "link", "bandwidth_gbps"),
        float("nan"),
        "clusters[0].link.bandwidth_gbps",
        "expected a finite number, got nan",
    ),
    "a selector that is not text": (
        "clusters.yaml",
        (*POOL, "node_selector"),
        {"gpu": True},
        "clusters[0].pools[0].node_selector.gpu",
        "expected text, got True; put it in quotes",
    ),
    "no price": (
        "clusters.yaml",
        (*POOL, "prices_per_gpu_hour"),
        {},
        "clusters[0].pools[0].prices_per_gpu_hour",
        "expected at least one price by billing type (owned, reserved, on-demand, spot), got {}",
    ),
    "a home that is not declared": (
        "datasets.yaml",
        ("datasets", 0, "home"),
        "onprm",
        "datasets[0].home",
        "unknown cluster 'onprm'; known: cloud, onprem. Did you mean 'onprem'?",
    ),
    "core data at home where it may not be": (
        "datasets.yaml",
        ("datasets", 0),
        {"name": "faces", "home": "cloud", "prefix": "faces/", "tier": "core"},
        "datasets[0].home",
        "the dataset 'faces' is of tier 'core', which the residency of cluster 'cloud' in clusters.yaml does not allow",
    ),
    "a prefix without its slash": (
        "datasets.yaml",
        ("datasets", 0, "prefix"),
        "digits",
        "datasets[0].prefix",
        "expected text that matches ^([^/].*/)?$, got 'digits'",
    ),
    "a dataset twice": (
        "datasets.yaml",
        ("datasets", 1),
        {"name": "digits", "home": "cloud", "prefix": ""},
        "datasets",
        "'digits' is declared twice ([0] and [1]); names are unique",
    ),
    "an unknown scorer": (
        "policy.yaml",
        ("placement", "weights", "coast"),
        1,
        "placement.weights",
        "unknown scorer 'coast'; known: affinity, cost, qos. Did you mean 'cost'?",
    ),
    "a negative weight": (
        "policy.yaml",
        ("placement", "weights", "cost"),
        -1,
        "placement.weights",
        "cost: expected an amount of at least 0, got -1",
    ),
    "weights of nothing": (
        "policy.yaml",
        ("placement", "weights"),
        {"qos": 0},
        "placement.weights",
        "expected at least one weight above 0",
    ),
    "a share of more than everything": (
        "policy.yaml",
        ("placement", "quotas", "research", "cloud"),
        "120%",
        "placement.quotas.research.cloud",
        "expected a share between 0 and 1, or 0% and 100%, got '120%'",
    ),
    "shares of more than everything": (
        "policy.yaml",
        ("placement", "quotas", "production"),
        {"onprem": 0.9, "cloud": 0.5},
        "placement.quotas",
        "the onprem shares add up to 1.1, expected at most 1",
    ),
    "a lease without a unit": (
        "policy.yaml",
        ("runs",),
        {"lease": 30},
        "runs.lease",
        "expected a duration such as '30s', '10m', '2h' or 'PT30S', got 30",
    ),
    "a lease of nothing": (
        "policy.yaml",
        ("runs",),
        {"lease": "0s"},
        "runs.lease",
        "expected a duration above 0, got '0s'",
    ),
}


@pytest.mark.parametrize(("file", "changed", "value", "path", "problem"), MISTAKES.values(), ids=MISTAKES.keys())
def test_a_mistake_is_told_with_its_place_and_cure(
    directory: Path, write: Write, file: str, changed: tuple[str | int, ...], value: Any, path: str, problem: str
) -> None:
    write(file, changed, value)
    with pytest.raises(ConfigError) as raised:
        load(directory)
    assert (raised.value.file, raised.value.path, raised.value.problem) == (file, path, problem)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "policy.yaml: expected a mapping at the top, got nothing"),
        ("- placement\n", "policy.yaml: expected a mapping at the top, got a list"),
        (
            "placement:\n  weights: {qos: 1\nruns: {}\n",
            "policy.yaml: line 3, column 5: not valid YAML: expected ',' or '}', but got ':'",
        ),
        (
            "placement: {}\nplacement: {}\n",
            "policy.yaml: line 2, column 1: not valid YAML: the key 'placement' is there twice",
        ),
        ("on: 1\n", "policy.yaml: line 1, column 1: not valid YAML: expected a text key, got True; put it in quotes"),
        ("a: 1\n--- \nb: 1\n", "policy.yaml: line 2, column 1: not valid YAML: but found another document"),
        ("a: !!python/object:os.system {}\n", None),
        ("a: &a [*a]\n", None),
        ("a: 2026-99-99\n", "policy.yaml: not valid YAML: month must be in 1..12"),
        ("a: \x00\n", None),
        ("[" * 800, None),
    ],
    ids=[
        "empty", "list", "open brace", "key twice", "key that is not text", "two documents", "tag that runs code",
        "list that contains itself", "impossible date", "control character", "nesting without end",
    ],
)  # fmt: skip
def test_text_that_is_no_yaml_mapping_is_one_clear_error(directory: Path, text: str, message: str | None) -> None:
    (directory / "policy.yaml").write_text(text)
    with pytest.raises(ConfigError) as raised:
        load(directory)
    assert raised.value.file == "policy.yaml"
    if message is not None:
        assert str(raised.value) == message


def test_bytes_that_are_no_text_are_one_clear_error(directory: Path) -> None:
    (directory / "policy.yaml").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(ConfigError, match=r"^policy\.yaml: cannot be read as UTF-8 text: "):
        load(directory)


def test_an_unknown_key_is_told_before_the_missing_one_that_it_caused(directory: Path, write: Write) -> None:
    entry = {"onpremise": 0.2, "cloud": 0.3}
    write("policy.yaml", ("placement", "quotas", "research"), entry)
    with pytest.raises(ConfigError, match=r"unknown key 'onpremise'; known: cloud, onprem\. Did you mean 'onprem'\?$"):
        load(directory)


def test_a_missing_file_is_named_with_its_directory(directory: Path) -> None:
    (directory / "datasets.yaml").unlink()
    with pytest.raises(ConfigError) as raised:
        load(directory)
    assert str(raised.value) == f"datasets.yaml: no such file in {directory}"


def test_a_missing_directory_is_told_with_the_variable_that_names_it(tmp_path: Path) -> None:
    with pytest.raises(ConfigError) as raised:
        load(tmp_path / "nowhere")
    assert str(raised.value) == (
        f"{tmp_path}/nowhere: no such directory; SPILLWAY_CONFIG_DIR names the one with clusters.yaml"
    )


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
