"""``transfers``: what was moved and what was refused, by whom, filtered."""

from __future__ import annotations

import getpass
import json
import socket

import pytest
import yaml

from spillway.testing.command_line import Spillway
from spillway.testing.sandbox_server import Installation

ME = f"{getpass.getuser()}@{socket.gethostname()}"


@pytest.fixture
def moved(installation: Installation, spillway: Spillway) -> None:
    """One copied dataset with a withheld folder, one refused dataset and one refused image."""
    declared = [
        {"name": "digits", "home": "onprem", "prefix": "digits/", "tier": "public"},
        {"name": "faces", "home": "onprem", "prefix": "faces/", "tier": "core"},
        {"name": "one-digit", "home": "onprem", "prefix": "digits/one/", "tier": "core"},
    ]
    (installation.config / "datasets.yaml").write_text(yaml.safe_dump({"datasets": declared}))
    services = installation.services()
    data, cloud = services.site("onprem").datasets, services.site("cloud").datasets
    cloud.delete([entry.key for entry in cloud.list()])
    data.put("digits/one/1", b"core", size_bytes=4)
    try:
        answer = spillway("sync", "digits", "cloud")
        assert (answer.code, answer.out.endswith("; 0 unchanged; 1 withheld\n")) == (0, True)
    finally:
        data.delete(["digits/one/1"])
    assert spillway("sync", "faces", "cloud").code == 1
    assert spillway("images", "sync", "train:numpy2.4.6-py3.11", "cloud", "--tier", "core").code == 1


def shown(spillway: Spillway, *words: str) -> list[tuple[str, str, str]]:
    answer = spillway("transfers", "--json", *words)
    assert answer.code == 0
    return [(line["name"], line["tier"], line["outcome"]) for line in json.loads(answer.out)]


WITHHELD, COPIED = ("digits", "core", "refused"), ("digits", "public", "copied")
FACES, IMAGE = ("faces", "core", "refused"), ("train:numpy2.4.6-py3.11", "core", "refused")


def test_every_transfer_and_refusal_is_listed_with_who_and_how(moved: None, spillway: Spillway) -> None:
    answer = spillway("transfers")
    header, withheld, copied, faces, image = (line.split("  ") for line in answer.out.splitlines())
    assert header[0].strip() == "AT (UTC)"
    for row, outcome in ((withheld, "refused"), (copied, "copied"), (faces, "refused"), (image, "refused")):
        assert {"onprem -> cloud", outcome, ME} <= {cell.strip() for cell in row}
    assert withheld[-1] == "1 object of tier 'core' kept at 'onprem', 'cloud' may not store that tier"
    data = json.loads(spillway("transfers", "--json").out)
    assert [(line["tls"], line["objects_withheld"], line["objects_copied"]) for line in data] == [
        (False, 1, None),
        (False, None, 8),
        (None, None, None),
        (None, None, None),
    ]
    assert data[1]["seconds"] > 0


def test_the_log_is_filtered(moved: None, spillway: Spillway) -> None:
    filtered = {
        "": [WITHHELD, COPIED, FACES, IMAGE],
        "--dataset digits": [WITHHELD, COPIED],
        "--outcome refused": [WITHHELD, FACES, IMAGE],
        "--tier public": [COPIED],
        "--site cloud --limit 2": [FACES, IMAGE],
        "--site elsewhere": [],
        "--run no-such-run": [],
        "--dataset digits --tier core": [WITHHELD],
    }
    assert {words: shown(spillway, *words.split()) for words in filtered} == filtered
