"""Every mistake in the declared files is told with its place and its cure."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from spillway.config import load
from spillway.errors import ConfigError

Write = Callable[..., Path]

CLUSTER = ("clusters", 0)
POOL = (*CLUSTER, "pools", 0)


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
        "clusters[0].pools[0]",
        "gpu_model is not for a pool without GPUs (gpus_per_node: 0); leave it out",
    ),
    "negative nodes": (
        "clusters.yaml",
        (*POOL, "max_nodes"),
        -2,
        "clusters[0].pools[0].max_nodes",
        "expected a number of at least 1, got -2",
    ),
    "a cache among checkpoints": (
        "clusters.yaml",
        (*CLUSTER, "object_store", "cache_bucket"),
        "checkpoints",
        "clusters[0].object_store.cache_bucket",
        "the bucket 'checkpoints' has the datasets or the checkpoints of cluster 'onprem'; name one that has nothing "
        "else, or leave the key out",
    ),
    "a cache that pods have no identity for": (
        "clusters.yaml",
        (*CLUSTER, "object_store", "cache_bucket"),
        "cache",
        "clusters[0].object_store.cache_connection",
        "expected it beside cache_bucket: a bucket, and an identity for pods that reaches that bucket alone",
    ),
    "an identity for a cache that there is not": (
        "clusters.yaml",
        (*CLUSTER, "object_store", "cache_connection"),
        "onprem_cache",
        "clusters[0].object_store.cache_bucket",
        "expected it beside cache_connection: a bucket, and an identity for pods that reaches that bucket alone",
    ),
    "a key with a typo": (
        "clusters.yaml",
        (*POOL, "max_node"),
        4,
        "clusters[0].pools[0]",
        "unknown key 'max_node'; known: cpu_cores_per_node, fixed_cost_per_month, gpu_memory_gib, gpu_model, "
        "gpu_share, gpus_per_node, max_nodes, memory_gib_per_node, name, node_selector, off_peak, prices_as_of, "
        "prices_per_core_hour, prices_per_gpu_hour, reserved, scaled_by. Did you mean 'max_nodes'?",
    ),
    "a day that is none": (
        "clusters.yaml",
        (*POOL, "prices_as_of"),
        "yesterday",
        "clusters[0].pools[0].prices_as_of",
        "expected a day such as 2026-11-30, got 'yesterday'",
    ),
    "a part of a GPU that is a whole one": (
        "clusters.yaml",
        (*POOL, "gpu_share"),
        {"resource": "nvidia.com/gpu.shared", "per_gpu": 1, "memory_gib": 80},
        "clusters[0].pools[0].gpu_share.per_gpu",
        "expected a number of at least 2, got 1",
    ),
    "a pool of cores that says no cores": (
        "clusters.yaml",
        POOL,
        {"name": "cpu", "gpus_per_node": 0, "max_nodes": 2, "prices_per_core_hour": {"owned": 0.05}},
        "clusters[0].pools[0]",
        "cpu_cores_per_node is missing, which a pool without GPUs (gpus_per_node: 0) needs",
    ),
    "a price of cores where there are GPUs": (
        "clusters.yaml",
        (*POOL, "prices_per_core_hour"),
        {"owned": 0.05},
        "clusters[0].pools[0]",
        "prices_per_core_hour is not for a pool with GPUs; leave it out",
    ),
    "a pool without a model": (
        "clusters.yaml",
        (*POOL, "gpu_model"),
        ...,
        "clusters[0].pools[0]",
        "gpu_model is missing, which a pool with GPUs needs",
    ),
    "off-peak hours in another notation": (
        "clusters.yaml",
        (*POOL, "off_peak"),
        {"hours": 1320, "time_zone": "UTC"},
        "clusters[0].pools[0].off_peak.hours",
        "expected hours of a day such as 22:00-06:00, got 1320",
    ),
    "off-peak hours of a zone that is none": (
        "clusters.yaml",
        (*POOL, "off_peak"),
        {"hours": "22:00-06:00", "time_zone": "Europe/Berln"},
        "clusters[0].pools[0].off_peak.time_zone",
        "expected a time zone such as 'Europe/Berlin' or 'UTC', got 'Europe/Berln'. Did you mean 'Europe/Berlin'?",
    ),
    "off-peak hours that are dearer": (
        "clusters.yaml",
        (*POOL, "off_peak"),
        {"hours": "22:00-06:00", "time_zone": "UTC", "prices_per_hour": {"owned": 3}},
        "clusters[0].pools[0]",
        "off_peak.prices_per_hour.owned is 3, and the usual one is 2.5; expected at most that",
    ),
    "an off-peak price of a billing type without a usual one": (
        "clusters.yaml",
        (*POOL, "off_peak"),
        {"hours": "22:00-06:00", "time_zone": "UTC", "prices_per_hour": {"spot": 1}},
        "clusters[0].pools[0]",
        "off_peak.prices_per_hour.spot is 1, and there is no usual one; expected at most that",
    ),
    "a contract without a price": (
        "clusters.yaml",
        (*POOL, "reserved"),
        {"gpus": 8},
        "clusters[0].pools[0]",
        "reserved needs the price 'reserved' in prices_per_gpu_hour",
    ),
    "a contract that is paid by the month and by the hour": (
        "clusters.yaml",
        POOL,
        {
            "name": "a100",
            "gpu_model": "A100",
            "gpu_memory_gib": 80,
            "gpus_per_node": 8,
            "max_nodes": 4,
            "prices_per_gpu_hour": {"reserved": 5},
            "reserved": {"gpus": 8, "cost_per_month": 100},
        },
        "clusters[0].pools[0]",
        "reserved.cost_per_month is of GPUs that are paid for; without `paid: true` each hour of them is paid by its "
        "price",
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
    "cloud access of an unknown department": (
        "policy.yaml",
        ("placement", "cloud_access", "sales"),
        {"clusters": "all", "billing": ["spot"]},
        "placement.cloud_access.sales",
        "unknown department 'sales'; known: research",
    ),
    "cloud access to an unknown cluster": (
        "policy.yaml",
        ("placement", "cloud_access", "research", "clusters"),
        ["clouds"],
        "placement.cloud_access.research.clusters",
        "unknown cluster 'clouds'; known: cloud, onprem. Did you mean 'cloud'?",
    ),
    "cloud access to no list": (
        "policy.yaml",
        ("placement", "cloud_access", "research", "clusters"),
        "cloud",
        "placement.cloud_access.research.clusters",
        "expected 'all' or a list of clusters, got 'cloud'",
    ),
    "cloud access by no billing type": (
        "policy.yaml",
        ("placement", "cloud_access", "research", "billing"),
        ["sport"],
        "placement.cloud_access.research.billing[0]",
        "unknown billing type 'sport'; known: on-demand, owned, reserved, spot. Did you mean 'spot'?",
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
    "a retention that keeps nothing": (
        "policy.yaml",
        ("checkpoints",),
        {"retention": {"last": 0}},
        "checkpoints.retention.last",
        "expected a number of at least 1, got 0",
    ),
    "an iteration of more days than February has": (
        "policy.yaml",
        ("iteration",),
        {"days": 29},
        "iteration.days",
        "expected a number of days from 1 to 28, or 'ISO week', got 29",
    ),
    "an iteration of no number of days": (
        "policy.yaml",
        ("iteration",),
        {"days": True},
        "iteration.days",
        "expected a number of days from 1 to 28, or 'ISO week', got True",
    ),
    "an iteration in a zone that is misspelled": (
        "policy.yaml",
        ("iteration",),
        {"time_zone": "Europe/Berlyn"},
        "iteration.time_zone",
        "expected a time zone such as 'Europe/Berlin' or 'UTC', got 'Europe/Berlyn'. Did you mean 'Europe/Berlin'?",
    ),
    "a policy of another version": (
        "policy.yaml",
        ("version",),
        2,
        "",
        "the file says version 2, and this release reads 1; bring its keys to those of include/config/policy.yaml, "
        "or use the release that it was written for",
    ),
    "a preset that is misspelled": (
        "policy.yaml",
        ("scaling",),
        {"preset": "thirfty"},
        "scaling.preset",
        "unknown preset 'thirfty'; known: default, s0, s2, thrifty. Did you mean 'thrifty'?",
    ),
    "a preset that is no word": (
        "policy.yaml",
        ("scaling",),
        {"preset": ["s0"]},
        "scaling.preset",
        "unknown preset '['s0']'; known: default, s0, s2, thrifty",
    ),
    "numbers of another preset": (
        "policy.yaml",
        ("scaling",),
        {"preset": "s0", "steps": {"queue": 3}},
        "scaling",
        "steps is for s2, not for preset 's0'; leave it out",
    ),
    "a target utilisation of 0": (
        "policy.yaml",
        ("scaling",),
        {"preset": "s0", "utilisation": {"target": 0}},
        "scaling.utilisation",
        "expected a target above 0, got 0",
    ),
    "a target that would shrink what it grew": (
        "policy.yaml",
        ("scaling",),
        {"preset": "s0", "utilisation": {"target": "30%"}},
        "scaling.utilisation",
        "expected in_below < target <= out_above, got 0.3, 0.3, 0.8",
    ),
    "a utilisation in percent without the sign": (
        "policy.yaml",
        ("scaling",),
        {"preset": "s2", "steps": {"out_from": 85}},
        "scaling.steps.out_from",
        "expected a share between 0 and 1, or 0% and 100%, got 85",
    ),
    "a smallest step that is larger than the largest": (
        "policy.yaml",
        ("scaling",),
        {"preset": "s2", "steps": {"least": 12}},
        "scaling.steps",
        "expected 1 <= least <= most, got 12 and 10",
    ),
    "a hold time without a unit": (
        "policy.yaml",
        ("scaling",),
        {"idle_release": 10},
        "scaling.idle_release",
        "expected a duration such as '30s', '10m', '2h' or 'PT30S', got 10",
    ),
    "release hours in a zone that is misspelled": (
        "policy.yaml",
        ("scaling",),
        {"release_hours": {"hours": "02:00-06:00", "time_zone": "Europe/Berlyn"}},
        "scaling.release_hours.time_zone",
        "expected a time zone such as 'Europe/Berlin' or 'UTC', got 'Europe/Berlyn'. Did you mean 'Europe/Berlin'?",
    ),
    "release hours that never begin": (
        "policy.yaml",
        ("scaling",),
        {"release_hours": {"hours": "02:00-02:00", "time_zone": "UTC"}},
        "scaling.release_hours.hours",
        "expected hours of a day such as 22:00-06:00, got '02:00-02:00'",
    ),
    "a window at a pool without its cluster": (
        "policy.yaml",
        ("scaling",),
        {"window": {"pool": "h100"}},
        "scaling.window.pool",
        "expected a pool as cluster/pool, got 'h100'",
    ),
    "a window at a pool that nothing scales": (
        "policy.yaml",
        ("scaling",),
        {"window": {"pool": "cloud/h100"}},
        "scaling.window.pool",
        "unknown pool 'cloud/h100'; known: none (those that declare scaled_by in clusters.yaml)",
    ),
    "a key of scaling that there is not": (
        "policy.yaml",
        ("scaling",),
        {"forecast": {"quantil": 0.9}},
        "scaling.forecast",
        "unknown key 'quantil'; known: ahead, quantile. Did you mean 'quantile'?",
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


def test_an_unknown_key_is_told_before_the_missing_one_that_it_caused(directory: Path, write: Write) -> None:
    entry = {"onpremise": 0.2, "cloud": 0.3}
    write("policy.yaml", ("placement", "quotas", "research"), entry)
    with pytest.raises(ConfigError, match=r"unknown key 'onpremise'; known: cloud, onprem\. Did you mean 'onprem'\?$"):
        load(directory)
