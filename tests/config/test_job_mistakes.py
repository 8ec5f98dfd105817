"""Every mistake in a job file is told with its place and its cure."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from spillway.config import load_job
from spillway.errors import ConfigError
from spillway.model import Tier
from spillway.testing.builders import dataset

Write = Callable[..., Path]

DATASETS = {"digits": dataset(tier=Tier.PUBLIC), "faces": dataset(name="faces", tier=Tier.CORE)}


MISTAKES = {
    "a silence that is shorter than words are apart": (
        "stall",
        {"after": "30s"},
        "stall.after",
        "expected a duration of at least 2m, got '30s'; `stall: null` switches it off",
    ),
    "negative GPUs": ("gpus_per_node", -1, "gpus_per_node", "expected a number of at least 0, got -1"),
    "half a GPU": ("gpus_per_node", 0.5, "gpus_per_node", "expected an integer, got 0.5"),
    "a whole part of a GPU": (
        "gpu_fraction",
        1,
        "gpu_fraction",
        "expected a part of one GPU, such as 0.5 or 1/2, got 1; gpus_per_node is for whole ones",
    ),
    "a part too small to count": (
        "gpu_fraction",
        0.0004,
        "gpu_fraction",
        "expected a part of one GPU, such as 0.5 or 1/2, got 0.0004; gpus_per_node is for whole ones",
    ),
    "true for a number": ("gpus_per_node", True, "gpus_per_node", "expected an integer, got True"),
    "no nodes": ("nodes", 0, "nodes", "expected a number of at least 1, got 0"),
    "no memory": ("memory_gib", 0, "memory_gib", "expected a number above 0, got 0"),
    "more memory than there is": (
        "memory_gib",
        1.0e308,
        "memory_gib",
        "expected a number of at most 100000, got 1e+308",
    ),
    "more nodes than there are": ("nodes", 10**12, "nodes", "expected a number of at most 100000, got 1000000000000"),
    "a grace that ends after the calendar": (
        "grace",
        "999999999d",
        "grace",
        "expected a duration of at most 3650d, got '999999999d'",
    ),
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
    "an image without a tag": (
        "image",
        "train",
        "image",
        "expected a tag or a digest, such as 'train:v1', got 'train'",
    ),
    "a word for a flag": ("spot_ok", "maybe", "spot_ok", "expected true or false, got 'maybe'"),
    "a grace without a unit": (
        "grace",
        30,
        "grace",
        "expected a duration such as '30s', '10m', '2h' or 'PT30S', got 30",
    ),
    "an empty scene": ("business_scene", "", "business_scene", "expected text that is not empty, got ''"),
    "a price of nothing": ("max_price_per_gpu_hour", 0, "max_price_per_gpu_hour", "expected a price above 0, got 0"),
    "a negative price": (
        "max_price_per_gpu_hour",
        -2.5,
        "max_price_per_gpu_hour",
        "expected an amount of at least 0, got -2.5",
    ),
    "a price that is no number": (
        "max_price_per_gpu_hour",
        float("nan"),
        "max_price_per_gpu_hour",
        "expected an amount of at least 0, got nan",
    ),
    "a deadline without a duration": (
        "finish_within",
        "2h",
        "finish_within",
        "needs expected_duration beside it: nobody can tell when it has to begin otherwise",
    ),
    "a checkpoint of nothing": ("checkpoint_gib", 0, "checkpoint_gib", "expected a number above 0, got 0"),
    "checkpoints all the time": (
        "checkpoint_interval",
        "0s",
        "checkpoint_interval",
        "expected a duration above 0, got '0s'",
    ),
    "an environment of numbers": (
        "environment",
        {"STEPS": 60},
        "environment.STEPS",
        "expected text, got 60; put it in quotes",
    ),
    "a variable that no process can have": (
        "environment",
        {"A=B": "60"},
        "environment.A=B",
        "expected text that matches ^[-._a-zA-Z][-._a-zA-Z0-9]*$, got 'A=B'",
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


@pytest.mark.parametrize(
    ("dataset", "part", "path", "problem"),
    [
        ("faces", "public", "part", "the dataset 'faces' has no public part: no rule in datasets.yaml makes an object"),
        ("digits", "core", "part", "expected 'public', got 'core': a job that may read core objects reads all"),
        ("digits", "open/", "part", "expected 'public', got 'open/': a job that may read core"),
        (None, "public", "part", "is of a dataset, and the job names none; name it as `dataset`, or leave this out"),
        ("digits", "public", "tier", "the public part of the dataset 'digits' is of tier 'public' in datasets.yaml"),
    ],
)
def test_a_part_that_there_is_not_is_told(
    write: Write, dataset: str | None, part: str, path: str, problem: str
) -> None:
    file = write("job.yaml", ("dataset",), dataset)
    own = "tier: core\n" if path == "tier" else ""
    file.write_text(f"{file.read_text()}part: {part}\n{own}")
    with pytest.raises(ConfigError) as raised:
        load_job(file, DATASETS)
    assert (raised.value.file, raised.value.path) == ("job.yaml", path)
    assert raised.value.problem.startswith(problem)


@pytest.mark.parametrize(
    ("listed", "more", "path", "problem"),
    [
        (
            ["digits", "digit"],
            "",
            "datasets[1]",
            "unknown dataset 'digit'; known: digits, faces. Did you mean 'digits'?",
        ),
        (["digits", "faces", "digits"], "", "datasets", "'digits' is declared twice ([0] and [2]); names are unique"),
        ([], "", "datasets", "expected at least 1 entry, got an empty list"),
        ("digits", "", "datasets", "expected a list, got 'digits'"),
        (["digits", {"name": "faces", "part": "public"}], "", "datasets[1].part", "the dataset 'faces' has no public"),
        (["digits"], "dataset: faces", "datasets", "stands beside `dataset`, which names the only one"),
        (["digits"], "part: public", "part", "is of a dataset, and the job names none"),
        (["digits", "faces"], "tier: public", "tier", "the dataset 'faces' is of tier 'core' in datasets.yaml"),
    ],
)
def test_a_list_of_datasets_that_cannot_be_meant_is_told(
    write: Write, listed: Any, more: str, path: str, problem: str
) -> None:
    file = write("job.yaml", ("datasets",), listed)
    file.write_text(f"{file.read_text()}{more}\n")
    with pytest.raises(ConfigError) as raised:
        load_job(file, DATASETS)
    assert (raised.value.file, raised.value.path) == ("job.yaml", path)
    assert raised.value.problem.startswith(problem)


def test_the_longest_duration_is_not_shorter_than_the_expected_one(write: Write) -> None:
    file = write("job.yaml", ("longest_duration",), "2h")
    assert load_job(file, DATASETS).longest_duration == timedelta(hours=2)
    file.write_text(file.read_text() + "finish_within: 1h59m\n")
    with pytest.raises(ConfigError, match=r"finish_within: .* got 1:59:00, but it trains for 2:00:00"):
        load_job(file, DATASETS)
    file.write_text(file.read_text().replace("finish_within: 1h59m", "expected_duration: 2h1s"))
    with pytest.raises(ConfigError, match=r"longest_duration: .* got 2:00:00, which is shorter than expected_duration"):
        load_job(file, DATASETS)


@pytest.mark.parametrize(
    ("escape", "shown"), [(r"\0", r"\x00"), (r"\ud800", r"\ud800")], ids=["NUL", "half a character"]
)
@pytest.mark.parametrize(
    "line", ['environment: {{NOTE: "{0}"}}', 'command: ["{0}"]', 'pod_overrides: {{spec: {{"{0}": x}}}}']
)
def test_text_that_no_process_can_be_given_is_refused(write: Write, line: str, escape: str, shown: str) -> None:
    file = write("job.yaml", ("command",), ...)
    file.write_text(f"{line.format('a' + escape)}\n{file.read_text()}")
    with pytest.raises(ConfigError) as raised:
        load_job(file, {})
    assert raised.value.path.startswith("line 1, column ")
    assert f"expected text without NUL and halves of characters, got 'a{shown}'" in raised.value.problem


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
