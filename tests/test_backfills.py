"""What a backfill's job is to the platform: it comes last, and orders no nodes unless its file says so."""

from __future__ import annotations

from dataclasses import replace

import pytest

from spillway.backfills import is_backfill, orders_nodes, placed_as
from spillway.codec import decode, encode
from spillway.model import JobSpec, Priority
from spillway.testing.builders import job_spec

AIRFLOW = {"dag_id": "monthly_iteration", "run_id": "r", "task_id": "place", "map_index": -1}
ORIGINS = {
    "a backfill": ({**AIRFLOW, "run_type": "backfill"}, True),
    "a schedule": ({**AIRFLOW, "run_type": "scheduled"}, False),
    "a person in Airflow": ({**AIRFLOW, "run_type": "manual"}, False),
    "an older release, which does not say": (AIRFLOW, False),
    "a command line": ({"started_by": "runs start", "name": "digits"}, False),
}


@pytest.mark.parametrize(("origin", "past"), ORIGINS.values(), ids=ORIGINS)
def test_the_origin_on_record_tells_a_backfill(origin: dict[str, object], past: bool) -> None:
    job = job_spec(priority=Priority.PRODUCTION_CORE)
    assert is_backfill(origin) is past
    assert placed_as(job, origin) == (replace(job, priority=Priority.EXPLORATION) if past else job)
    assert orders_nodes(job, origin) is not past
    assert orders_nodes(replace(job, backfill_orders_nodes=True), origin)


def test_a_job_of_an_older_release_orders_no_nodes_for_a_backfill() -> None:
    older = {key: value for key, value in encode(job_spec()).items() if key != "backfill_orders_nodes"}
    assert decode(JobSpec, older) == job_spec(backfill_orders_nodes=False)
