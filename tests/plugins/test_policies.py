"""The tasks that tell what other policies would have done, on a real ledger."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from airflow.sdk.exceptions import AirflowFailException, AirflowSkipException

from spillway.config import load
from spillway.model import JobRecord
from spillway.placement.context import index
from spillway.placement.policy import choose
from spillway.runs.services import Services
from spillway.scaling.presets import PRESETS, S2
from spillway.testing.builders import cluster_state, job_spec, onprem_cluster, placement_policy, snapshot
from spillway.testing.elastic import pending_jobs, pool_use, scaling_look, scaling_snapshot
from spillway.testing.installed import Installed
from spillway.testing.ledger_values import reserve
from spillway_airflow import policies

NOW = datetime(2026, 4, 1, 5, 40, tzinfo=UTC)
HOUR = timedelta(hours=1)
JOB, LIVE = job_spec(), placement_policy()
NO_CLOUD = "placement: {weights: {qos: 1}, quotas: {research: {onprem: 100%, cloud: 100%}}, cloud_access: {}}\n"


@pytest.fixture
def said() -> list[str]:
    """What the task has logged."""
    return []


@pytest.fixture
def say(said: list[str]) -> Callable[..., None]:
    return lambda text, *words: said.append(text % words)


@pytest.fixture
def services(installed: Installed, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Services:
    """A run was placed in the cloud on the last day of March, and one today; three jobs waited for nodes then."""
    ledger = installed.ledger
    for run, at in (("march", NOW - 12 * HOUR), ("april", NOW - HOUR)):
        seen = snapshot(cluster_state(onprem_cluster(), nodes=()), snapshot().clusters[1], taken_at=at)
        reserve(ledger, run, JOB, now=at, seen=seen, policy=LIVE, decide=lambda whole: choose(JOB, index(whole, LIVE)))
        waited = scaling_snapshot(pool_use(), taken_at=at, queue=pending_jobs(3, since=at - HOUR))
        ledger.note_look(scaling_look(waited, S2), every=HOUR, remembered=HOUR)
    made = Services(
        configuration=load(installed.settings.config),
        open_ledger=lambda: ledger,
        open_site=lambda cluster: pytest.fail("no site is needed"),
        image_uses=tuple,
        clock=lambda: NOW,
    )
    monkeypatch.setattr(policies, "worker_services", lambda: made)
    context = {"dag": SimpleNamespace(params={}), "dag_run": SimpleNamespace(conf=None)}
    monkeypatch.setattr(policies, "get_current_context", lambda: context)
    monkeypatch.setenv("SPILLWAY_REPORTS_DIR", str(tmp_path / "reports"))
    return made


@pytest.mark.usefixtures("services")
def test_without_a_candidate_the_shadow_is_skipped(say: Any) -> None:
    with pytest.raises(AirflowSkipException, match=r"no candidate is declared: there is no .*shadow\.yaml"):
        policies.run_shadow(dry_run=False, say=say)


@pytest.mark.usefixtures("services")
def test_a_candidate_is_told_of_the_whole_day_before_and_kept_once(
    installed: Installed, say: Any, said: list[str], tmp_path: Path
) -> None:
    (installed.settings.config / "shadow.yaml").write_text(NO_CLOUD)
    told = policies.run_shadow(dry_run=True, say=say)
    assert (told["since"], told["until"]) == ("2026-03-31T00:00:00+00:00", "2026-04-01T00:00:00+00:00")
    assert (told["compared"], told["counts"]["waits"]) == (1, 1)
    assert "of which the candidate takes 1 otherwise: 1 waits" in said[0]
    assert told["scaling"]["pools"] == {"cloud/h100": {"more": 1, "fewer": 0}}
    assert "cloud/h100: more nodes at 1 look, fewer at 0" in said[0]
    assert not {"differences"} & (told.keys() | told["scaling"].keys())
    assert not (tmp_path / "reports").exists()
    for _ in range(2):
        assert policies.run_shadow(dry_run=False, say=say) == told
    (written,) = (tmp_path / "reports" / "shadow").iterdir()
    assert written.name == "2026-03-31.json"
    kept = json.loads(written.read_text())
    assert [one["run"] for one in kept["differences"]] == ["march"]
    assert [(one["live"], one["candidate"]) for one in kept["scaling"]["differences"]] == [(0, 3)]


@pytest.mark.usefixtures("services")
def test_a_candidate_at_fault_fails_at_once_and_names_its_field(installed: Installed, say: Any) -> None:
    (installed.settings.config / "shadow.yaml").write_text("placement: {weights: {qos: 1}}\n")
    with pytest.raises(AirflowFailException, match=r"shadow\.yaml: placement\.quotas: is missing"):
        policies.run_shadow(dry_run=False, say=say)


def history(days: int) -> list[JobRecord]:
    """A job of a GPU each six hours, for two hours, until now."""
    first = JobRecord(job="0", submitted_at=NOW - timedelta(days=days), gpus=1)
    moments = (NOW - timedelta(days=days) + at * 6 * HOUR for at in range(4 * days))
    return [
        replace(first, job=str(at), submitted_at=moment, started_at=moment, ended_at=moment + 2 * HOUR)
        for at, moment in enumerate(moments)
    ]


def test_with_less_history_than_a_week_the_comparison_says_so_and_is_done(
    services: Services, say: Any, said: list[str], tmp_path: Path
) -> None:
    services.ledger.import_jobs("slurm", history(5))
    assert policies.run_comparison(days=56, dry_run=False, say=say) is None
    assert said == [
        "nothing to compare yet: 20 jobs submitted since 2026-02-04 and ended, over 4 days; expected at "
        "least 7 days of them (`history import` adds another scheduler's)"
    ]
    assert not (tmp_path / "reports").exists()


def test_the_comparison_has_the_policy_the_candidate_and_the_presets_and_is_kept(
    services: Services, installed: Installed, say: Any, said: list[str], tmp_path: Path
) -> None:
    services.ledger.import_jobs("slurm", history(9))
    (installed.settings.config / "shadow.yaml").write_text(NO_CLOUD)
    found = policies.run_comparison(days=56, dry_run=False, say=say)
    assert found is not None
    assert [policy["policy"] for policy in found["policies"]] == ["policy", "shadow", *PRESETS]
    assert {(policy["jobs"], policy["unfinished"]) for policy in found["policies"]} == {(36, 0)}
    assert "2 jobs left out for want of how long the GPUs were held" in found["notes"], "those that still run"
    table = next(text for text in said if text.startswith("POLICY"))
    assert "least without waits and moves" in table
    folder = tmp_path / "reports" / "replays"
    assert sorted(file.name for file in folder.iterdir()) == ["2026-04-01.html", "2026-04-01.json"]
    assert json.loads((folder / "2026-04-01.json").read_text()) == found
