"""What the heads of several DAG files have in common."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

from airflow.sdk import Param


def routine(*, retries: int, retry_delay: timedelta) -> dict[str, Any]:
    """Arguments of ``dag`` for work by the clock: one run at a time, and none for the past."""
    return {
        "start_date": datetime(2026, 1, 1, tzinfo=UTC),
        "catchup": False,
        "max_active_runs": 1,
        "default_args": {"owner": "ml-platform", "retries": retries, "retry_delay": retry_delay},
    }


def dry_run(description: str) -> dict[str, Param]:
    """The parameter ``dry_run``, which is off unless somebody asks for it."""
    return {"dry_run": Param(False, type="boolean", title="Dry run", description=description)}


def number(default: int, title: str, description: str, *, least: int, most: int) -> Param:
    """A whole number of a form."""
    return Param(default, type="integer", title=title, description=description, minimum=least, maximum=most)


def training_parameters() -> dict[str, Param]:
    """Of a DAG that trains: ``job``, ``dry_run`` and ``poll_seconds``."""
    return {
        "job": Param(
            "digits",
            type="string",
            title="Job",
            description="Name of a job file in include/jobs, with or without .yaml.",
            minLength=1,
            maxLength=100,
        ),
        **dry_run("Show what would happen and change nothing."),
        "poll_seconds": number(
            10, "Poll interval", "Seconds between looks at what the run waits for.", least=1, most=60
        ),
    }
