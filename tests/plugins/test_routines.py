"""Who still looks after a run, told by the states of Airflow's tasks."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from spillway_airflow.routines import pipeline_lives

CASES: Mapping[str, tuple[str, Mapping[str, str | None], bool]] = {
    "deferred": ("place", {"place": "success", "train": "deferred"}, True),
    "waits_for_a_retry": ("place", {"place": "success", "train": "up_for_retry"}, True),
    "marked_failed": ("place", {"place": "success", "train": "failed", "settle": "upstream_failed"}, False),
    "marked_successful": ("place", {"place": "success", "train": "success", "settle": "success"}, False),
    "cleared_and_not_scheduled_yet": ("place", {"place": "success", "train": None}, False),
    "nothing_known": ("place", {}, False),
    "its_own_group": ("first.place", {"first.train": "running", "second.train": "failed"}, True),
    "another_group": ("first.place", {"first.train": "failed", "second.train": "running"}, False),
    "another_group_of_similar_name": ("first.place", {"first.train": "failed", "first_again.train": "running"}, False),
}


@pytest.mark.parametrize("name", CASES)
def test_a_pod_is_left_alone_while_a_task_of_its_pipeline_lives(name: str) -> None:
    task_id, states, expected = CASES[name]
    origin = {"dag_id": "train", "run_id": "r", "task_id": task_id, "map_index": -1}
    assert pipeline_lives(origin, states) is expected
