"""A small valid configuration that a test changes in one place."""

from __future__ import annotations

import copy
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

POOL = {
    "name": "a100",
    "gpu_model": "A100",
    "gpu_memory_gib": 80,
    "gpus_per_node": 8,
    "max_nodes": 4,
    "prices_per_gpu_hour": {"owned": 2.5},
}
CLUSTER = {
    "name": "onprem",
    "kind": "onprem",
    "provider": "kubernetes",
    "connection": "onprem_kubernetes",
    "namespace": "training",
    "region": "local",
    "residency": ["core", "public"],
    "link": {"bandwidth_gbps": 10},
    "object_store": {
        "connection": "onprem_store",
        "pod_connection": "onprem_store_pods",
        "dataset_bucket": "datasets",
        "checkpoint_bucket": "checkpoints",
    },
    "registry": {"connection": "onprem_registry"},
    "pools": [POOL],
}
CLOUD = CLUSTER | {
    "name": "cloud",
    "kind": "cloud",
    "residency": ["public"],
    "pools": [POOL | {"name": "h100", "prices_per_gpu_hour": {"on-demand": 8.0}}],
}
FILES = {
    "clusters.yaml": {"clusters": [CLUSTER, CLOUD]},
    "datasets.yaml": {"datasets": [{"name": "digits", "home": "onprem", "prefix": "digits/", "tier": "public"}]},
    "policy.yaml": {
        "placement": {
            "weights": {"qos": 0.7, "cost": 0.15, "affinity": 0.15},
            "quotas": {"research": {"onprem": "20%", "cloud": 0.3}},
            "cloud_access": {"research": {"clusters": ["cloud"], "billing": ["spot"], "dags": ["train*"]}},
        }
    },
}
JOB = {
    "name": "digits",
    "department": "research",
    "priority": "research",
    "image": "train:v1",
    "command": ["digits"],
    "gpus_per_node": 1,
}


def changed(data: Any, path: tuple[str | int, ...], value: Any) -> Any:
    """A copy of the data in which the field at the path has another value; the value ``...`` takes its key away."""
    whole = copy.deepcopy(data)
    inner = whole
    for part in path[:-1]:
        inner = inner[part]
    if value is ...:
        del inner[path[-1]]
    elif isinstance(inner, list) and path[-1] == len(inner):
        inner.append(value)
    else:
        inner[path[-1]] = value
    return whole


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    """A directory with a valid configuration."""
    for name, data in FILES.items():
        (tmp_path / name).write_text(yaml.safe_dump(data))
    return tmp_path


@pytest.fixture
def write(directory: Path) -> Callable[..., Path]:
    """Write a changed copy of one of the valid files (or of the valid job) into the directory."""

    def write_changed(file: str, path: tuple[str | int, ...], value: Any) -> Path:
        target = directory / file
        target.write_text(yaml.safe_dump(changed(FILES.get(file, JOB), path, value)))
        return target

    return write_changed
