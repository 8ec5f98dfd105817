"""A month's report: gathered from a real ledger, written whole, the same in every form."""

from __future__ import annotations

import csv
import json
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path

import pytest
from pyarrow import parquet

from spillway.config import Configuration
from spillway.errors import ConfigError
from spillway.ledger import Ledger, open_ledger
from spillway.model import Attempt, AttemptState, Billing, Budget, Candidate, Outcome, RunPolicy
from spillway.runs.cost_report import FILES, cost_report, month_for, write_report
from spillway.runs.services import Services
from spillway.runs.settling import cost_until
from spillway.testing.builders import cloud_cluster, job_spec, onprem_cluster, placement_policy
from spillway.testing.disks import filled, small_disk
from spillway.testing.ledger_files import new_ledger
from spillway.testing.ledger_values import a_cost, counting, reserve

NOW = datetime(2026, 4, 2, tzinfo=UTC)
ON_DEMAND = Candidate(cluster="cloud", pool="h100", billing=Billing.ON_DEMAND)
BOUNDARY = datetime(2026, 3, 31, 15, tzinfo=UTC)
"""Where March ends in Tokyo."""


@pytest.fixture
def services(tmp_path: Path) -> Services:
    """A ledger in which a night in the cloud over the end of March in Tokyo is booked; no cluster is asked."""
    url = new_ledger(tmp_path / "ledger.db")
    ledger = open_ledger(url)
    ledger.open_run("r", job_spec(), {}, NOW)
    night = {"started_at": BOUNDARY - timedelta(hours=2), "ended_at": BOUNDARY + timedelta(hours=4)}
    price = {"price_per_gpu_hour": Decimal(8), "gpu_hours": Decimal(6), "amount": Decimal(48)}
    place = {"cluster": "cloud", "pool": "h100", "billing": Billing.ON_DEMAND, "department": "research"}
    ledger.book(a_cost("r-1", business_scene="=search", **night, **price, **place))
    budget = Budget(department="research", limit=Decimal(100))
    policy = replace(placement_policy(), time_zone="Asia/Tokyo", budgets=(budget,))
    clusters = {cluster.name: cluster for cluster in (onprem_cluster(), cloud_cluster())}
    declared = Configuration(clusters=clusters, datasets={}, policy=policy, runs=RunPolicy())

    def no_site(cluster: object) -> object:
        raise AssertionError(f"asked {cluster}")

    return Services(
        configuration=declared,
        open_ledger=lambda: ledger,
        open_site=no_site,  # type: ignore[arg-type]
        image_uses=tuple,
        clock=lambda: NOW,
    )


def a_running(services: Services) -> Attempt:
    """An attempt of 2 GPUs whose pod began two hours before March ended in Tokyo, and runs."""
    ledger, began = services.ledger, BOUNDARY - timedelta(hours=2)
    job = job_spec(gpus_per_node=2, business_scene="chat")
    attempt, _ = reserve(ledger, "s", job, now=began, decide=counting(job, capacity=2, place=ON_DEMAND))
    assert attempt is not None
    for state in (AttemptState.STAGED, AttemptState.LAUNCHED):
        attempt = ledger.advance(attempt, state)
    return ledger.advance(attempt, AttemptState.RUNNING, pod_uid="u", started_at=began)


def test_report_gate_and_ledger_cut_a_month_at_the_same_moment(services: Services) -> None:
    march, april = (cost_report(services, month_for(services, name), look=False) for name in ("2026-03", None))
    assert (march.total, april.total) == (Decimal(16), Decimal(32))
    assert [state.booked for state in april.budgets] == [Decimal(32)]
    assert march.total + april.total == sum(entry.amount for entry in services.ledger.costs())
    assert march.budgets == ()


def test_a_report_is_the_same_in_every_form_and_is_replaced_whole(services: Services, tmp_path: Path) -> None:
    report = cost_report(services, month_for(services, "2026-04"), look=False)
    for _ in range(2):
        written = write_report(report, tmp_path / "reports")
    assert sorted(path.name for path in (tmp_path / "reports" / "2026-04").iterdir()) == sorted(FILES)
    markdown, sheet, table, picture = written
    (line,) = csv.DictReader(sheet.read_text().splitlines())
    (row,) = parquet.read_table(table).to_pylist()
    assert (line["amount"], row["amount"]) == ("32.00", Decimal("32.00"))
    assert (line["billed"], row["billed"]) == ("4.000000", Decimal(4))
    assert (line["business_scene"], row["business_scene"]) == ("'=search", "=search")
    assert (line["used"], row["used"]) == ("", None), "unknown is not 0"
    text = markdown.read_text()
    assert text.startswith("# Costs of 2026-04 (Asia/Tokyo)")
    assert "| total |  | 4.00 |  |  | 32.00 | 0.00 | 32.00 |" in text
    assert "| research | 100.00 | 32.00 | 0.00 | 0.00 | 68.00 | 32% | 698.18 |" in text
    assert ">32.00</text>" in picture.read_text()


def test_a_month_in_which_nothing_ran_has_a_report(services: Services, tmp_path: Path) -> None:
    report = cost_report(services, month_for(services, "2026-02"), look=False)
    table = write_report(report, tmp_path)[2]
    assert parquet.read_table(table).num_rows == 0
    assert (report.total, report.advice) == (Decimal(0), ())


def test_what_is_no_month_and_a_folder_that_cannot_be_written_are_told(services: Services, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="expected a month such as '2026-03', got 'March'"):
        month_for(services, "March")
    (tmp_path / "file").write_text("")
    with pytest.raises(ConfigError, match="the report cannot be written there: Not a directory"):
        write_report(cost_report(services, month_for(services, None), look=False), tmp_path / "file" / "reports")


def test_of_a_report_that_finds_its_disk_full_no_half_of_a_file_stays(services: Services, tmp_path: Path) -> None:
    report = cost_report(services, month_for(services, None), look=False)
    with small_disk(tmp_path / "disk", "size=64k") as disk:
        with filled(disk), pytest.raises(ConfigError, match="the report cannot be written there: No space left"):
            write_report(report, disk)
        assert list(disk.rglob("*")) == [disk / "2026-04"]


def test_a_report_writes_nothing_to_the_ledger(services: Services, tmp_path: Path) -> None:
    before = json.dumps([str(entry) for entry in services.ledger.costs()])
    cost_report(services, month_for(services, None), look=False)
    assert json.dumps([str(entry) for entry in services.ledger.costs()]) == before
    assert not list(tmp_path.glob("2026-*"))


def test_a_pod_that_still_runs_is_in_the_report_of_each_month_with_its_part_until_now(services: Services) -> None:
    """From two hours before the end of March in Tokyo; it is booked once it has ended, and the same then."""
    ledger, attempt = services.ledger, a_running(services)

    def totals() -> list[tuple[Decimal, int]]:
        reports = [cost_report(services, month_for(services, name), look=False) for name in ("2026-03", "2026-04")]
        return [(report.total, report.running) for report in reports]

    price, hours = Decimal(8), Decimal((NOW - BOUNDARY) // timedelta(hours=1))
    whole = [16 + 2 * 2 * price, 32 + 2 * hours * price]
    assert totals() == [(amount, 1) for amount in whole]
    march = cost_report(services, month_for(services, "2026-03"), look=False).markdown()
    assert "pods that still run, with what they have cost by then: 1." in march

    entry = cost_until(services, attempt, NOW)
    assert entry is not None
    ledger.book(entry)
    assert totals() == [(amount, 0) for amount in whole], "it is booked, and nobody has settled its attempt yet"
    ledger.settle(attempt, Outcome.SUCCEEDED, "done", NOW)
    assert totals() == [(amount, 0) for amount in whole]


def test_a_pod_that_is_booked_and_settled_while_the_report_is_made_is_in_it_once(
    services: Services, monkeypatch: pytest.MonkeyPatch
) -> None:
    attempt, read = a_running(services), Ledger.recent_attempts
    entry = cost_until(services, attempt, NOW)
    assert entry is not None

    def then_it_ends(ledger: Ledger, since: datetime) -> tuple[Attempt, ...]:
        opened = read(ledger, since)
        ledger.book(entry)
        ledger.settle(attempt, Outcome.SUCCEEDED, "done", NOW)
        return opened

    monkeypatch.setattr(Ledger, "recent_attempts", then_it_ends)
    report = cost_report(services, month_for(services, None), look=False)
    assert [(part.entry.attempt, part.entry.amount) for part in report.parts] == [
        ("r-1", Decimal(48)),
        (attempt.label, entry.amount),
    ]
    assert report.running == 0


def test_a_pod_that_ended_in_the_month_before_does_not_run_on_while_its_attempt_is_not_settled(
    services: Services,
) -> None:
    entry = cost_until(services, a_running(services), BOUNDARY - timedelta(hours=1))
    assert entry is not None
    services.ledger.book(entry)
    april = cost_report(services, month_for(services, None), look=False)
    assert (april.total, april.running) == (Decimal(32), 0), "as the budget has it"
    assert [state.spent for state in april.budgets] == [Decimal(32)]
