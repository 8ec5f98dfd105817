"""How the library's errors end an Airflow task."""

from __future__ import annotations

import inspect

import pytest
from airflow.sdk.exceptions import AirflowFailException, AirflowSkipException

from spillway import errors
from spillway.errors import (
    ConfigError,
    IncompleteListing,
    KeepsChanging,
    ScalerBusy,
    SpillwayError,
    SyncIncomplete,
    TurnLost,
    Unreachable,
)
from spillway_airflow.failures import typed_failures

RETRYABLE = {Unreachable, SyncIncomplete, IncompleteListing, KeepsChanging, ScalerBusy, TurnLost}


def test_exactly_these_errors_are_left_to_the_retries_of_airflow() -> None:
    classes = [value for value in vars(errors).values() if inspect.isclass(value) and issubclass(value, SpillwayError)]
    assert {kind for kind in classes if kind.retry_helps} == RETRYABLE


def test_an_error_that_passes_stays_what_it_is() -> None:
    problem = Unreachable("cluster 'onprem'", "connection refused")
    with pytest.raises(Unreachable) as raised, typed_failures():
        raise problem
    assert raised.value is problem


def test_an_error_that_does_not_pass_fails_the_task_at_once_with_its_message() -> None:
    problem = ConfigError("digits.yaml", "gpus_per_node", "expected at least 1, got 0")
    with pytest.raises(AirflowFailException) as raised, typed_failures():
        raise problem
    assert str(raised.value) == "digits.yaml: gpus_per_node: expected at least 1, got 0"
    assert raised.value.__suppress_context__


@pytest.mark.parametrize("signal", [AirflowSkipException("dry run"), RuntimeError("a bug")], ids=["skip", "bug"])
def test_what_is_not_an_error_of_the_library_passes_through(signal: Exception) -> None:
    with pytest.raises(type(signal)) as raised, typed_failures():
        raise signal
    assert raised.value is signal
