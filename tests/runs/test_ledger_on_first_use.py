"""The ledger is opened by what it is to record: what moves nothing needs none, and nothing moves without one."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from spillway.config import Configuration
from spillway.errors import ConfigError, ResidencyRefused, SpillwayError
from spillway.ledger import Ledger, TransferKind, TransferOutcome, ledger_opener, upgrade
from spillway.model import MirroredRepository, RunPolicy, Tier
from spillway.runs.links import LinkShare
from spillway.runs.moving_datasets import copy_dataset
from spillway.runs.moving_images import copy_image, copy_repository
from spillway.runs.services import Services
from spillway.testing.builders import NOW, cloud_cluster, dataset, onprem_cluster, placement_policy
from spillway.testing.folder_sites import folder_sites
from spillway.testing.images import put_image

DATASET = dataset(tier=Tier.PUBLIC)
REPOSITORY = MirroredRepository(repository="base", tier=Tier.PUBLIC)


@pytest.fixture
def services(tmp_path: Path) -> Services:
    """A home with a dataset and an image, and a cloud site for public data; the ledger is not made yet."""
    made = Services(
        configuration=Configuration(
            clusters={"onprem": onprem_cluster(), "cloud": cloud_cluster(residency=frozenset({Tier.PUBLIC}))},
            datasets={DATASET.name: DATASET},
            policy=placement_policy(),
            runs=RunPolicy(),
            repositories={"base": REPOSITORY},
        ),
        open_ledger=ledger_opener(lambda: f"sqlite:///{tmp_path}/ledger.db"),
        open_site=folder_sites(tmp_path),
        image_uses=tuple,
        clock=lambda: NOW,
    )
    made.site("onprem").datasets.put("digits/a", b"1", size_bytes=1)
    put_image(made.site("onprem").registry, "base", "v1", layer=b"one")
    return made


def move_dataset(services: Services) -> None:
    copy_dataset(services, DATASET, "cloud")


def move_repository(services: Services) -> None:
    copy_repository(services, REPOSITORY, "cloud")


def move_image(services: Services) -> None:
    copy_image(services, "base", "v1", "cloud", tier=Tier.PUBLIC)


@pytest.mark.parametrize("move", [move_dataset, move_repository, move_image])
def test_nothing_moves_while_the_ledger_cannot_be_opened(services: Services, move: Callable[[Services], None]) -> None:
    with pytest.raises(ConfigError, match="ledger upgrade"):
        move(services)
    cloud = services.site("cloud")
    assert (list(cloud.datasets.list()), cloud.registry.tags("base")) == ([], ())


@pytest.mark.parametrize("move", [move_dataset, move_repository])
def test_what_moves_nothing_opens_no_ledger(
    services: Services, tmp_path: Path, move: Callable[[Services], None]
) -> None:
    upgrade(f"sqlite:///{tmp_path}/ledger.db")
    move(services)
    assert [line.outcome for line in services.ledger.transfers()] == [TransferOutcome.COPIED]

    def none() -> Ledger:
        raise AssertionError("the ledger was opened")

    move(replace(services, open_ledger=none))
    assert len(services.ledger.transfers()) == 1


def test_a_refusal_that_cannot_be_recorded_is_no_success(services: Services, tmp_path: Path) -> None:
    core = replace(DATASET, tier=Tier.CORE)
    with pytest.raises(ConfigError, match="ledger upgrade"):
        copy_dataset(services, core, "cloud")
    upgrade(f"sqlite:///{tmp_path}/ledger.db")
    with pytest.raises(ResidencyRefused):
        copy_dataset(services, core, "cloud")
    assert [line.outcome for line in services.ledger.transfers()] == [TransferOutcome.REFUSED]


def test_no_byte_takes_its_turn_on_a_link_before_the_ledger_is_open(services: Services, tmp_path: Path) -> None:
    share = LinkShare(services, TransferKind.IMAGE, services.cluster("cloud"))
    with pytest.raises(SpillwayError, match="ledger upgrade"):
        share.take(1)
    assert share.moved_bytes == 0
    upgrade(f"sqlite:///{tmp_path}/ledger.db")
    share.take(1)
    assert share.moved_bytes == 1


def test_the_ledger_is_opened_once(tmp_path: Path) -> None:
    upgrade(f"sqlite:///{tmp_path}/ledger.db")
    asked: list[str] = []

    def url() -> str:
        asked.append(f"sqlite:///{tmp_path}/ledger.db")
        return asked[-1]

    opened = ledger_opener(url)
    assert asked == []
    assert opened() is opened()
    assert len(asked) == 1
