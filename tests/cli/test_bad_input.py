"""Wrong names, files, sizes and passwords: one message on standard error, exit 1, nothing changed."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from spillway.ledger import TransferOutcome
from spillway.runs.services import Services
from spillway.testing.command_line import Spillway
from spillway.testing.sandbox_server import Installation


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """One thing that is wrong, the words of the command, and what the message must say."""

    words: tuple[str, ...] = ("runs", "start", "quick", "--poll-seconds", "0.2")
    job: dict[str, Any] = field(default_factory=dict)
    connection: str | None = None
    message: str


CASES = {
    "unknown cluster": Case(
        words=("sync", "digits", "clowd"),
        message="unknown cluster 'clowd'; known: cloud, onprem. Did you mean 'cloud'?",
    ),
    "unknown dataset": Case(
        words=("sync", "digit", "cloud"), message="unknown dataset 'digit'; known: digits. Did you mean 'digits'?"
    ),
    "unknown job": Case(words=("runs", "start", "quik"), message="Did you mean 'quick'?"),
    "a job file with a typo": Case(job={"gpus_per_nod": 1}, message="quick.yaml: unknown key 'gpus_per_nod'; known: "),
    "fewer GPUs than none": Case(
        job={"gpus_per_node": -1}, message="quick.yaml: gpus_per_node: expected a number of at least 0, got -1"
    ),
    "no GPUs where every pool has some": Case(
        job={"gpus_per_node": 0}, message="can never be placed: no declared pool can hold it\n"
    ),
    "more GPUs on a node than any pool has": Case(
        job={"gpus_per_node": 64}, message="can never be placed: no declared pool can hold it\n"
    ),
    "more nodes than any pool has": Case(
        job={"nodes": 100}, message="can never be placed: no declared pool can hold it\n"
    ),
    "missing dataset": Case(
        job={"dataset": "digit"},
        message="quick.yaml: dataset: unknown dataset 'digit'; known: digits. Did you mean 'digits'?",
    ),
    "unknown image tag": Case(
        job={"image": "train:numpy2.4.6-py3.12"},
        message="image 'train:numpy2.4.6-py3.12' is not in ",
    ),
    "an image without a tag": Case(job={"image": "train"}, message="quick.yaml: image: expected a tag or a digest"),
    "unknown image tag to mirror": Case(
        words=("images", "sync", "train:none", "cloud", "--tier", "public"), message="image 'train:none' is not in "
    ),
    "a repository that nobody declared": Case(
        words=("images", "sync", "trian"), message="unknown repository of images.yaml 'trian'; known: none"
    ),
    "wrong S3 password": Case(connection="onprem_store", message="refused the credentials"),
    "wrong registry password": Case(connection="onprem_registry", message="refused the credentials"),
}


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_bad_input_is_one_message_and_changes_nothing(
    case: Case,
    installation: Installation,
    spillway: Spillway,
    services: Services,
    change_job: Callable[..., None],
) -> None:
    change_job(**case.job)
    if case.connection:
        installation.connection(case.connection, password="not the password")
    answer = spillway(*case.words)
    assert answer.code == 1
    assert answer.err.startswith("spillway: ") and case.message in answer.err
    assert "Traceback" not in answer.out + answer.err
    assert "not the password" not in answer.out + answer.err
    assert (services.ledger.reservations(), services.ledger.costs()) == ((), ())
    assert {line.outcome for line in services.ledger.transfers()} <= {TransferOutcome.UNCHANGED, TransferOutcome.FAILED}
    assert [line for line in services.ledger.transfers() if line.size_bytes] == []
    ours = services.ledger.installation()
    assert [services.site(site).client.owned(ours) for site in ("onprem", "cloud")] == [(), ()]


@pytest.mark.parametrize("words", [("explain", "quick"), ("runs", "start", "quick")], ids=lambda words: words[0])
def test_a_job_that_fits_nowhere_shows_the_table(
    spillway: Spillway, change_job: Callable[..., None], words: tuple[str, ...]
) -> None:
    change_job(gpus_per_node=64)
    answer = spillway(*words)
    assert answer.code == 1
    rows = [line.split() for line in (answer.out + answer.err).splitlines() if "/gpu/" in line]
    assert sorted(row[0] for row in rows if "never" in row) == [
        "cloud/gpu/on-demand",
        "cloud/gpu/spot",
        "onprem/gpu/owned",
    ]


def test_a_full_ledger_disk_is_one_message(
    installation: Installation, spillway: Spillway, full_disk: Path, services: Services
) -> None:
    ledger = json.dumps({"url": f"sqlite:///{full_disk / 'ledger.db'}"})
    installation.connection("spillway_ledger", extra=ledger)
    answer = spillway("ledger", "upgrade")
    assert answer.code == 1
    assert answer.err.startswith("spillway: ledger ") and "its disk is full" in answer.err
    assert answer.err.count("\n") == 1
