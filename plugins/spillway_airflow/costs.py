"""The tasks of the DAGs about money."""

from __future__ import annotations

import os
from collections.abc import Mapping
from datetime import timedelta
from pathlib import Path
from typing import Any

from airflow.sdk import get_current_context
from airflow.sdk.exceptions import AirflowException

from spillway.codec import encode
from spillway.config.directories import reports_directory
from spillway.months import month_of
from spillway.runs.cost_report import cost_report, month_for, write_report
from spillway.runs.notices import watch_budgets
from spillway_airflow.failures import typed_failures
from spillway_airflow.hooks import worker_services
from spillway_airflow.notifiers import deliver
from spillway_airflow.parameters import refuse_unknown_parameters


def run_cost_report(params: Mapping[str, Any], *, say: Any) -> dict[str, Any]:
    """Log a month's report and write it where a folder is named; gives its totals and advice.

    Where no month is asked for, that of yesterday, and the one before is written anew: pods that began in it are booked
    when they end, and bookings are corrected.
    """
    with typed_failures():
        refuse_unknown_parameters(get_current_context())
        services = worker_services()
        month = month_for(services, params["month"], ago=timedelta(days=1))
        report = cost_report(services, month)
        say("%s", report.markdown())
        folder = reports_directory(os.environ)
        written: tuple[Path, ...] = ()
        if folder is not None and not params["dry_run"]:
            written = write_report(report, folder)
            if params["month"] is None:
                before = month_of(month.starts_at - timedelta(days=1), services.configuration.policy.time_zone)
                written += write_report(cost_report(services, before), folder)
        for path in written:
            say("wrote %s", path)
    return {
        "month": report.month.name,
        "total": encode(report.total),
        "by_department": {line.keys[0]: encode(line.amount) for line in report.lines(("department",))},
        "advice": encode(report.advice),
        "files": [str(path) for path in written],
    }


def run_watch_budgets(*, dry_run: bool, say: Any) -> list[dict[str, Any]]:
    """Tell of crossings and late runs; fails where somebody could not be told, and the next run tries again.

    Gives those that are new.
    """
    with typed_failures():
        refuse_unknown_parameters(get_current_context())
        told = watch_budgets(worker_services(), deliver, say, dry_run=dry_run)
    if told.failed:
        names = ", ".join(sorted({notice.target for notice in told.failed}))
        raise AirflowException(f"could not tell {names}; what was not delivered is tried again, the log says why")
    return [encode(about) for about in (*told.crossings, *told.late)]
