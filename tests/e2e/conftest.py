"""One sandbox with a real Airflow for all end-to-end tests; a module starts its runs side by side, then waits."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from spillway.clouds.facts import TRAINER_CONTAINER
from spillway.sandbox.sample_image import entrypoint
from spillway.testing.airflow_server import AirflowSandbox, running_airflow

HERE = Path(__file__).parent
HURRY = '[ "$SPILLWAY_ATTEMPT" = 1 ] || export SPILLWAY_STEP_SECONDS=0; exec "$0" "$@"'


@pytest.fixture(scope="package")
def airflow(tmp_path_factory: pytest.TempPathFactory) -> Iterator[AirflowSandbox]:
    """The sandbox; ``train`` and the test's own DAG may run, every other DAG is paused until a test lets it."""
    jobs = shutil.copytree(HERE / "jobs", tmp_path_factory.mktemp("jobs"), dirs_exist_ok=True)
    hurry_once_interrupted(jobs / "interrupted.yaml")
    state = tmp_path_factory.mktemp("airflow")
    with running_airflow(state, more_dags=HERE / "dags", jobs=jobs, unpaused=("train", "wait_for_things")) as sandbox:
        yield sandbox


def hurry_once_interrupted(file: Path) -> None:
    """Give the job a command that pauses after each step in the first attempt only.

    So a test has all the time that it needs to interrupt the run, and none to wait until it is over.
    """
    command = ["/bin/sh", "-c", HURRY, *entrypoint()]
    overrides = {"spec": {"containers": [{"name": TRAINER_CONTAINER, "command": command}]}}
    file.write_text(file.read_text() + yaml.safe_dump({"pod_overrides": overrides}))
