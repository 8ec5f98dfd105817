"""``costs``: what a month cost and how far budgets are spent."""

from __future__ import annotations

import json
from decimal import Decimal
from pathlib import Path

import pytest
import yaml

from spillway.runs.services import Services
from spillway.testing.command_line import Spillway
from spillway.testing.sandbox_server import Installation


@pytest.fixture
def trained(spillway: Spillway) -> None:
    """One run of the job that has ended."""
    assert spillway("runs", "start", "quick").code == 0


def test_a_month_is_told_by_what_is_asked_and_a_dry_run_writes_nothing(
    trained: None, spillway: Spillway, services: Services, tmp_path: Path
) -> None:
    (booked,) = services.ledger.costs()
    month = f"{booked.started_at:%Y-%m}"
    answer = spillway("costs", "report", "--by", "department,billing", "--month", month, "--without-clusters")
    assert (answer.code, answer.err) == (0, "")
    assert answer.out.splitlines()[2].startswith(f"| {booked.department} | owned |")

    folder = tmp_path / "reports"
    dry = spillway("costs", "report", "--month", month, "--into", str(folder), "--dry-run")
    assert f"would write report.md, costs.csv, costs.parquet, costs.svg into {folder / month}" in dry.out
    assert not folder.exists()
    assert spillway("costs", "report", "--month", month, "--into", str(folder)).code == 0
    assert (folder / month / "report.md").read_text().startswith(f"# Costs of {month} (UTC)")

    data = json.loads(spillway("costs", "report", "--month", month, "--json").out)
    assert [line["job"] for line in data["lines"]] == [booked.job]


def test_a_key_and_a_month_that_are_none_are_told(spillway: Spillway) -> None:
    answer = spillway("costs", "report", "--by", "team")
    assert answer.code == 1
    assert (
        "unknown key of costs 'team'; known: billing, business_scene, cluster, department, job, pool, run" in answer.err
    )
    answer = spillway("costs", "report", "--month", "yesterday")
    assert (answer.code, "expected a month such as '2026-03', got 'yesterday'" in answer.err) == (1, True)


def test_a_price_is_corrected_with_a_trace_and_a_dry_run_changes_nothing(
    trained: None, spillway: Spillway, services: Services
) -> None:
    (booked,) = services.ledger.costs()
    run = booked.attempt.rpartition("-")[0]
    words = ("costs", "correct", run, "--price", "99.5", "--reason", "rebate")
    assert "would be" in spillway(*words, "--dry-run").out
    assert services.ledger.costs() == (booked,)
    for _ in range(2):
        assert spillway(*words).code == 0
    (corrected,) = services.ledger.costs()
    assert (corrected.price_per_gpu_hour, corrected.gpu_hours) == (Decimal("99.5"), booked.gpu_hours)
    assert [(c.before, c.after, c.reason) for c in services.ledger.corrections(run)] == [(booked, corrected, "rebate")]

    wrong = spillway("costs", "correct", run, "--price", "-1", "--reason", "rebate")
    assert (wrong.code, "expected an amount of at least 0, got '-1'" in wrong.err) == (1, True)
    absent = spillway("costs", "correct", run, "--attempt", "7", "--price", "1", "--reason", "rebate")
    assert (absent.code, "a pod is booked when its attempt ends" in absent.err) == (1, True)


def test_budgets_are_told_with_what_is_left(spillway: Spillway, installation: Installation) -> None:
    assert "no department has a budget" in spillway("costs", "budgets").out
    declared = {"budgets": [{"department": "research", "limit": 100}]}
    file = installation.config / "budgets.yaml"
    file.write_text(yaml.safe_dump(declared))
    try:
        assert "| research | 100.00 | 0.00 | 0.00 | 0.00 | 100.00 | 0% | 0.00 |" in spillway("costs", "budgets").out
        (state,) = json.loads(spillway("costs", "budgets", "--json").out)
        assert (state["limit"], state["projected"]) == ("100", "0.00")
    finally:
        file.unlink()
