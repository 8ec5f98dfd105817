"""Every DAG file: parsed as Airflow parses it, without any I/O, and held to the house rules."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from spillway.sandbox import lifecycle
from spillway.sandbox.settings import INCLUDE, PROJECT

DAGS = PROJECT / "dags"
PLUGINS = PROJECT / "plugins"
FILES = sorted(DAGS.glob("*.py"))
LONGEST_LINES = 80

SCHEDULES = {
    "train": None,
    "train_nightly": "0 1 * * *",
    "train_on_new_data": ["spillway://datasets/digits"],
    "monthly_iteration": "last week of month",
    "sync_images": "17 * * * *",
    "sync_datasets": "27 * * * *",
    "upload_checkpoints": ["*/5 * * * *", "spillway://checkpoints/"],
    "sweep_orphans": "*/10 * * * *",
    "migrate_job": None,
    "cost_report": "40 5 * * *",
    "watch_budgets": "*/10 * * * *",
    "scale_node_pools": "* * * * *",
    "scale_manually": None,
    "return_runs": "*/10 * * * *",
    "shadow_policy": "20 0 * * *",
    "replay_policies": "50 2 * * 0",
}
STAGING = sorted(f"{link}sync_{what}" for link in ("", "link_cloud.", "link_paris.") for what in ("dataset", "image"))
PIPELINE = {
    "place": [],
    **{task: ["place"] for task in STAGING},
    "train": STAGING,
    "settle": ["train"],
}

DO_IO = {
    "connection": "from airflow.sdk import BaseHook\nBaseHook.get_connection('spillway_ledger')\n",
    "database": "import sqlite3\nsqlite3.connect('/tmp/ledger.db')\n",
    "network": "import socket\nsocket.create_connection(('127.0.0.1', 9))\n",
    "declared-file": "from pathlib import Path\nPath('/etc/clusters.yaml').read_text()\n",
}


def parse(folder: Path, home: Path) -> Mapping[str, Any]:
    """What Airflow finds in the folder when any I/O is an error."""
    done = subprocess.run(
        [sys.executable, str(Path(__file__).with_name("parse_dags.py")), str(folder)],
        env={
            "PATH": os.environ["PATH"],
            "HOME": str(home),
            "AIRFLOW_HOME": str(home),
            "AIRFLOW__CORE__LOAD_EXAMPLES": "False",
            "AIRFLOW__CORE__PLUGINS_FOLDER": str(PLUGINS),
            "PYTHONPATH": f"{INCLUDE}:{PLUGINS}",
            "SPILLWAY_LINK_POOLS": "paris, cloud,cloud",
            "PYTHONDONTWRITEBYTECODE": "1",  # the interpreter itself writes otherwise, where a source is new
        },
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    found: Mapping[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def test_up_lets_every_dag_run_that_only_a_person_starts() -> None:
    on_demand = {name for name, schedule in SCHEDULES.items() if schedule is None}
    assert on_demand <= set(lifecycle.DAGS) <= set(SCHEDULES)


@pytest.fixture(scope="module")
def parsed(tmp_path_factory: pytest.TempPathFactory) -> Mapping[str, Any]:
    """The project's DAGs, and beside them one file for each kind of I/O."""
    home = tmp_path_factory.mktemp("airflow")
    folder = shutil.copytree(DAGS, home / "dags", ignore=shutil.ignore_patterns("__pycache__"))
    for name, body in DO_IO.items():
        # Airflow reads only files in which both words occur.
        (folder / f"{name}.py").write_text(f"# airflow dag\n{body}")
    return parse(folder, home)


def test_every_file_is_parsed_without_io(parsed: Mapping[str, Any]) -> None:
    assert {dag_id: Path(dag["file"]).name for dag_id, dag in parsed["dags"].items()} == {
        file.stem: file.name for file in FILES
    }
    assert {Path(file).stem for file in parsed["errors"]} <= set(DO_IO), parsed["errors"]


def test_io_in_a_dag_file_would_be_noticed(parsed: Mapping[str, Any]) -> None:
    assert {Path(file).stem for file in parsed["errors"]} >= set(DO_IO)
    assert all("Refused" in text for text in parsed["errors"].values())


def test_schedules_are_the_stated_ones(parsed: Mapping[str, Any]) -> None:
    assert {dag_id: dag["schedule"] for dag_id, dag in parsed["dags"].items()} == SCHEDULES


@pytest.mark.parametrize("dag_id", [file.stem for file in FILES])
class TestHouseRules:
    def test_a_file_is_wiring_and_no_longer_than_a_screen(self, dag_id: str, parsed: Mapping[str, Any]) -> None:
        assert len((DAGS / f"{dag_id}.py").read_text().splitlines()) <= LONGEST_LINES

    def test_it_explains_itself_and_can_be_found(self, dag_id: str, parsed: Mapping[str, Any]) -> None:
        dag = parsed["dags"][dag_id]
        assert dag["doc"].startswith("### ")
        assert len(dag["doc"].splitlines()) >= 3
        assert "spillway" in dag["tags"]
        assert len(dag["tags"]) >= 2

    def test_no_past_interval_is_caught_up_and_concurrency_is_bounded(
        self, dag_id: str, parsed: Mapping[str, Any]
    ) -> None:
        dag = parsed["dags"][dag_id]
        assert dag["catchup"] is False
        assert 1 <= dag["max_active_runs"] <= 16

    def test_every_number_of_a_form_has_a_lower_and_an_upper_bound(
        self, dag_id: str, parsed: Mapping[str, Any]
    ) -> None:
        bounds = parsed["dags"][dag_id]["numbers"]
        assert {name for name, ends in bounds.items() if None in ends} == set()

    def test_every_task_has_an_owner_and_survives_a_lost_worker(self, dag_id: str, parsed: Mapping[str, Any]) -> None:
        tasks = parsed["dags"][dag_id]["tasks"]
        assert {task["owner"] for task in tasks.values()} == {"ml-platform"}
        assert all(task["retries"] >= 1 and task["pauses"] for task in tasks.values())


@pytest.mark.parametrize("dag_id", ["train", "train_nightly", "train_on_new_data"])
def test_training_dags_have_the_one_pipeline(dag_id: str, parsed: Mapping[str, Any]) -> None:
    tasks = parsed["dags"][dag_id]["tasks"]
    assert {task_id: task["after"] for task_id, task in tasks.items()} == PIPELINE


def test_the_monthly_iteration_is_the_one_pipeline_once_it_is_the_turn_of_its_window(
    parsed: Mapping[str, Any],
) -> None:
    tasks = parsed["dags"]["monthly_iteration"]["tasks"]
    after = {task_id: task["after"] for task_id, task in tasks.items()}
    assert after == {**PIPELINE, "window": [], "place": ["window"]}


def test_copies_of_checkpoints_are_told_before_a_site_that_is_down_fails_the_run(parsed: Mapping[str, Any]) -> None:
    tasks = parsed["dags"]["upload_checkpoints"]["tasks"]
    copies = ["cloud.replicate", "paris.replicate", "replicate"]
    assert {task_id: task["after"] for task_id, task in tasks.items()} == {
        **{copy: [] for copy in copies},
        "prune": copies,
        "require_all": sorted([*copies, "prune"]),
    }


def test_whatever_arrives_is_an_event_of_its_asset(parsed: Mapping[str, Any]) -> None:
    tells = {
        (dag_id, task_id.rpartition(".")[2], *task["tells"])
        for dag_id, dag in parsed["dags"].items()
        for task_id, task in dag["tasks"].items()
        if task["tells"] and not dag_id.startswith(("train", "monthly"))
    }
    assert tells == {
        ("upload_checkpoints", "replicate", "replicated-checkpoints"),
        ("sync_datasets", "sync", "synced-datasets"),
        ("sync_datasets", "merge", "synced-datasets"),
    }


def test_what_goes_over_a_link_waits_in_its_pool_in_the_order_of_what_waits_for_it(parsed: Mapping[str, Any]) -> None:
    turns = {
        "upload_checkpoints.cloud.replicate": ["link_cloud", 100, "absolute"],
        "sync_images.paris.mirror": ["link_paris", 10, "absolute"],
        "sync_images.paris.mirror_repository": ["link_paris", 10, "absolute"],
        "sync_datasets.cloud.sync": ["link_cloud", 1, "absolute"],
        "sync_datasets.cloud.copy": ["link_cloud", 1, "absolute"],
        "upload_checkpoints.replicate": ["default_pool", 100, "absolute"],
        "sync_images.mirror": ["default_pool", 10, "absolute"],
        "train.sync_image": ["default_pool", 11, "absolute"],
        "train.sync_dataset": ["default_pool", 2, "absolute"],
        "train.link_paris.sync_image": ["link_paris", 11, "absolute"],
        "train.link_cloud.sync_dataset": ["link_cloud", 2, "absolute"],
        "sync_datasets.sync": ["default_pool", 1, "absolute"],
        "sync_datasets.every_sync_has_ended": ["default_pool", 1, "downstream"],
    }
    found = {
        f"{dag_id}.{task_id}": task["turn"]
        for dag_id, dag in parsed["dags"].items()
        for task_id, task in dag["tasks"].items()
    }
    assert {name: found[name] for name in turns} == turns
