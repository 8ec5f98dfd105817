"""``preflight`` on the sandbox: nothing to say of a whole installation, every gap of a broken one."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import yaml

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
        "check the access key and the secret key of Connection 'onprem_store_pods'"
    )
    assert not [gap for gap in gaps if "wrong" in gap["problem"] + gap["fix"]], "a password is never shown"


def test_the_gaps_are_a_table_for_a_person(installation: Installation, spillway: Spillway) -> None:
    installation.connection("cloud_registry", password="wrong")
    answer = spillway("preflight")
    header, line = answer.out.splitlines()
    assert (answer.code, header.split()) == (1, ["CLUSTER", "PART", "PROBLEM", "->", "WHAT", "TO", "DO"])
    assert line.startswith("cloud    registry  ") and line.endswith("password in Connection 'cloud_registry'")


def test_a_provider_of_nodes_that_refuses_its_connection_is_a_gap_of_its_pool(
    installation: Installation, spillway: Spillway
) -> None:
    installation.connection("cloud_machines", password="wrong")
    (gap,) = json.loads(spillway("preflight", "--json").out)
    assert (gap["cluster"], gap["part"]) == ("cloud", "pool gpu")
    assert gap["fix"] == "renew the password of its Connection (its Connection 'cloud_machines')"


def test_a_job_file_that_does_not_say_whether_its_data_may_leave_is_named_with_the_line_it_lacks(
    spillway: Spillway, change_job: Callable[..., None]
) -> None:
    change_job(dataset=None)
    answer = spillway("preflight", "--json")
    (gap,) = json.loads(answer.out)
    assert (answer.code, gap["cluster"], gap["part"], gap["checked"]) == (0, "-", "job file quick.yaml", False)
    assert "says neither `tier:` nor a declared dataset" in gap["problem"] and "`tier: public`" in gap["fix"]


def test_a_job_file_with_a_dataset_that_nobody_declares_is_named_with_the_one_that_may_be_meant(
    spillway: Spillway, change_job: Callable[..., None]
) -> None:
    change_job(dataset="digitz", tier="public")
    (gap,) = json.loads(spillway("preflight", "--json").out)
    assert gap["problem"].startswith("has a mistake, so its data counts as core: unknown dataset 'digitz'; known: ")
    assert "Did you mean 'digits'?" in gap["problem"] and gap["fix"] == "correct it"


def test_while_a_job_file_cannot_be_read_preflight_names_it(jobs: Path, spillway: Spillway) -> None:
    (jobs / "broken.yaml").write_text("name: [")
    answer = spillway("preflight", "--json")
    (gap,) = json.loads(answer.out)
    assert (answer.code, gap["part"]) == (1, "job files")
    assert "broken.yaml: line 1" in gap["problem"] and "every job counts as core" in gap["fix"]


def test_a_store_connection_without_an_endpoint_is_one_gap(installation: Installation, spillway: Spillway) -> None:
    installation.connection("cloud_store_pods", extra="{}")
    answer = spillway("preflight", "--json")
    (gap,) = json.loads(answer.out)
    assert (answer.code, gap["part"]) == (1, "bucket datasets (pods), bucket checkpoints (pods)")
    assert gap["problem"].startswith("Connections: cloud_store_pods.extra.endpoint_url: expected the store's address")
    assert gap["fix"] == "correct Connection 'cloud_store_pods' or the block of this cluster in clusters.yaml"


def test_a_share_of_the_cloud_that_nobody_may_use_and_a_notice_to_nobody_are_gaps(
    installation: Installation, spillway: Spillway
) -> None:
    file, budgets = installation.config / "policy.yaml", installation.config / "budgets.yaml"
    before = file.read_text()
    declared = yaml.safe_load(before)
    del declared["placement"]["cloud_access"]["production"]
    file.write_text(yaml.safe_dump(declared))
    budgets.write_text(yaml.safe_dump({"notices": [{"name": "ops", "email": ["ops@example.org"]}]}))
    try:
        gaps = json.loads(spillway("preflight", "--json").out)
    finally:
        file.write_text(before)
        budgets.unlink()
    assert [(gap["part"], gap["fix"]) for gap in gaps] == [
        ("cloud access", "add it to placement.cloud_access in policy.yaml, or set its cloud share to 0"),
        ("notices to ops/ops@example.org", "create Connection 'smtp_default', or correct its name in budgets.yaml"),
    ]
    assert gaps[0]["problem"] == "'production' has a share of the cloud and may not use it"
