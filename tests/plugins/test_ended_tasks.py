"""A task that Airflow ends in the middle of a copy ends at once and is on record."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from spillway.codec import encode
from spillway.config import Configuration
from spillway.errors import Unreachable
from spillway.ledger import TransferOutcome, ledger_opener
from spillway.model import Cluster, Link, RunPolicy, Tier
from spillway.runs.distribution import Route
from spillway.runs.links import BYTES_PER_GIGABIT
from spillway.runs.services import Services
from spillway.testing.builders import cloud_cluster, dataset, onprem_cluster, placement_policy
from spillway.testing.folder_sites import folder_sites
from spillway.testing.ledger_files import new_ledger
from spillway.testing.polling import eventually
from spillway_airflow import routines
from spillway_airflow.failures import typed_failures

CONTENT = bytes(40 << 20)
SLOW = Link(bandwidth_gbps=1e6 / BYTES_PER_GIGABIT)
"""The copy would take forty seconds."""


@pytest.fixture
def killed() -> Iterator[list[int]]:
    """The signals that Airflow's own handler was given, which calls the task's ``on_kill``."""
    seen: list[int] = []
    before = signal.signal(signal.SIGTERM, lambda number, frame: seen.append(number))
    yield seen
    signal.signal(signal.SIGTERM, before)


@pytest.fixture
def services(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Services:
    """A dataset of one large object, and a slow link."""
    url = new_ledger(tmp_path / "ledger.db")

    def slow(cluster: Cluster) -> Cluster:
        return replace(cluster, link=SLOW)

    made = Services(
        configuration=Configuration(
            clusters={"onprem": slow(onprem_cluster()), "cloud": slow(cloud_cluster())},
            datasets={"digits": dataset(tier=Tier.PUBLIC)},
            policy=placement_policy(),
            runs=RunPolicy(),
        ),
        open_ledger=ledger_opener(lambda: url),
        open_site=folder_sites(tmp_path),
        image_uses=tuple,
    )
    made.site("onprem").datasets.put("digits/a", CONTENT, size_bytes=len(CONTENT))
    monkeypatch.setattr(routines, "worker_services", lambda: made)
    return made


def test_a_task_that_is_ended_in_the_middle_of_a_copy_leaves_it_and_writes_its_failure(
    services: Services, killed: list[int], tmp_path: Path
) -> None:
    drafts = tmp_path / "cloud/datasets/.spillway-local"

    def end_it() -> None:
        eventually(lambda: list(drafts.glob("*.draft")))
        os.kill(os.getpid(), signal.SIGTERM)

    threading.Thread(target=end_it, daemon=True).start()
    route = encode(Route(name="digits", site="cloud", tier=Tier.PUBLIC))
    with pytest.raises(SystemExit) as ended:
        routines.run_dataset_route(route, dry_run=False, verify=False, workers=1, say=lambda *words: None)
    assert (ended.value.code, killed) == (143, [signal.SIGTERM])
    (line,) = services.ledger.transfers()
    assert (line.outcome, line.reason) == (
        TransferOutcome.FAILED,
        "it was ended before it was done (SystemExit: 143)",
    )
    assert line.size_bytes < len(CONTENT)
    eventually(lambda: not list(drafts.glob("*.draft")))  # the thread that was left behind tidies up, too
    assert services.site("cloud").datasets.head("digits/a") is None, "it went on reading for a task that has ended"


def test_an_on_kill_that_fails_does_not_keep_the_task(killed: list[int]) -> None:
    def fail(number: int, frame: object) -> None:
        raise Unreachable("the ledger", "connection refused")

    signal.signal(signal.SIGTERM, fail)
    with pytest.raises(SystemExit), typed_failures():
        os.kill(os.getpid(), signal.SIGTERM)
        eventually(lambda: False, seconds=10)


def test_after_its_block_a_task_has_the_handler_of_airflow_again(killed: list[int]) -> None:
    before = signal.getsignal(signal.SIGTERM)
    with typed_failures():
        assert signal.getsignal(signal.SIGTERM) is not before
    assert signal.getsignal(signal.SIGTERM) is before
