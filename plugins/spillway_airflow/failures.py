"""How the library's errors end an Airflow task."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from airflow.sdk.exceptions import AirflowFailException

from spillway.errors import SpillwayError


@contextmanager
def typed_failures() -> Iterator[None]:
    """Fail the task at once where trying again cannot help; let Airflow retry where it can."""
    try:
        yield
    except SpillwayError as problem:
        if problem.retry_helps:
            raise
        raise AirflowFailException(str(problem)) from problem
