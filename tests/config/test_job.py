"""A job file becomes a job, and is found by its name."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from decimal import Decimal
from pathlib import Path

import pytest

from spillway.config import configuration_directory, job_file, jobs_directory, load, load_image_uses, load_job
from spillway.errors import ConfigError, UnknownName
from spillway.model import DatasetUse, JobSpec, Priority, StallRule, Tier, TierRule
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
        business_scene: translation
        expected_duration: 1h30m
        longest_duration: 2h
        finish_within: 1d
        checkpoint_interval: 10m
        checkpoint_gib: 14.5
        max_price_per_gpu_hour: 8.5
        grace: PT2M
        stall: {after: 1h, steps: 50}
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
        datasets=(DatasetUse(name="digits"),),
        tier=Tier.PUBLIC,
        latency_sensitive=True,
        spot_ok=True,
        business_scene="translation",
        expected_duration=timedelta(minutes=90),
        longest_duration=timedelta(hours=2),
        finish_within=timedelta(days=1),
        checkpoint_interval=timedelta(minutes=10),
        checkpoint_gib=14.5,
        max_price_per_gpu_hour=Decimal("8.5"),
        grace=timedelta(minutes=2),
        stall=StallRule(after=timedelta(hours=1), steps=50),
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


MIXED = dataset(name="mixed", tier=Tier.CORE, rules=(TierRule(prefix="digits/open/", tier=Tier.PUBLIC),))


def test_a_job_that_reads_the_public_part_alone_is_public_and_so_is_its_image(directory: Path, write: Write) -> None:
    file, declared = write("job.yaml", ("dataset",), "mixed"), {"mixed": MIXED}
    assert load_job(file, declared).tier is Tier.CORE
    file.write_text(file.read_text() + "part: public\n")
    job = load_job(file, declared)
    assert (job.datasets, job.tier) == ((DatasetUse(name="mixed", part=Tier.PUBLIC),), Tier.PUBLIC)
    (file.parent / "jobs").mkdir()
    file.rename(file.parent / "jobs" / "job.yaml")
    (use,) = load_image_uses(file.parent / "jobs", declared)
    assert (use.tier, use.unclear_in) == (Tier.PUBLIC, None)
    (shut,) = load_image_uses(file.parent / "jobs", {"mixed": dataset(name="mixed", tier=Tier.CORE)})
    assert (shut.tier, shut.unclear_in) == (Tier.CORE, "job.yaml")


def test_a_job_of_several_datasets_is_of_the_strictest_tier(directory: Path, write: Write) -> None:
    declared = {**DATASETS, "mixed": MIXED}
    open_part = {"name": "mixed", "part": "public"}
    for listed, tier in ((["digits", "faces"], Tier.CORE), (["digits", open_part], Tier.PUBLIC)):
        file = write("job.yaml", ("datasets",), listed)
        job = load_job(file, declared)
        assert ([use.name for use in job.datasets], job.tier) == (["digits", job.datasets[1].name], tier)
        (folder := file.parent / f"jobs-{tier}").mkdir()
        file.rename(folder / "job.yaml")
        (use,) = load_image_uses(folder, declared)
        assert (use.tier, use.dataset, use.unclear_in) == (tier, None, None)
    assert job.datasets[1] == DatasetUse(name="mixed", part=Tier.PUBLIC)


@pytest.mark.parametrize("listed", ["digits", [["digits"]], ["digits", "nowhere"], [{"name": "digits", "part": ["x"]}]])
def test_an_image_of_a_job_whose_list_of_datasets_is_wrong_counts_as_core(
    directory: Path, write: Write, listed: object
) -> None:
    file = write("job.yaml", ("datasets",), listed)
    (folder := file.parent / "jobs").mkdir()
    file.rename(folder / "job.yaml")
    (use,) = load_image_uses(folder, DATASETS)
    assert (use.tier, use.unclear_in) == (Tier.CORE, "job.yaml")


def test_a_job_may_say_a_part_of_when_it_stalls_or_that_it_never_does(directory: Path, write: Write) -> None:
    assert load_job(write("job.yaml", ("stall",), {"steps": 3}), DATASETS).stall == StallRule(steps=3)
    assert load_job(write("job.yaml", ("stall",), None), DATASETS).stall is None


@pytest.mark.parametrize("name", ["digits", "digits.yaml"])
def test_a_job_file_is_found_by_its_name(name: str) -> None:
    directory = jobs_directory({})
    assert job_file(directory, name) == directory / "digits.yaml"


@pytest.mark.parametrize("name", ["digts", "", "..", "../config/policy", "/etc/passwd"])
def test_a_name_that_is_no_file_of_the_directory_is_unknown(name: str) -> None:
    with pytest.raises(UnknownName, match=r"^unknown job file .*; known: digits"):
        job_file(jobs_directory({}), name)


def test_a_directory_of_job_files_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"/nope: no such directory; SPILLWAY_JOBS_DIR names the one"):
        job_file(tmp_path / "nope", "digits")


def test_the_environment_chooses_the_jobs_directory() -> None:
    assert jobs_directory({"SPILLWAY_JOBS_DIR": "/srv/jobs"}) == Path("/srv/jobs")


def test_every_shipped_job_is_valid() -> None:
    datasets = load(configuration_directory({})).datasets
    examples = Path(__file__).resolve().parents[2] / "docs" / "examples"
    files = [*sorted(jobs_directory({}).glob("*.yaml")), examples / "llm-7b.yaml"]
    jobs = [load_job(file, datasets) for file in files]
    assert [(job.name, job.gpus, job.tier) for job in jobs] == [
        ("digits-long", 1, Tier.PUBLIC),
        ("digits", 1, Tier.PUBLIC),
        ("llm-7b", 16, Tier.PUBLIC),
    ]
