"""The tasks of the DAGs about money, on a real ledger."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from airflow.sdk.exceptions import AirflowException, AirflowFailException

from spillway.config import Configuration
from spillway.ledger import open_ledger
from spillway.model import Billing, Budget, NoticeTarget, RunPolicy
from spillway.runs.notices import Message
from spillway.runs.services import Services
from spillway.testing.builders import job_spec, placement_policy
from spillway.testing.ledger_files import new_ledger
from spillway.testing.ledger_values import a_cost
from spillway_airflow import costs
from spillway_airflow.notifiers import NotDelivered

NOW = datetime(2026, 4, 1, 5, 40, tzinfo=UTC)
MARCH = datetime(2026, 3, 31, 20, tzinfo=UTC)
THIS_MONTH: dict[str, Any] = {"month": None, "dry_run": False}


def quiet(*words: object) -> None:
    """Nobody reads what the task says."""


@pytest.fixture
def services(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Services:
    """Research has spent 85 of 100 on the last evening of March and again on the first morning of April."""
    url = new_ledger(tmp_path / "ledger.db")
    ledger = open_ledger(url)
    ledger.open_run("r", job_spec(), {}, NOW)
    for number, at in enumerate((MARCH, NOW), start=1):
        spent = a_cost(f"r-{number}", department="research", billing=Billing.SPOT, amount=Decimal(85))
        ledger.book(replace(spent, started_at=at, ended_at=at))
    policy = replace(placement_policy(), budgets=(Budget(department="research", limit=Decimal(100)),))
    ops = (NoticeTarget(name="ops", email="ops@example.org"),)
    made = Services(
        configuration=Configuration(clusters={}, datasets={}, policy=policy, runs=RunPolicy(), notices=ops),
        open_ledger=lambda: ledger,
        open_site=lambda cluster: pytest.fail("no site is needed"),
        image_uses=tuple,
        clock=lambda: NOW,
    )
    monkeypatch.setattr(costs, "worker_services", lambda: made)
    context = {"dag": SimpleNamespace(params={}), "dag_run": SimpleNamespace(conf=None)}
    monkeypatch.setattr(costs, "get_current_context", lambda: context)
    return made


@pytest.mark.usefixtures("services")
def test_on_the_first_of_a_month_the_report_is_of_the_whole_month_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SPILLWAY_REPORTS_DIR", str(tmp_path / "reports"))
    dry = costs.run_cost_report({**THIS_MONTH, "dry_run": True}, say=quiet)
    assert (dry["month"], dry["total"], dry["files"]) == ("2026-03", "85", [])
    assert not (tmp_path / "reports").exists()

    told = costs.run_cost_report(THIS_MONTH, say=quiet)
    assert told["by_department"] == {"research": "85"}
    assert [Path(file).parent.name for file in told["files"]] == 4 * ["2026-03"] + 4 * ["2026-02"]


def test_the_month_before_is_written_anew_with_what_was_booked_and_corrected_since(
    services: Services, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SPILLWAY_REPORTS_DIR", str(tmp_path))
    costs.run_cost_report(THIS_MONTH, say=quiet)
    march = tmp_path / "2026-03" / "costs.csv"
    before = march.read_text()
    late = a_cost("r-3", department="research", amount=Decimal(5))
    services.ledger.book(replace(late, started_at=MARCH, ended_at=MARCH))
    later = replace(services, clock=lambda: NOW + timedelta(days=3))
    monkeypatch.setattr(costs, "worker_services", lambda: later)
    assert costs.run_cost_report(THIS_MONTH, say=quiet)["month"] == "2026-04"
    assert march.read_text() != before
    asked = costs.run_cost_report({**THIS_MONTH, "month": "2026-04"}, say=quiet)
    assert {Path(file).parent.name for file in asked["files"]} == {"2026-04"}


@pytest.mark.usefixtures("services")
def test_without_a_folder_a_report_is_only_logged(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SPILLWAY_REPORTS_DIR", raising=False)
    said: list[str] = []
    told = costs.run_cost_report({**THIS_MONTH, "month": "2026-04"}, say=lambda text, *words: said.append(text % words))
    assert told["files"] == []
    assert said[0].startswith("# Costs of 2026-04 (UTC)")


@pytest.mark.usefixtures("services")
def test_a_month_that_is_none_fails_at_once() -> None:
    with pytest.raises(AirflowFailException, match="expected a month such as '2026-03', got '2026-00'"):
        costs.run_cost_report({**THIS_MONTH, "month": "2026-00"}, say=quiet)


@pytest.mark.usefixtures("services")
def test_a_task_that_could_not_tell_everybody_fails_and_its_retry_tells_them(monkeypatch: pytest.MonkeyPatch) -> None:
    sent: list[str] = []

    def refuse(target: NoticeTarget, message: Message) -> None:
        raise NotDelivered("451 later")

    def send(target: NoticeTarget, message: Message) -> None:
        sent.append(f"{target.name}: {message.title}")

    crossings = costs.run_watch_budgets(dry_run=True, say=quiet)
    assert [(crossing["month"], crossing["percent"]) for crossing in crossings] == [("2026-03", 80), ("2026-04", 80)]
    monkeypatch.setattr(costs, "deliver", refuse)
    with pytest.raises(AirflowException, match="could not tell ops; what was not delivered is tried again"):
        costs.run_watch_budgets(dry_run=False, say=quiet)
    monkeypatch.setattr(costs, "deliver", send)
    assert costs.run_watch_budgets(dry_run=False, say=quiet) == []
    assert costs.run_watch_budgets(dry_run=False, say=quiet) == []
    assert sent == [f"ops: research has spent 80 % of its budget for {month}" for month in ("2026-03", "2026-04")]
