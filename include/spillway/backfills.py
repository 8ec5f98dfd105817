"""What it means for a job that a backfill asked for it: nobody waits for a month that is over.

Airflow's backfill runs a DAG for windows of the past. Its jobs come last wherever priorities count, and order no nodes
unless their job file says so: they use what is there.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from spillway.model import JobSpec, Priority

RUN_TYPE, BACKFILL = "run_type", "backfill"
"""What the origin of a run says of the DAG run that asked for it, in Airflow's words."""
LOWEST = max(Priority, key=lambda priority: priority.level)


def is_backfill(origin: Mapping[str, Any]) -> bool:
    """Whether a run was asked for by a backfill, by its origin on record; a person's, or an older one, says nothing."""
    return origin.get(RUN_TYPE) == BACKFILL


def placed_as(job: JobSpec, origin: Mapping[str, Any]) -> JobSpec:
    """The job as it is placed: that of a backfill has the lowest priority, whatever its job file says."""
    return replace(job, priority=LOWEST) if is_backfill(origin) else job


def orders_nodes(job: JobSpec, origin: Mapping[str, Any]) -> bool:
    """Whether nodes may be ordered for the job while it waits."""
    return job.backfill_orders_nodes or not is_backfill(origin)
