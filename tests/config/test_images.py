"""The repositories that are mirrored, as ``images.yaml`` declares them."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

from spillway.config import load
from spillway.errors import ConfigError
from spillway.model import MirroredRepository, Tier

BASE: Mapping[str, Any] = {"repository": "train/base", "tier": "public"}


def declare(directory: Path, *entries: Mapping[str, Any]) -> None:
    (directory / "images.yaml").write_text(yaml.safe_dump({"images": list(entries)}))


def test_an_installation_without_the_file_mirrors_the_images_of_its_jobs_only(directory: Path) -> None:
    assert load(directory).repositories == {}


def test_a_repository_is_declared_with_its_rules(directory: Path) -> None:
    rules = {"tags": ["torch2.*"], "exclude": ["*-dev"], "sites": ["cloud"], "platforms": ["linux/arm64/v8"]}
    declare(directory, BASE | rules | {"signatures": False, "move_tags": True, "delete": True}, {"repository": "eval"})
    assert load(directory).repositories == {
        "train/base": MirroredRepository(
            repository="train/base",
            tags=("torch2.*",),
            exclude=("*-dev",),
            tier=Tier.PUBLIC,
            sites=("cloud",),
            platforms=("linux/arm64/v8",),
            signatures=False,
            move_tags=True,
            delete=True,
        ),
        "eval": MirroredRepository(repository="eval", tier=Tier.CORE),
    }


MISTAKES: Mapping[str, tuple[Mapping[str, Any], str, str]] = {
    "a tag in the name": ({"repository": "train:v1"}, "images[0].repository", "without host and tag, got 'train:v1'"),
    "a host in the name": ({"repository": "ghcr.io:443/train"}, "images[0].repository", "without host and tag"),
    "no pattern at all": ({"tags": []}, "images[0].tags", "expected at least 1 entry, got an empty list"),
    "a pattern of something else": ({"tags": ["v1", "v 2"]}, "images[0].tags[1]", "got 'v 2'"),
    "a text for a list": ({"tags": "v*"}, "images[0].tags", "expected a list, got 'v*'"),
    "a platform without its system": ({"platforms": ["amd64"]}, "images[0].platforms[0]", "got 'amd64'"),
    "a word for a flag": ({"delete": "yes please"}, "images[0].delete", "expected true or false"),
    "an unknown key": ({"tag": ["v1"]}, "images[0]", "Did you mean 'tags'?"),
    "an unknown site": ({"sites": ["clod"]}, "images[0].sites[0]", "Did you mean 'cloud'?"),
    "a site that may not hold it": (
        {"tier": "core", "sites": ["cloud"]},
        "images[0].sites[0]",
        "is of tier 'core', which the residency of cluster 'cloud' in clusters.yaml does not allow",
    ),
}


@pytest.mark.parametrize(("fields", "path", "problem"), MISTAKES.values(), ids=MISTAKES.keys())
def test_a_mistake_is_told_with_its_place(directory: Path, fields: Mapping[str, Any], path: str, problem: str) -> None:
    declare(directory, {**BASE, **fields})
    with pytest.raises(ConfigError) as raised:
        load(directory)
    assert (raised.value.file, raised.value.path) == ("images.yaml", path)
    assert problem in raised.value.problem


def test_a_repository_is_declared_once(directory: Path) -> None:
    declare(directory, BASE, BASE)
    with pytest.raises(ConfigError, match=r"images.yaml: images: 'train/base' is declared twice"):
        load(directory)
