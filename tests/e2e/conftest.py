"""One sandbox with a real Airflow for all end-to-end tests; a module starts its runs side by side, then waits."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from spillway.testing.airflow_server import AirflowSandbox, running_airflow

HERE = Path(__file__).parent


@pytest.fixture(scope="session")
def airflow(tmp_path_factory: pytest.TempPathFactory) -> Iterator[AirflowSandbox]:
    """The sandbox; ``train`` and the test's own DAG may run, every other DAG is paused until a test lets it."""
    state = tmp_path_factory.mktemp("airflow")
    with running_airflow(
        state, more_dags=HERE / "dags", jobs=HERE / "jobs", unpaused=("train", "wait_for_things")
    ) as sandbox:
        yield sandbox
