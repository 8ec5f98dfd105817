"""``preflight`` on the sandbox: nothing to say of a whole installation, every gap of a broken one."""

from __future__ import annotations

import json

from spillway.testing.command_line import Spillway
from spillway.testing.sandbox_server import Installation


def test_a_whole_installation_has_no_gaps(spillway: Spillway) -> None:
    answer = spillway("preflight")
    assert (answer.code, answer.out) == (0, "no gaps: runs can start on every declared cluster\n")


def test_every_gap_is_named_with_what_to_do(installation: Installation, spillway: Spillway) -> None:
    connections = json.loads(installation.connections.read_text())
    del connections["cloud_kubernetes"]
    connections["cloud_registry"]["password"] = "wrong"
    connections["onprem_store"]["password"] = "wrong"
    connections["onprem_store_pods"]["login"] = "nobody"
    connections["spillway_ledger"]["extra"] = json.dumps({"url": "sqlite:////nowhere/ledger.db"})
    installation.connections.write_text(json.dumps(connections))
    answer = spillway("preflight", "--json")
    gaps = json.loads(answer.out)
    assert answer.code == 1
    assert [(gap["cluster"], gap["part"]) for gap in gaps] == [
        ("-", "ledger"),
        ("onprem", "bucket datasets"),
        ("onprem", "bucket checkpoints"),
        ("cloud", "cluster"),
        ("cloud", "registry"),
        ("onprem", "bucket datasets (pods)"),
        ("onprem", "bucket checkpoints (pods)"),
    ]
    fixes = {(gap["cluster"], gap["part"]): gap["fix"] for gap in gaps}
    assert fixes["-", "ledger"] == "python -m spillway ledger upgrade, or correct Connection 'spillway_ledger'"
    assert fixes["cloud", "cluster"] == "create Connection 'cloud_kubernetes', or correct its name in clusters.yaml"
    assert fixes["onprem", "bucket datasets (pods)"].startswith(
        "correct the credentials of Connection 'onprem_store_pods'"
    )
    assert not [gap for gap in gaps if "wrong" in gap["problem"] + gap["fix"]], "a password is never shown"


def test_the_gaps_are_a_table_for_a_person(installation: Installation, spillway: Spillway) -> None:
    installation.connection("cloud_registry", password="wrong")
    answer = spillway("preflight")
    header, line = answer.out.splitlines()
    assert (answer.code, header.split()) == (1, ["CLUSTER", "PART", "PROBLEM", "->", "WHAT", "TO", "DO"])
    assert (
        line.startswith("cloud    registry  ") and "-> correct the credentials of Connection 'cloud_registry'" in line
    )
