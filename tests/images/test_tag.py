"""Environments named by tags."""

from __future__ import annotations

import pytest

from spillway.images.tag import EnvironmentTag

PARSED = {
    "torch2.0.1-cuda11.8-deepspeed0.9.5": EnvironmentTag(
        libraries={"torch": "2.0.1", "deepspeed": "0.9.5"}, cuda="11.8"
    ),
    "numpy2.4.6-py3.11": EnvironmentTag(libraries={"numpy": "2.4.6"}, python="3.11"),
    "torch2.1.0a1-cuda12.1-python3.10-ubuntu22.04": EnvironmentTag(
        libraries={"torch": "2.1.0a1"}, cuda="12.1", python="3.10", operating_system=("ubuntu", "22.04")
    ),
    "jax0.4.30": EnvironmentTag(libraries={"jax": "0.4.30"}),
}


@pytest.mark.parametrize("tag", PARSED, ids=str)
def test_a_tag_names_its_environment(tag: str) -> None:
    assert EnvironmentTag.parse(tag) == PARSED[tag]


@pytest.mark.parametrize("tag", ["v1", "latest", "2024-05-01", "torch-cuda11.8", "torch2.0--py3.11", "", "Torch2.0"])
def test_a_tag_outside_the_convention_promises_nothing(tag: str) -> None:
    assert EnvironmentTag.parse(tag) is None


@pytest.mark.parametrize("tag", ["torch2.0.1-deepspeed0.9.5-cuda11.8", "numpy2.4.6-py3.11", "jax0.4.30-debian12"])
def test_an_environment_is_written_as_its_tag(tag: str) -> None:
    assert str(EnvironmentTag.parse(tag)) == tag
