"""The name of a run: the same for every repetition of the same work, a new one when it is run again on purpose."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import Any

from spillway.model import JobSpec, Outcome
from spillway.runs.services import Services

JOB_CHARACTERS = 24


def run_base(job_name: str, origin: Mapping[str, Any]) -> str:
    """``<job>-<hash of the origin>``: a DNS label that leaves room for a generation and an attempt number."""
    digest = hashlib.sha256(json.dumps(dict(origin), sort_keys=True).encode()).hexdigest()[:10]
    return f"{job_name[:JOB_CHARACTERS].strip('-')}-{digest}"


def open_generation(services: Services, job: JobSpec, origin: Mapping[str, Any]) -> str:
    """The run of this origin that is not over yet, opened if there is none.

    Generations are counted from 1; a run that has succeeded, failed or was cancelled is over, and asking again for
    the same origin opens the next one.
    """
    base = run_base(job.name, origin)
    generation = 1
    while True:
        run = f"{base}-{generation}"
        attempts = services.ledger.attempts(run)
        if not attempts or attempts[-1].outcome in {None, Outcome.PREEMPTED}:
            services.ledger.open_run(run, job, origin, services.clock())
            return run
        generation += 1
