"""The name of a run: the same for every repetition of the same work, a new one when it is run again on purpose."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from typing import Any

from spillway.backfills import RUN_TYPE, placed_as
from spillway.errors import Missing, RunCancelled
from spillway.model import Attempt, JobSpec
from spillway.runs.services import Services

JOB_CHARACTERS = 24


def run_prefix(job_name: str) -> str:
    """How the names of a job's runs begin, and so the keys of its checkpoints; jobs with long names may share one."""
    return f"{job_name[:JOB_CHARACTERS].strip('-')}-"


def run_base(job_name: str, origin: Mapping[str, Any], installation: str) -> str:
    """``<job>-<hash>``: a DNS label that leaves room for a generation and an attempt number.

    The installation counts as much as the origin: two that share a namespace or a bucket may run the same DAG, and
    neither may take the other's pod or checkpoints for its own. The kind of DAG run does not: one that a schedule has
    made becomes a backfill's when that repeats it.
    """
    asked_by = {key: value for key, value in origin.items() if key != RUN_TYPE}
    digest = hashlib.sha256(json.dumps([installation, asked_by], sort_keys=True).encode()).hexdigest()[:10]
    return f"{run_prefix(job_name)}{digest}"


def open_generation(
    services: Services, job: JobSpec, origin: Mapping[str, Any], *, waited_for: str | None = None
) -> str:
    """The run of this origin that is not over yet, opened if there is none.

    Generations are counted from 1; a run that has succeeded, failed or was cancelled is over, and asking again for
    the same origin opens the next one. So does asking with another job, once the platform has failed every attempt
    before it committed a step: nothing is lost then. A backfill's job is opened as it is placed, see ``placed_as``. A
    run goes on as what it began: one that a schedule has made keeps its priority where a backfill repeats it.

    Args:
        waited_for: the run that its caller has waited with, who asks for no other one.
    Raises:
        RunCancelled: a person has ended the run that was waited for.
        ConfigError: the run is open, and it was opened with another job.
    """
    base = run_base(job.name, origin, services.ledger.installation())
    generation = 1
    while True:
        run = f"{base}-{generation}"
        carried = placed_as(job, _first_origin(services, run, origin))
        cancelled = services.ledger.cancel_reason(run)
        if cancelled is not None and run == waited_for:
            raise RunCancelled(run, cancelled)
        if not _over(services.ledger.attempts(run), carried, cancelled=cancelled is not None):
            services.ledger.open_run(run, carried, origin, services.clock())
            return run
        generation += 1


def _first_origin(services: Services, run: str, origin: Mapping[str, Any]) -> Mapping[str, Any]:
    """That of the run on record, else this one."""
    try:
        return services.ledger.origin(run)
    except Missing:
        return origin


def _over(attempts: Sequence[Attempt], job: JobSpec, *, cancelled: bool) -> bool:
    if not attempts:
        return cancelled
    last = attempts[-1]
    if last.outcome is not None and last.outcome.goes_on and not cancelled:
        return last.job != job and all(attempt.committed_step is None for attempt in attempts)
    return last.outcome is not None
