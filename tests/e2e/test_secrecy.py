"""What must never be readable in a log or an XCom."""

from __future__ import annotations

import sqlite3

import pytest

from spillway.sandbox.settings import credentials
from spillway.testing.airflow_server import AirflowSandbox

pytestmark = pytest.mark.timeout(900)


def test_no_generated_password_is_in_a_task_log_a_component_log_or_an_xcom(airflow: AirflowSandbox) -> None:
    run = airflow.train("digits")
    assert run.wait() == "success"
    secrets = {name: value.encode() for name, value in credentials(airflow.settings).items()}

    logs = [file for file in (airflow.settings.airflow_home / "logs").rglob("*") if file.is_file()]
    logs += list(airflow.settings.logs.glob("*.log"))
    found = [
        (file.name, name) for file in logs for text in [file.read_bytes()] for name in secrets if secrets[name] in text
    ]
    assert found == []
    assert any("task_id=train" in str(file) for file in logs)

    with sqlite3.connect(f"file:{airflow.settings.airflow_home / 'airflow.db'}?mode=ro", uri=True) as database:
        values = [str(value).encode() for (value,) in database.execute("select value from xcom")]
    database.close()
    assert len(values) >= 4
    assert [name for name in secrets for value in values if secrets[name] in value] == []
