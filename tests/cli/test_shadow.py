"""``shadow``: a candidate beside the decisions that a ledger has."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path

import pytest
import yaml

from spillway.__main__ import main
from spillway.ledger.values import Decide
from spillway.model import PlacementDecision, PlacementPolicy, Snapshot
from spillway.placement.context import index
from spillway.placement.policy import choose
from spillway.scaling.presets import DEFAULT
from spillway.testing.builders import cluster_state, job_spec, onprem_cluster, placement_policy, snapshot
from spillway.testing.elastic import idle_node, pool_use, scaling_look, scaling_snapshot
from spillway.testing.installed import Installed, install
from spillway.testing.ledger_values import reserve

MINUTE, HOUR = timedelta(minutes=1), timedelta(hours=1)
CLOUD_ONLY = snapshot(cluster_state(onprem_cluster(), nodes=()), snapshot().clusters[1])
LIVE = placement_policy()
JOB = job_spec(gpus_per_node=4)


@pytest.fixture
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Installed:
    """A run was placed in the cloud an hour ago, and another one two days ago; a node idled then for 7 minutes."""
    made = install(tmp_path / "installed", monkeypatch)
    monkeypatch.setenv("SPILLWAY_CONNECTIONS", str(made.settings.connections))
    now = datetime.now(UTC)
    for run, at in (("old", now - 48 * HOUR), ("new", now - HOUR)):
        reserve(
            made.ledger, run, JOB, now=at, seen=replace(CLOUD_ONLY, taken_at=at), policy=LIVE, decide=deciding(LIVE)
        )
        idles = replace(idle_node("a"), idle_since=at - 7 * MINUTE)
        look = scaling_look(scaling_snapshot(pool_use(idles), taken_at=at), replace(DEFAULT, idle_release=HOUR))
        made.ledger.note_look(look, every=MINUTE, remembered=HOUR)
    return made


def deciding(policy: PlacementPolicy) -> Decide:
    def decide(whole: Snapshot) -> PlacementDecision:
        return choose(JOB, index(whole, policy))

    return decide


@pytest.fixture
def candidate(installed: Installed) -> Path:
    """The policy of the installation, by which research may not use the cloud."""
    file = installed.settings.config / "shadow.yaml"
    written = yaml.safe_load((installed.settings.config / "policy.yaml").read_text())
    written["placement"]["cloud_access"].pop("research")
    written["scaling"] = {"preset": "default", "idle_release": "5m"}
    file.write_text(yaml.safe_dump(written))
    return file


def test_what_a_candidate_takes_otherwise_is_told_of_the_last_day_or_as_long_as_is_asked(
    candidate: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["shadow", str(candidate)]) == 0
    said = capsys.readouterr().out
    assert "(UTC): 1, of which the candidate takes 1 otherwise: 1 waits" in said
    placed, scaled = said.split("\n\n")
    assert placed.endswith("placed on cloud/h100/on-demand  waits, nothing fits now  -")
    assert "(UTC): 1; at 1 the candidate wants other numbers of nodes" in scaled
    assert scaled.rstrip().endswith("reactive: 1 fewer: idle for 5 min or longer")
    assert main(["shadow", str(candidate), "--since", "3d", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["compared"], [one["run"] for one in found["differences"]]) == (2, ["old", "new"])
    assert {one["live_per_hour"] for one in found["differences"]} == {str(Decimal("8.0") * 4)}
    assert (found["scaling"]["compared"], found["scaling"]["pools"]) == (2, {"cloud/h100": {"more": 0, "fewer": 2}})
    assert [(one["live"], one["candidate"], one["per_hour"]) for one in found["scaling"]["differences"]] == [
        (1, 0, "-64.0")
    ] * 2


def test_the_policy_in_force_is_left_as_it_is(installed: Installed, candidate: Path) -> None:
    config = installed.settings.config
    before = {file.name: file.read_bytes() for file in config.iterdir()}
    assert main(["shadow", str(candidate)]) == 0
    assert {file.name: file.read_bytes() for file in config.iterdir()} == before
    assert [record.policy for record in installed.ledger.decisions("new")] == [LIVE]


@pytest.mark.parametrize(
    ("written", "told"),
    [
        pytest.param(None, "spillway: shadow.yaml: no such file in", id="no file"),
        pytest.param({"version": 9}, "version 9, and this release reads 1", id="another version"),
        pytest.param(
            {"placement": {"weights": {"qos": 1}, "quotas": {}, "cloud_access": {"nlp": {"clusters": "all"}}}},
            "shadow.yaml: placement.cloud_access.nlp",
            id="a department that is not there",
        ),
    ],
)
def test_a_candidate_that_cannot_be_read_is_one_message(
    written: object, told: str, candidate: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    if written is None:
        candidate.unlink()
    else:
        candidate.write_text(yaml.safe_dump(written))
    assert main(["shadow", str(candidate)]) == 1
    said = capsys.readouterr()
    assert told in said.err
    assert (said.err.count("\n"), said.out) == (1, "")
