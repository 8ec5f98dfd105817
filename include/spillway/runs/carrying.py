"""Carry a run to its end from one process, without Airflow: the same steps, waiting in place instead of deferring."""

from __future__ import annotations

import time

from spillway.errors import TrainingFailed
from spillway.model import Attempt, JobSpec, Outcome
from spillway.runs.deadline import leave
from spillway.runs.engine import Finished, GivingWay, Waiting, Watching, advance, conclude, settled_attempts
from spillway.runs.explaining import newest, told
from spillway.runs.services import Say, Services
from spillway.runs.watching import Watch

NOTHING_FITS = "nothing fits now, waiting"


def carry(services: Services, run: str, job: JobSpec, say: Say, *, poll_seconds: float = 5.0) -> Attempt:
    """The run's last attempt, which succeeded. A process that dies here is followed by another that calls this again.

    Each call is somebody who asks for the run: it goes on from its newest checkpoint, whatever ended it before.

    Raises:
        TrainingFailed: the program failed, or a person ended the run.
        RunCancelled: a person ended the run while it waited for a place.
        SpillwayError: what ``advance`` raises.
    """
    services.ledger.ask_again(run)
    asked_after, said = settled_attempts(services, run), ""
    while True:
        step = advance(services, run, job, say, asked_after=asked_after)
        if isinstance(step, Finished):
            if step.attempt.outcome is not Outcome.SUCCEEDED:
                raise TrainingFailed(f"run {run} is {step.attempt.outcome}: {step.attempt.reason}")
            return step.attempt
        if isinstance(step, Watching):
            said = ""
            _watch(services, step.attempt, say, poll_seconds)
            continue
        why = step.why if isinstance(step, GivingWay) else NOTHING_FITS
        if why != said:
            said = why
            say(told(newest(services.ledger, run)) if isinstance(step, Waiting) else why)
        time.sleep(poll_seconds)


def _watch(services: Services, attempt: Attempt, say: Say, poll_seconds: float) -> None:
    """Return when the attempt has ended and is settled."""
    watch = Watch(services=services, attempt=attempt)
    said = ""
    while True:
        look = watch.poll()
        for line in look.log_lines:
            say(f"  | {line}")
        if look.summary != said:
            said = look.summary
            say(f"attempt {attempt.number}: {said}")
        if look.move is not None:
            leave(services, look.move, say)
            continue
        if look.ended is not None:
            conclude(services, attempt.run, attempt.number, look.ended, say)
            return
        time.sleep(max(poll_seconds, look.pause.total_seconds() if look.pause else 0.0))
