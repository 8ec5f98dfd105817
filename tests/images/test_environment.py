"""What a tag promises, what an image's configuration says, and where the two contradict each other."""

from __future__ import annotations

from typing import Any

import pytest

from spillway.images.environment import Environment

PARSED = {
    "torch2.0.1-cuda11.8-deepspeed0.9.5": {"torch": "2.0.1", "cuda": "11.8", "deepspeed": "0.9.5"},
    "numpy2.4.6-py3.11": {"numpy": "2.4.6", "python": "3.11"},
    "torch2.1.0a1-cuda12.1-python3.10-ubuntu22.04": {
        "torch": "2.1.0a1",
        "cuda": "12.1",
        "python": "3.10",
        "ubuntu": "22.04",
    },
    "jax0.4.30": {"jax": "0.4.30"},
}


@pytest.mark.parametrize("tag", PARSED, ids=str)
def test_a_tag_names_its_environment(tag: str) -> None:
    assert Environment.of_tag(tag).versions == PARSED[tag]


@pytest.mark.parametrize(
    "tag", ["v1", "latest", "2024-05-01", "torch-cuda11.8", "torch2.0--py3.11", "", "Torch2.0", None]
)
def test_a_tag_outside_the_convention_promises_nothing(tag: str | None) -> None:
    assert Environment.of_tag(tag).versions == {}


def config(*variables: str, **labels: str) -> dict[str, Any]:
    return {
        "config": {"Env": list(variables), "Labels": {f"dev.spillway.{name}": text for name, text in labels.items()}}
    }


UBUNTU = {
    "config": {"Labels": {"org.opencontainers.image.ref.name": "ubuntu", "org.opencontainers.image.version": "22.04"}}
}


# tag, configuration, what is wrong
CASES: dict[str, tuple[str, dict[str, Any], list[str]]] = {
    "equal": ("torch2.0.1-cuda11.8", config("CUDA_VERSION=11.8.0", "PYTORCH_VERSION=2.0.1+cu118"), []),
    "another CUDA": ("torch2.0.1-cuda11.8", config("CUDA_VERSION=12.1.1"), ["cuda is 12.1.1, the tag says 11.8"]),
    "our label counts before the base image": ("cuda11.8", config("CUDA_VERSION=12.1", cuda="11.8"), []),
    "another library": (
        "torch2.0.1-deepspeed0.9.5",
        config(**{"library.torch": "2.1.0", "library.deepspeed": "0.9.5"}),
        ["torch is 2.1.0, the tag says 2.0.1"],
    ),
    "no number that only begins alike": (
        "torch2.1",
        config(**{"library.torch": "2.10"}),
        ["torch is 2.10, the tag says 2.1"],
    ),
    "another Python": ("numpy2.4-py3.11", config(python="3.12.1"), ["python is 3.12.1, the tag says 3.11"]),
    "what nobody says is no contradiction": ("torch2.0.1-cuda11.8-flash_attn2.5", config(), []),
    "the operating system": ("cuda11.8-ubuntu22.04", UBUNTU, []),
    "another operating system": (
        "cuda11.8-debian12",
        UBUNTU,
        ["the operating system is ubuntu, the tag says debian"],
    ),
    "odd configurations": ("cuda11.8", {"config": {"Env": None, "Labels": ["x"]}}, []),
    "none at all": ("cuda11.8", {}, []),
}


@pytest.mark.parametrize(("tag", "seen", "wrong"), CASES.values(), ids=CASES.keys())
def test_a_contradiction_is_told_and_nothing_else(tag: str, seen: dict[str, Any], wrong: list[str]) -> None:
    assert list(Environment.of_tag(tag).contradictions(Environment.of_config(seen))) == wrong
