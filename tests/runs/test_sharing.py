"""A sync that several tasks share goes through the door between two sites, step by step."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest

from spillway.config import Configuration
from spillway.errors import ResidencyRefused, SyncIncomplete
from spillway.ledger import TransferOutcome, ledger_opener
from spillway.model import Dataset, RunPolicy, Tier, TierRule
from spillway.runs.services import Services
from spillway.runs.sharing import copy_dataset_share, divide_dataset, merge_dataset
from spillway.sync.drafts import OBJECT_BYTES
from spillway.sync.manifest import verified_copies
from spillway.testing.builders import NOW, cloud_cluster, dataset, onprem_cluster, placement_policy
from spillway.testing.folder_sites import folder_sites
from spillway.testing.ledger_files import new_ledger

MIXED = dataset(tier=Tier.CORE, rules=(TierRule(prefix="digits/open/", tier=Tier.PUBLIC),))
CORE = dataset(tier=Tier.CORE)
OPEN = {f"digits/open/{n:02}" for n in range(20)}


@pytest.fixture
def services(tmp_path: Path) -> Services:
    """Twenty public objects and a core one on premises; a cloud that may store public data only."""
    url = new_ledger(tmp_path / "ledger.db")
    made = Services(
        configuration=Configuration(
            clusters={
                "onprem": onprem_cluster(),
                "cloud": cloud_cluster(residency=frozenset({Tier.PUBLIC})),
            },
            datasets={MIXED.name: MIXED},
            policy=placement_policy(),
            runs=RunPolicy(),
        ),
        open_ledger=ledger_opener(lambda: url),
        open_site=folder_sites(tmp_path),
        image_uses=tuple,
        clock=lambda: NOW,
    )
    for key in OPEN | {"digits/core"}:
        made.site("onprem").datasets.put(key, b"1", size_bytes=1)
    return made


def divided(services: Services, wanted: Dataset = MIXED):
    return divide_dataset(services, wanted, "cloud", workers=4, share_bytes=5 * OBJECT_BYTES)


def test_each_share_is_a_line_of_its_bytes_and_the_merge_one_of_the_whole(services: Services) -> None:
    _, shares = divided(services)
    for share in shares:
        copy_dataset_share(services, MIXED, "cloud", share)
    report = merge_dataset(services, MIXED, "cloud", shares[0].draft)
    assert (report.objects_copied, report.objects_withheld) == (20, 1)
    lines = [(line.outcome, line.size_bytes, line.reason) for line in services.ledger.transfers()]
    assert sorted(lines[: len(shares)], key=str) == [
        (TransferOutcome.COPIED, 5, f"share {number + 1} of 4") for number in range(4)
    ]
    assert [outcome for outcome, *_ in lines[len(shares) :]] == [TransferOutcome.REFUSED, TransferOutcome.UNCHANGED]
    assert sum(size_bytes for _, size_bytes, _ in lines) == report.bytes_copied == 20
    there = services.site("cloud").datasets
    assert ({entry.key for entry in there.list("digits/")}, verified_copies(there).keys()) == (OPEN, {"digits"})


def test_nothing_of_core_data_is_in_any_object_of_a_draft(services: Services, tmp_path: Path) -> None:
    services.site("onprem").datasets.put("digits/canary-5f1c", b"1", size_bytes=1)
    divided(services)
    there = services.site("cloud").datasets
    texts = [(entry.key, b"".join(there.read(entry.key))) for entry in there.list(".spillway/drafts/")]
    plain = b"".join(gzip.decompress(text) if key.endswith(".gz") else text for key, text in texts)
    assert (b"digits/open/07" in plain, b"canary" in plain) == (True, False)


def test_a_share_asks_again_whether_its_objects_may_leave(services: Services) -> None:
    _, shares = divided(services)
    with pytest.raises(ResidencyRefused):
        copy_dataset_share(services, CORE, "cloud", shares[0])
    assert not list(services.site("cloud").datasets.list("digits/"))


def test_a_merge_before_its_shares_is_incomplete_and_may_be_tried_again(services: Services) -> None:
    _, shares = divided(services)
    with pytest.raises(SyncIncomplete, match=r"share 1 of 4 has not ended") as refused:
        merge_dataset(services, MIXED, "cloud", shares[0].draft)
    assert refused.value.retry_helps
    assert services.ledger.transfers()[-1].outcome is TransferOutcome.FAILED
