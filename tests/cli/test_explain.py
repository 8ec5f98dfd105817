"""``explain``: the decision of now, and decisions of the past from their stored inputs."""

from __future__ import annotations

import dataclasses
import json
import re
from decimal import Decimal
from pathlib import Path

import pytest
import yaml
from sqlalchemy import update

from spillway.config import load_job
from spillway.ledger.schema import decisions
from spillway.placement.rules import RULES
from spillway.runs.admission import admit
from spillway.runs.services import Services
from spillway.testing.command_line import Spillway
from spillway.testing.sandbox_server import Installation

RUN = "quick-0123456789-1"


@pytest.fixture
def placed(services: Services, jobs: Path) -> str:
    """A run with one reserved attempt."""
    job = load_job(jobs / "quick.yaml", services.configuration.datasets)
    services.ledger.open_run(RUN, job, {"test": RUN}, services.clock())
    attempt, _ = admit(services, RUN, job)
    assert attempt is not None
    return RUN


def test_a_job_is_explained_and_nothing_is_reserved(spillway: Spillway, services: Services) -> None:
    answer = spillway("explain", "quick")
    assert answer.code == 0
    assert "placed on onprem/gpu/owned" in answer.out.splitlines()[0]
    assert "weights: qos 0.7, cost 0.15, affinity 0.15" in answer.out.splitlines()
    assert "would run on onprem/gpu (owned)" in answer.out.splitlines()
    assert (services.ledger.runs(), services.ledger.reservations()) == ((), ())


def test_a_program_reads_the_decision_and_its_table(spillway: Spillway) -> None:
    answer = spillway("explain", "quick.yaml", "--json")
    found = json.loads(answer.out)
    assert found["decision"]["chosen"] == {"cluster": "onprem", "pool": "gpu", "billing": "owned"}
    assert [(row["candidate"], row["verdict"]) for row in found["table"]] == [
        ("onprem/gpu/owned", "chosen"),
        ("cloud/gpu/on-demand", "fits"),
        ("cloud/gpu/spot", "never"),
    ]


@pytest.mark.parametrize("words", [("explain", "quick"), ("runs", "start", "quick", "--dry-run")])
def test_a_wrong_connection_is_told_as_what_no_waiting_corrects(
    spillway: Spillway, installation: Installation, words: tuple[str, ...]
) -> None:
    for site in ("onprem", "cloud"):
        installation.connection(f"{site}_registry", schema="htps")
    answer = spillway(*words)
    assert answer.code == 1
    assert "misconfigured: cannot be asked until this is corrected: registry onprem: url: expected http" in answer.out
    assert answer.out.endswith("\nwould wait until the configuration is corrected\n")


def test_a_job_file_anywhere_is_explained_by_its_path(spillway: Spillway, jobs: Path) -> None:
    assert spillway("explain", str(jobs / "quick.yaml")).code == 0


def test_a_stored_decision_is_rebuilt_exactly(spillway: Spillway, placed: str) -> None:
    answer = spillway("explain", "--run", placed)
    assert answer.code == 0
    assert answer.out.startswith("attempt 1\njob 'quick-")
    assert "decided again from the stored inputs: equals the stored decision" in answer.out
    found = json.loads(spillway("explain", "--run", placed, "--attempt", "1", "--json").out)
    assert [(entry["attempt"], entry["rebuilt_equals_stored"]) for entry in found] == [(1, True)]


def test_a_decision_that_does_not_follow_from_its_inputs_is_told(
    spillway: Spillway, services: Services, placed: str
) -> None:
    record = services.ledger.decisions(placed)[0]
    other = dataclasses.replace(record.policy, weights={"cost": Decimal(1)})
    with services.ledger.engine.begin() as connection:
        connection.execute(update(decisions).values(policy=other))
    answer = spillway("explain", "--run", placed)
    assert answer.code == 1
    assert "DIFFERS from the stored decision" in answer.out


def test_a_decision_of_other_rules_is_shown_as_it_was_stored_and_not_called_different(
    spillway: Spillway, services: Services, placed: str
) -> None:
    record = services.ledger.decisions(placed)[0]
    other = dataclasses.replace(record.policy, weights={"cost": Decimal(1)})
    earlier = dataclasses.replace(record.decision, rules=RULES - 1)
    with services.ledger.engine.begin() as connection:
        connection.execute(update(decisions).values(policy=other, decision=earlier))
    answer = spillway("explain", "--run", placed, "--why-not", "cloud")
    assert answer.code == 0
    assert f"shown as it was stored: rules {RULES - 1} decided, and these are rules {RULES}" in answer.out
    assert "cloud: not known, no row of it was stored" in answer.out
    [entry] = json.loads(spillway("explain", "--run", placed, "--json").out)
    assert entry["rebuilt_equals_stored"] is None
    assert [verdict["candidate"]["cluster"] for verdict in entry["decision"]["verdicts"]] == ["onprem"]
    assert entry["inputs"]["weights"] == "qos 0, cost 1, affinity 0"


def test_a_run_shows_what_its_table_was_worked_out_from(spillway: Spillway, placed: str) -> None:
    shown = spillway("explain", "--run", placed).out
    assert "\nweights: qos 0.7, cost 0.15, affinity 0.15\nprices: of unknown age: cloud/gpu\n" in shown
    assert re.search("\ndata: digits, [^\n]*, verified to be whole at [^\n]*onprem", shown)
    [entry] = json.loads(spillway("explain", "--run", placed, "--json").out)
    assert entry["inputs"]["weights"] == "qos 0.7, cost 0.15, affinity 0.15"


def test_why_not_there_is_answered_for_now_and_for_a_run(spillway: Spillway, placed: str) -> None:
    lines = [
        "cloud/gpu/on-demand: fits, and its total",
        "cloud/gpu/spot: is out: interruption: may not be interrupted (spot_ok is false)",
    ]
    for asked in (("quick",), ("--run", placed)):
        answer = spillway("explain", *asked, "--why-not", "cloud")
        assert answer.code == 0
        assert [line for line in lines if line not in answer.out] == []
        assert "placed on" not in answer.out
    told = json.loads(spillway("explain", "quick", "--why-not", "cloud", "--json").out)["why_not"]
    assert told[1] == lines[1]


def test_a_job_of_a_dag_is_explained_as_that_dag_would_be_answered(
    spillway: Spillway, installation: Installation
) -> None:
    policy = yaml.safe_load((installation.config / "policy.yaml").read_text())
    policy["placement"]["cloud_access"]["research"] = {"clusters": "all", "billing": ["on-demand"], "dags": ["train_*"]}
    (installation.config / "policy.yaml").write_text(yaml.safe_dump(policy))
    denied = "cloud-access: for 'research' only DAGs train_* may use it, this is asked by no DAG"
    assert denied in spillway("explain", "quick", "--why-not", "cloud").out
    assert "cloud/gpu/on-demand: fits" in spillway("explain", "quick", "--dag", "train_nlp", "--why-not", "cloud").out
    with pytest.raises(SystemExit):
        spillway("explain", "--run", RUN, "--dag", "train_nlp")


@pytest.mark.parametrize("asked", [("quick",), ("--run", RUN)], ids=["now", "a run"])
def test_a_cluster_that_is_misspelt_is_met_with_the_close_one(
    spillway: Spillway, placed: str, asked: tuple[str, ...]
) -> None:
    answer = spillway("explain", *asked, "--why-not", "clout")
    assert (answer.code, answer.err) == (
        1,
        "spillway: unknown cluster 'clout'; known: cloud, onprem. Did you mean 'cloud'?\n",
    )


def test_an_attempt_that_was_never_made_is_named_with_those_that_were(spillway: Spillway, placed: str) -> None:
    answer = spillway("explain", "--run", placed, "--attempt", "7")
    assert (answer.code, answer.err) == (1, f"spillway: attempt '7' is not in run '{placed}'; its attempts: 1\n")


def test_a_run_that_is_misspelt_is_met_with_the_close_one(spillway: Spillway, placed: str) -> None:
    answer = spillway("explain", "--run", placed[:-1])
    assert (answer.code, answer.err) == (
        1,
        f"spillway: run '{placed[:-1]}' is not in the ledger; did you mean '{placed}'?\n",
    )
