"""The monthly iteration on a real scheduler: past months in their order, and the schedule as it was."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import pairwise
from typing import Any

import pytest

from spillway.model import Priority
from spillway.testing.airflow_server import AirflowSandbox, DagRun, wait_for

pytestmark = pytest.mark.timeout(1800)
DAG = "monthly_iteration"
NEXT = ("next_dagrun_logical_date", "next_dagrun_data_interval_start", "next_dagrun_data_interval_end")
WINDOWS = {
    "2026-01": ("2026-01-25T00:00:00Z", "2026-02-01T00:00:00Z"),
    "2026-02": ("2026-02-22T00:00:00Z", "2026-03-01T00:00:00Z"),
    "2026-03": ("2026-03-25T00:00:00Z", "2026-04-01T00:00:00Z"),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Backfilled:
    """The three runs in the order of their windows, one by hand beside them, and what was next before there was any."""

    runs: Mapping[str, DagRun]
    by_hand: DagRun
    next_before: Mapping[str, Any]


def next_window(airflow: AirflowSandbox) -> Mapping[str, Any]:
    """What the scheduler will run next."""
    found = airflow.api.call("GET", f"/dags/{DAG}")
    return {key: found[key] for key in NEXT}


@pytest.fixture(scope="module")
def backfilled(airflow: AirflowSandbox) -> Backfilled:
    """A backfill of three months by Airflow's command line and its default arguments, once all of its runs have ended.

    What it says beside them is only how often the DAG looks, which saves time.
    """
    airflow.api.wait_for_dag(DAG)
    airflow.api.unpause(DAG)
    before = wait_for(lambda: next_window(airflow), lambda found: found[NEXT[0]] is not None)
    months = ("--from-date", "2026-01-01", "--to-date", "2026-03-31")
    airflow.command("backfill", "create", "--dag-id", DAG, *months, "--dag-run-conf", '{"poll_seconds": 1}')
    dry = {"job": "digits", "dry_run": True}
    by_hand = airflow.start(DAG, dry, logical_date="2025-11-10T12:00:00+00:00")
    past = wait_for(
        lambda: [run for run in airflow.runs(DAG) if run.facts()["run_type"] == "backfill"],
        lambda found: len(found) == len(WINDOWS),
    )
    by_window = {run.facts()["logical_date"]: run for run in past}
    runs = {name: by_window[starts_at] for name, (starts_at, _) in WINDOWS.items()}
    assert [run.wait() for run in runs.values()] == ["success"] * len(WINDOWS)
    return Backfilled(runs=runs, by_hand=by_hand, next_before=before)


def moment(told: str) -> datetime:
    return datetime.fromisoformat(told).astimezone(UTC)


def test_a_backfill_of_three_months_with_default_arguments_runs_them_in_their_order(backfilled: Backfilled) -> None:
    for one, other in pairwise(backfilled.runs.values()):
        ended = moment(one.facts()["end_date"])
        placed, gate = other.tasks()["place"], other.tasks()["window"]
        assert ended <= moment(gate["end_date"]) <= moment(placed["start_date"])
        assert moment(other.facts()["start_date"]) < ended, "Airflow itself had begun both"


def test_each_run_is_about_its_window_and_its_program_knows_it(airflow: AirflowSandbox, backfilled: Backfilled) -> None:
    for name, run in backfilled.runs.items():
        facts, window = run.facts(), tuple(map(moment, WINDOWS[name]))
        assert (moment(facts["data_interval_start"]), moment(facts["data_interval_end"])) == window
        [attempt] = airflow.attempts(run)
        told = [attempt.job.environment[f"SPILLWAY_WINDOW_{end}"] for end in ("START", "END")]
        assert tuple(map(moment, told)) == window


def test_who_waits_says_for_which_run_and_holds_no_slot_meanwhile(backfilled: Backfilled) -> None:
    january, february, march = backfilled.runs.values()
    assert f"waits until {january.run_id} has ended" in february.log("window")
    # The run by hand is of an earlier window, so that January may have waited for it.
    assert not any(f"waits until {run.run_id}" in january.log("window") for run in (january, february, march))
    assert {run.tasks()["window"]["try_number"] for run in backfilled.runs.values()} == {1}


def test_their_jobs_come_last_and_the_ledger_knows_them_as_a_backfills(
    airflow: AirflowSandbox, backfilled: Backfilled
) -> None:
    for run in backfilled.runs.values():
        [name] = airflow.training_runs(run)
        assert airflow.services.ledger.origin(name)["run_type"] == "backfill"
        assert airflow.services.ledger.job(name).priority is Priority.EXPLORATION


def test_neither_the_backfill_nor_a_run_by_hand_moves_the_next_window(
    airflow: AirflowSandbox, backfilled: Backfilled
) -> None:
    assert backfilled.by_hand.wait() == "success"
    interval = [moment(backfilled.by_hand.facts()[f"data_interval_{end}"]) for end in ("start", "end")]
    assert interval == [datetime(2025, 10, 25, tzinfo=UTC), datetime(2025, 11, 1, tzinfo=UTC)]
    assert next_window(airflow) == backfilled.next_before


def test_months_that_have_run_are_run_again_only_where_that_is_asked_for(
    airflow: AirflowSandbox, backfilled: Backfilled
) -> None:
    """Asked of Airflow without effect: all of the three succeeded."""

    def would_run(behaviour: str) -> list[str]:
        months = {"from_date": "2026-01-01T00:00:00Z", "to_date": "2026-03-31T00:00:00Z"}
        asked = {"dag_id": DAG, **months, "reprocess_behavior": behaviour}
        return [one["logical_date"] for one in airflow.api.call("POST", "/backfills/dry_run", asked)["backfills"]]

    assert would_run("none") == would_run("failed") == []
    assert would_run("completed") == [starts_at for starts_at, _ in WINDOWS.values()]
