"""What ``clusters.yaml`` says of the nodes that come and go."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from spillway.config import load
from spillway.errors import ConfigError
from spillway.model import ScaledBy

POOL = ("clusters", 0, "pools", 0)
EKS = {"provider": "eks", "connection": "aws", "cluster": "training", "node_group": "gpu"}


@pytest.mark.parametrize(
    ("written", "declared"),
    [
        pytest.param(None, None, id="nothing"),
        pytest.param(
            {**EKS, "min_nodes": 1, "boot_allowance": "20m"},
            ScaledBy(
                provider="eks",
                connection="aws",
                cluster="training",
                node_group="gpu",
                min_nodes=1,
                boot_allowance=timedelta(minutes=20),
            ),
            id="a node group",
        ),
        pytest.param({"provider": "placeholders"}, ScaledBy(provider="placeholders"), id="placeholders"),
        pytest.param(
            {"provider": "placeholders", "image": "registry/pause:1"},
            ScaledBy(provider="placeholders", image="registry/pause:1"),
            id="placeholders of an image",
        ),
    ],
)
def test_a_pool_says_what_scales_it(
    directory: Path, write: Any, written: dict[str, Any] | None, declared: ScaledBy | None
) -> None:
    if written is not None:
        write("clusters.yaml", (*POOL, "scaled_by"), written)
    assert next(iter(load(directory).clusters.values())).pools[0].scaled_by == declared


@pytest.mark.parametrize(
    ("written", "path", "problem"),
    [
        pytest.param(
            {**EKS, "provider": "esk"},
            ".scaled_by.provider",
            "unknown provider of nodes 'esk'; known: eks, placeholders, sandbox. Did you mean 'eks'?",
            id="an unknown provider",
        ),
        pytest.param(
            {"provider": "eks", "connection": "aws", "cluster": "training"},
            ".scaled_by",
            "node_group is missing, which provider 'eks' needs",
            id="no group",
        ),
        pytest.param(
            {"provider": "placeholders", "connection": "aws"},
            ".scaled_by",
            "connection is not for provider 'placeholders'; leave it out",
            id="a word of another provider",
        ),
        pytest.param(
            {**EKS, "min_nodes": 100}, "", "scaled_by.min_nodes is 100, and max_nodes is 4", id="more than at most"
        ),
        pytest.param(
            {**EKS, "boot_allowance": "0s"},
            ".scaled_by.boot_allowance",
            "expected a duration above 0, got '0s'",
            id="no time to boot",
        ),
    ],
)
def test_a_mistake_is_told_with_its_place(
    directory: Path, write: Any, written: dict[str, Any], path: str, problem: str
) -> None:
    write("clusters.yaml", (*POOL, "scaled_by"), written)
    with pytest.raises(ConfigError) as raised:
        load(directory)
    assert (raised.value.path, raised.value.problem) == (f"clusters[0].pools[0]{path}", problem)


def test_a_pool_without_gpus_is_not_scaled(directory: Path, write: Any) -> None:
    pool = {
        "name": "cpu",
        "gpus_per_node": 0,
        "cpu_cores_per_node": 32,
        "memory_gib_per_node": 128,
        "max_nodes": 2,
        "node_selector": {"pool": "cpu"},
        "prices_per_core_hour": {"owned": 0.05},
        "scaled_by": EKS,
    }
    write("clusters.yaml", POOL, pool)
    with pytest.raises(ConfigError, match=r"scaled_by is for pools with GPUs, and gpus_per_node is 0: .* leave it out"):
        load(directory)
