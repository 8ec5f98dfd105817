"""The opt-in that lets pods of other sites read a core dataset at its home, and what is wrong with one."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from spillway.config import load, load_image_uses
from spillway.errors import ConfigError
from spillway.model import Tier
from spillway.sandbox.settings import INCLUDE

READ = {"connection": "onprem_faces"}
FACES = {"name": "faces", "home": "onprem", "prefix": "faces/", "tier": "core"}


def declared(folder: Path, *datasets: dict[str, Any]) -> Path:
    """The project's own configuration with these datasets."""
    for name in ("clusters.yaml", "policy.yaml"):
        (folder / name).write_text((INCLUDE / "config" / name).read_text())
    (folder / "datasets.yaml").write_text(yaml.safe_dump({"datasets": list(datasets)}))
    return folder


def test_it_is_off_unless_a_connection_is_named(tmp_path: Path) -> None:
    assert load(declared(tmp_path, FACES)).datasets["faces"].remote_read is None
    assert load(declared(tmp_path, FACES | {"remote_read": READ})).datasets["faces"].remote_read == "onprem_faces"


@pytest.mark.parametrize(
    ("datasets", "problem"),
    [
        pytest.param([FACES | {"remote_read": True}], r"datasets\[0\]\.remote_read: .*mapping", id="no connection"),
        pytest.param(
            [FACES | {"cache": {"connection": "key", "max_gib": 1}}],
            r"datasets\[0\]\.remote_read: the dataset 'faces' is read at no other site",
            id="a cache of what nobody may read",
        ),
        pytest.param(
            [FACES | {"remote_read": READ, "cache": {"connection": "key", "max_gib": 0}}],
            r"datasets\[0\]\.cache\.max_gib",
            id="a cache without room",
        ),
        pytest.param(
            [FACES | {"tier": "public", "remote_read": READ}],
            r"datasets\[0\]\.remote_read: the dataset 'faces' is public and is copied to other sites",
            id="public",
        ),
        pytest.param(
            [FACES | {"remote_read": READ}, FACES | {"name": "vault", "prefix": "faces/vault/"}],
            r"datasets\[0\]\.remote_read: the dataset 'faces' holds the core dataset 'vault'",
            id="another core dataset inside",
        ),
    ],
)
def test_an_opt_in_that_cannot_be_meant_is_refused(tmp_path: Path, datasets: list[Any], problem: str) -> None:
    with pytest.raises(ConfigError, match=problem):
        load(declared(tmp_path, *datasets))


@pytest.mark.parametrize(("said", "tier"), [("public", Tier.PUBLIC), ("core", Tier.CORE), ("pubic", Tier.CORE)])
def test_a_job_file_may_say_of_the_image_itself_what_it_was_made_of(tmp_path: Path, said: str, tier: Tier) -> None:
    datasets = load(declared(tmp_path, FACES)).datasets
    jobs = tmp_path / "jobs"
    jobs.mkdir()
    (jobs / "job.yaml").write_text(f"image: train:v1\ndataset: faces\nimage_tier: {said}\n")
    (use,) = load_image_uses(jobs, datasets)
    assert (use.tier, use.unclear_in) == (tier, "job.yaml" if said == "pubic" else None)


@pytest.mark.parametrize(("part", "dataset"), [("", "faces"), ("part: public\n", None)])
def test_a_job_that_reads_the_public_part_alone_reads_nothing_over_the_link(
    tmp_path: Path, part: str, dataset: str | None
) -> None:
    (tmp_path / "job.yaml").write_text(f"image: train:v1\ndataset: faces\n{part}")
    (use,) = load_image_uses(tmp_path, {})
    assert use.dataset == dataset
