"""The tasks of ``sync_datasets`` one after the other, with what travels between them as Airflow carries it."""

from __future__ import annotations

import json
from collections import defaultdict
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from spillway.config import Configuration
from spillway.ledger import ledger_opener
from spillway.model import RunPolicy, Tier
from spillway.runs.services import Services
from spillway.sync.drafts import OBJECT_BYTES
from spillway.sync.manifest import verified_copies
from spillway.testing.builders import NOW, cloud_cluster, dataset, onprem_cluster, placement_policy
from spillway.testing.folder_sites import folder_sites
from spillway.testing.ledger_files import new_ledger
from spillway_airflow import routines
from spillway_airflow.assets import SYNCED

ROUTE = {"name": "digits", "site": "cloud", "tier": "public"}


class Told:
    """The events of an asset alias."""

    def __init__(self) -> None:
        self.assets: list[str] = []

    def add(self, asset: Any, extra: Any) -> None:
        self.assets.append(asset.uri)


@pytest.fixture
def told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Told:
    url = new_ledger(tmp_path / "ledger.db")
    declared = dataset(tier=Tier.PUBLIC)
    services = Services(
        configuration=Configuration(
            clusters={"onprem": onprem_cluster(), "cloud": cloud_cluster()},
            datasets={"digits": declared},
            policy=placement_policy(),
            runs=RunPolicy(),
        ),
        open_ledger=ledger_opener(lambda: url),
        open_site=folder_sites(tmp_path),
        image_uses=tuple,
        clock=lambda: NOW,
    )
    for number in range(20):
        services.site("onprem").datasets.put(f"digits/{number:02}", b"1", size_bytes=1)
    events: dict[Any, Told] = defaultdict(Told)
    context = {"outlet_events": events, "params": {}}
    monkeypatch.setattr(routines, "worker_services", lambda: services)
    monkeypatch.setattr(routines, "get_current_context", lambda: context)
    small = partial(routines.divide_dataset, share_bytes=5 * OBJECT_BYTES)
    monkeypatch.setattr(routines, "divide_dataset", small)
    monkeypatch.setattr(routines, "PROGRESS_SECONDS", 0.0)
    return events[SYNCED]


def carried(value: Any) -> Any:
    return json.loads(json.dumps(value))


def test_a_large_sync_is_planned_copied_in_shares_and_merged(told: Told, tmp_path: Path) -> None:
    said: list[str] = []

    def say(text: str, *words: object) -> None:
        said.append(text % words)

    planned = carried(routines.run_dataset_route(ROUTE, dry_run=False, verify=False, workers=4, say=say))
    assert (len(planned["shares"]), planned["objects_copied"], told.assets) == (4, 0, [])
    wanted = [{"route": planned["route"], "share": share} for share in planned["shares"]]
    assert [routines.share_name(each) for each in wanted] == [f"digits -> cloud, {n} of 4" for n in (1, 2, 3, 4)]
    assert [routines.run_share(each, say=say)["objects_copied"] for each in wanted] == [5, 5, 5, 5]
    assert any("3 of 5 objects" in line for line in said)
    merged = carried(routines.run_merge(planned, say=say))
    assert (merged["objects_copied"], merged["bytes_copied"], merged["failures"]) == (20, 20, [])
    assert told.assets == ["spillway://datasets/digits"]
    assert verified_copies(routines.worker_services().site("cloud").datasets).keys() == {"digits"}
    again = routines.run_dataset_route(ROUTE, dry_run=False, verify=False, workers=4, say=say)
    assert (again["objects_unchanged"], again["shares"], len(told.assets)) == (20, [], 1)


def test_a_sync_by_one_task_says_how_far_it_is_too(told: Told) -> None:
    said: list[str] = []

    def say(text: str, *words: object) -> None:
        said.append(text % words)

    done = routines.run_dataset_route(ROUTE, dry_run=False, verify=False, workers=1, say=say)
    assert (done["objects_copied"], done["shares"]) == (20, [])
    assert any("3 of 20 objects" in line for line in said)


def test_a_verification_lists_the_destination(told: Told) -> None:
    done = [
        routines.run_dataset_route(ROUTE, dry_run=False, verify=verify, workers=1, say=lambda *words: None)
        for verify in (False, False, True)
    ]
    assert [each["listed_destination"] for each in done] == [True, False, True]


def test_a_dry_run_leaves_no_draft_and_no_share(told: Told) -> None:
    planned = routines.run_dataset_route(ROUTE, dry_run=True, verify=True, workers=4, say=lambda *words: None)
    assert (planned["objects_copied"], planned["shares"], told.assets) == (20, [], [])
    assert not list(routines.worker_services().site("cloud").datasets.list())
