"""Who asked for a try of a task: a person or a schedule, or Airflow, which repeats what was asked for before."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from spillway.model import Attempt, VerdictKind


@dataclass(frozen=True, slots=True, kw_only=True)
class Asking:
    """One time that a training run was asked for, and how many of its attempts were over by then.

    ``max_tries`` tells one asking of a task from the next: it is ``retries`` for a task that is started and ``n`` more
    for one that is cleared after try ``n``, while Airflow's own retry and a deploy that edits ``retries`` leave it
    alone. So does a clear where ``retries`` was lowered by just the tries that were used, or where Airflow does not
    find the DAG: how the run has ended then stands until the task is cleared once more.
    """

    training_run: str
    max_tries: int
    asked_after: int


def asking(known: Asking | None, *, training_run: str, max_tries: int, attempts: Sequence[Attempt]) -> Asking:
    """The asking that a try belongs to: the one on record, or a new one that leaves behind what is over by now.

    Airflow's own retry belongs to the one on record, so that a program which has failed is not started once more
    because a worker was lost before it could say so. It is a new asking all the same where the last attempt ended with
    its task: whoever ended that task wanted nothing of the run, and the task goes on.

    Args:
        attempts: all of the run, the first one first; none where a deferred try goes on, which asks for nothing anew.
    """
    over = [attempt for attempt in attempts if attempt.outcome is not None]
    same = known is not None and (known.training_run, known.max_tries) == (training_run, max_tries)
    if known is not None and same and not (over and ended_with_its_task(over[-1])):
        return known
    return Asking(training_run=training_run, max_tries=max_tries, asked_after=len(over))


def asked_again(known: Asking | None, now: Asking) -> bool:
    """Whether a person wants the same run once more, also where one has cancelled it in between.

    The first asking for a run is none: what was cancelled while its data was on the way stays cancelled.
    """
    return known is not None and known.training_run == now.training_run and known.max_tries != now.max_tries


def ended_with_its_task(attempt: Attempt) -> bool:
    """Whether the attempt was ended because its task was marked or cleared."""
    return attempt.ending is VerdictKind.TASK_ENDED
