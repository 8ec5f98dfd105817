"""Bytes that left a site are on record, also where they did not arrive."""

from __future__ import annotations

from pathlib import Path

import pytest

from spillway.checkpoints.layout import part_key, sha256_of
from spillway.checkpoints.store import CheckpointStore
from spillway.config import Configuration
from spillway.errors import DigestMismatch
from spillway.ledger import TransferOutcome, ledger_opener
from spillway.model import RunPolicy, Tier
from spillway.registries.digest import digest_of
from spillway.runs.moving_checkpoints import copy_checkpoints
from spillway.runs.moving_datasets import copy_dataset
from spillway.runs.moving_images import copy_image
from spillway.runs.services import Services
from spillway.testing.builders import attempt, cloud_cluster, dataset, onprem_cluster, placement_policy
from spillway.testing.checkpoints import commit_step
from spillway.testing.folder_sites import folder_sites
from spillway.testing.images import put_image
from spillway.testing.ledger_files import new_ledger

LAYER = b"a layer of some length"
PART = b"weights of step 2"


@pytest.fixture
def services(tmp_path: Path) -> Services:
    url = new_ledger(tmp_path / "ledger.db")
    configuration = Configuration(
        clusters={"onprem": onprem_cluster(), "cloud": cloud_cluster()},
        datasets={"digits": dataset()},
        policy=placement_policy(),
        runs=RunPolicy(),
    )
    open_site = folder_sites(tmp_path)
    return Services(
        configuration=configuration, open_ledger=ledger_opener(lambda: url), open_site=open_site, image_uses=tuple
    )


@pytest.fixture
def checkpoints(services: Services) -> CheckpointStore:
    """On premises a run with a step of which one byte has changed on disk."""
    store = CheckpointStore(services.site("onprem").checkpoints, attempt().run)
    store.fence(1)
    commit_step(store, 2, parts={"weights.npy": PART})
    store.store.put(part_key(store.run, sha256_of(PART)), PART.upper(), size_bytes=len(PART))
    return store


def test_a_transfer_that_breaks_off_is_on_record_with_the_bytes_that_left(services: Services, tmp_path: Path) -> None:
    put_image(services.site("onprem").registry, "train", "v1", layer=LAYER)
    blob = tmp_path / "onprem/images/train/blobs/sha256" / digest_of(LAYER).removeprefix("sha256:")
    blob.write_bytes(LAYER.upper())
    with pytest.raises(DigestMismatch):
        copy_image(services, "train", "v1", "cloud", tier=Tier.PUBLIC)
    (line,) = services.ledger.transfers()
    assert line.outcome is TransferOutcome.FAILED
    assert line.size_bytes >= len(LAYER)


def test_parts_that_moved_before_their_step_was_rejected_are_on_record(
    services: Services, checkpoints: CheckpointStore
) -> None:
    copy_checkpoints(services, attempt(), "onprem", "cloud", print)
    (line,) = services.ledger.transfers()
    assert (line.outcome, line.size_bytes) == (TransferOutcome.FAILED, len(PART))
    assert "checkpoint of step 2 is not valid" in str(line.reason)


def test_a_rejected_step_is_on_the_line_of_those_that_were_copied(
    services: Services, checkpoints: CheckpointStore
) -> None:
    commit_step(checkpoints, 4, parts={"weights.npy": PART + PART})
    copy_checkpoints(services, attempt(), "onprem", "cloud", print)
    copy_checkpoints(services, attempt(), "onprem", "cloud", print)
    (line,) = services.ledger.transfers()
    assert (line.outcome, line.name) == (TransferOutcome.COPIED, f"{attempt().run} to step 4")
    assert line.size_bytes == 3 * len(PART)
    assert "checkpoint of step 2 is not valid" in str(line.reason)


@pytest.mark.parametrize(
    ("ending", "reason"),
    [
        pytest.param(SystemExit(143), "it was ended before it was done (SystemExit: 143)", id="killed"),
        pytest.param(KeyboardInterrupt(), "it was ended before it was done (KeyboardInterrupt)", id="interrupted"),
        pytest.param(RuntimeError("a bug"), "RuntimeError: a bug", id="a fault of ours"),
    ],
)
def test_a_transfer_that_was_ended_from_outside_is_on_record(
    services: Services, ending: BaseException, reason: str
) -> None:
    services.site("onprem").datasets.put("digits/a", b"an object", size_bytes=9)

    def end(progress: object) -> None:
        raise ending

    declared = services.configuration.datasets["digits"]
    with pytest.raises(type(ending)):
        copy_dataset(services, declared, "cloud", on_progress=end)
    (line,) = services.ledger.transfers()
    assert (line.outcome, line.reason, line.size_bytes) == (TransferOutcome.FAILED, reason, 9)
