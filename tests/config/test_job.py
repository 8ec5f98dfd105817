"""A job file becomes a job, and every mistake in it is told with its place and its cure."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from spillway.config import configuration_directory, job_file, jobs_directory, load, load_job
from spillway.errors import ConfigError, UnknownName
from spillway.model import JobSpec, Priority, Tier
from spillway.testing.builders import dataset

Write = Callable[..., Path]

DATASETS = {"digits": dataset(tier=Tier.PUBLIC), "faces": dataset(name="faces", tier=Tier.CORE)}


def test_every_key_of_a_job_file_reaches_the_job(tmp_path: Path) -> None:
    file = tmp_path / "llm.yaml"
    file.write_text(
        """
        name: llm-7b
        department: production
        priority: production-core
        image: train:torch2
        command: [llm, --config, 7b]
        gpus_per_node: 8
        nodes: 2
        gpu_model: H100
        gpu_memory_gib: 80
        cpu_cores: 64
        memory_gib: 512.5
        dataset: digits
        latency_sensitive: true
        spot_ok: true
        expected_duration: 1h30m
        grace: PT2M
        environment: {SPILLWAY_STEPS: "60"}
        pod_overrides: {spec: {priorityClassName: training, tolerations: [{key: gpu}]}}
        """
    )
    assert load_job(file, DATASETS) == JobSpec(
        name="llm-7b",
        department="production",
        priority=Priority.PRODUCTION_CORE,
        image="train:torch2",
        command=("llm", "--config", "7b"),
        gpus_per_node=8,
        nodes=2,
        gpu_model="H100",
        gpu_memory_gib=80,
        cpu_cores=64.0,
        memory_gib=512.5,
        dataset="digits",
        tier=Tier.PUBLIC,
        latency_sensitive=True,
        spot_ok=True,
        expected_duration=timedelta(minutes=90),
        grace=timedelta(minutes=2),
        environment={"SPILLWAY_STEPS": "60"},
        pod_overrides={"spec": {"priorityClassName": "training", "tolerations": [{"key": "gpu"}]}},
    )


@pytest.mark.parametrize(
    ("keys", "tier"),
    [
        ({}, Tier.CORE),
        ({"tier": "public"}, Tier.PUBLIC),
        ({"dataset": "digits"}, Tier.PUBLIC),
        ({"dataset": "faces"}, Tier.CORE),
        ({"dataset": "faces", "tier": "core"}, Tier.CORE),
    ],
    ids=["nothing declared", "own tier", "public dataset", "core dataset", "both alike"],
)
def test_the_tier_is_the_datasets_else_the_jobs_else_core(
    directory: Path, write: Write, keys: dict[str, str], tier: Tier
) -> None:
    file = write("job.yaml", ("grace",), "30s")
    file.write_text(file.read_text() + "".join(f"{key}: {value}\n" for key, value in keys.items()))
    assert load_job(file, DATASETS).tier is tier


MISTAKES = {
    "zero GPUs": ("gpus_per_node", 0, "gpus_per_node", "expected a number of at least 1, got 0"),
    "negative GPUs": ("gpus_per_node", -1, "gpus_per_node", "expected a number of at least 1, got -1"),
    "half a GPU": ("gpus_per_node", 0.5, "gpus_per_node", "expected an integer, got 0.5"),
    "true for a number": ("gpus_per_node", True, "gpus_per_node", "expected an integer, got True"),
    "no nodes": ("nodes", 0, "nodes", "expected a number of at least 1, got 0"),
    "no memory": ("memory_gib", 0, "memory_gib", "expected a number above 0, got 0"),
    "infinite CPUs": ("cpu_cores", float("inf"), "cpu_cores", "expected a finite number, got inf"),
    "an unknown priority": (
        "priority",
        "reserch",
        "priority",
        "unknown priority 'reserch'; known: customer-service, exploration, production-core, production-regular, "
        "research. Did you mean 'research'?",
    ),
    "an unknown dataset": (
        "dataset",
        "digit",
        "dataset",
        "unknown dataset 'digit'; known: digits, faces. Did you mean 'digits'?",
    ),
    "a dataset of another tier": (
        "pod_overrides",
        ...,
        "tier",
        "the dataset 'faces' is of tier 'core' in datasets.yaml, got 'public'; leave the key out",
    ),
    "a command in one text": ("command", "digits --fast", "command", "expected a list, got 'digits --fast'"),
    "an empty command": ("command", [], "command", "expected at least 1 entry, got an empty list"),
    "a number in the command": ("command", ["sleep", 5], "command[1]", "expected text, got 5; put it in quotes"),
    "an empty image": ("image", "", "image", "expected text that is not empty, got ''"),
    "a word for a flag": ("spot_ok", "maybe", "spot_ok", "expected true or false, got 'maybe'"),
    "a grace without a unit": (
        "grace",
        30,
        "grace",
        "expected a duration such as '30s', '10m', '2h' or 'PT30S', got 30",
    ),
    "an environment of numbers": (
        "environment",
        {"STEPS": 60},
        "environment.STEPS",
        "expected text, got 60; put it in quotes",
    ),
    "a name that is no DNS label": (
        "name",
        "my_job",
        "name",
        "expected text that matches ^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?$, got 'my_job'",
    ),
}


@pytest.mark.parametrize(("key", "value", "path", "problem"), MISTAKES.values(), ids=MISTAKES.keys())
def test_a_mistake_is_told_with_its_place_and_cure(write: Write, key: str, value: Any, path: str, problem: str) -> None:
    if value is ...:
        file = write("job.yaml", ("dataset",), "faces")
        file.write_text(file.read_text() + "tier: public\n")
    else:
        file = write("job.yaml", (key,), value)
    with pytest.raises(ConfigError) as raised:
        load_job(file, DATASETS)
    assert (raised.value.file, raised.value.path, raised.value.problem) == ("job.yaml", path, problem)


def test_a_key_with_a_typo_is_told_with_the_one_that_was_meant(write: Write) -> None:
    file = write("job.yaml", ("gpu_per_node",), 1)
    with pytest.raises(ConfigError, match=r"unknown key 'gpu_per_node'; .* Did you mean 'gpus_per_node'\?$"):
        load_job(file, {})


def test_overrides_that_are_no_json_are_refused(write: Write) -> None:
    file = write("job.yaml", ("grace",), "30s")
    file.write_text(file.read_text() + "pod_overrides: {spec: {since: 2026-01-01}}\n")
    with pytest.raises(ConfigError, match=r"^job\.yaml: pod_overrides\.spec.*: expected plain JSON data, got "):
        load_job(file, {})


def test_overrides_that_contain_themselves_are_refused(write: Write) -> None:
    file = write("job.yaml", ("grace",), "30s")
    file.write_text(file.read_text() + "pod_overrides: &all {spec: *all}\n")
    with pytest.raises(ConfigError, match=r"^job\.yaml: pod_overrides"):
        load_job(file, {})


@pytest.mark.parametrize("name", ["digits", "digits.yaml"])
def test_a_job_file_is_found_by_its_name(name: str) -> None:
    directory = jobs_directory({})
    assert job_file(directory, name) == directory / "digits.yaml"


@pytest.mark.parametrize("name", ["digts", "", "..", "../config/policy", "/etc/passwd"])
def test_a_name_that_is_no_file_of_the_directory_is_unknown(name: str) -> None:
    with pytest.raises(UnknownName, match=r"^unknown job file .*; known: digits"):
        job_file(jobs_directory({}), name)


def test_the_environment_chooses_the_jobs_directory() -> None:
    assert jobs_directory({"SPILLWAY_JOBS_DIR": "/srv/jobs"}) == Path("/srv/jobs")


def test_every_shipped_job_is_valid() -> None:
    datasets = load(configuration_directory({})).datasets
    examples = Path(__file__).resolve().parents[2] / "docs" / "examples"
    files = [*sorted(jobs_directory({}).glob("*.yaml")), examples / "llm-7b.yaml"]
    jobs = [load_job(file, datasets) for file in files]
    assert [(job.name, job.gpus, job.tier) for job in jobs] == [("digits", 1, Tier.PUBLIC), ("llm-7b", 16, Tier.PUBLIC)]
