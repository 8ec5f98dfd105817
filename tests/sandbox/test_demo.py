"""What the demo tells beside its checks."""

from __future__ import annotations

from pathlib import Path

import pytest

from spillway.config import Configuration
from spillway.ledger import open_ledger
from spillway.model import PlacementDecision, RunPolicy, Snapshot
from spillway.placement.policy import place
from spillway.runs.services import Services
from spillway.sandbox.airflow_api import AirflowApi
from spillway.sandbox.demo.story import Story
from spillway.sandbox.settings import sandbox_settings
from spillway.testing.builders import job_spec, placement_policy, snapshot
from spillway.testing.ledger_files import new_ledger
from spillway.testing.ledger_values import NOW, reserve

NOBODY_ASKS = AirflowApi("http://127.0.0.1:9", "admin", "unused")


@pytest.mark.parametrize(("api", "tables"), [(NOBODY_ASKS, 1), (None, 0)], ids=["airflow", "without airflow"])
def test_the_placement_table_is_shown_where_nobody_else_shows_it(
    tmp_path: Path, api: AirflowApi | None, tables: int
) -> None:
    ledger, policy, job = open_ledger(new_ledger(tmp_path / "ledger.db")), placement_policy(), job_spec()

    def decide(whole: Snapshot) -> PlacementDecision:
        return place(job, whole, policy)

    attempt, _ = reserve(ledger, "r", job, decide=decide, seen=snapshot(), policy=policy)
    assert attempt is not None
    services = Services(
        configuration=Configuration(clusters={}, datasets={}, policy=policy, runs=RunPolicy()),
        open_ledger=lambda: ledger,
        open_site=lambda cluster: pytest.fail("no site is needed"),
        image_uses=tuple,
        clock=lambda: NOW,
    )
    said: list[str] = []
    story = Story(
        settings=sandbox_settings(tmp_path),
        services=services,
        job=job,
        say=said.append,
        broken=None,
        lose_node=lambda node: pytest.fail("nothing is lost"),
        api=api,
    )
    story.show_placement(attempt)
    assert len(said) == tables
    for text in said:
        assert "job 'digits'" in text and "placed on onprem/a100/owned" in text
        assert "cloud/h100/spot" in text and "interruption: may not be interrupted (spot_ok is false)" in text
        assert "weights: qos 0.7, cost 0.15, affinity 0.15" in text
