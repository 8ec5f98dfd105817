"""Triggers go through the metadata database: what is stored must give the same trigger again."""

from __future__ import annotations

import asyncio
import importlib
import json
import threading
from dataclasses import fields
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import Any

import pytest
from airflow.triggers.base import BaseTrigger

from spillway.codec import decode, encode
from spillway.errors import Unreachable
from spillway.model import JobSpec, VerdictKind
from spillway.runs.watching import Ended, Look
from spillway.testing.builders import job_spec, move
from spillway.testing.installed import Installed
from spillway.testing.watched import Running, launched
from spillway_airflow.triggers import pod
from spillway_airflow.triggers.capacity import CapacityTrigger
from spillway_airflow.triggers.dag_run import DagRunTrigger
from spillway_airflow.triggers.pod import KILL_PATIENCE, PodTrigger

JOB = job_spec(grace=timedelta(seconds=90), environment={"SPILLWAY_STEPS": "4"}, expected_duration=timedelta(hours=2))
TRIGGERS = {
    "pod": PodTrigger(run="digits-0123456789-1", number=3, poll_seconds=2.5, deferred_at="2026-01-05T12:00:00+00:00"),
    "capacity": CapacityTrigger(job=encode(JOB), run="digits-0123456789-1", dag="nightly", poll_seconds=7.5),
    "dag run": DagRunTrigger(dag_id="monthly", run_id="backfill__2026-05-24T22:00:00+00:00", poll_seconds=3.5),
}


def rebuilt(trigger: BaseTrigger) -> BaseTrigger:
    """The trigger as the triggerer makes it from its row."""
    path, arguments = trigger.serialize()
    module, _, name = path.rpartition(".")
    made: BaseTrigger = getattr(importlib.import_module(module), name)(**json.loads(json.dumps(arguments)))
    return made


@pytest.mark.parametrize("name", TRIGGERS)
def test_a_trigger_is_rebuilt_from_what_is_stored(name: str) -> None:
    trigger = TRIGGERS[name]
    again = rebuilt(trigger)

    assert type(again) is type(trigger)
    assert again.serialize() == trigger.serialize()


def test_what_is_stored_of_a_trigger_is_all_that_it_was_made_of() -> None:
    assert TRIGGERS["pod"].serialize() == (
        "spillway_airflow.triggers.pod.PodTrigger",
        {
            "run": "digits-0123456789-1",
            "number": 3,
            "poll_seconds": 2.5,
            "deferred_at": "2026-01-05T12:00:00+00:00",
        },
    )
    path, arguments = TRIGGERS["capacity"].serialize()
    assert path == "spillway_airflow.triggers.capacity.CapacityTrigger"
    assert arguments["poll_seconds"] == 7.5
    assert decode(JobSpec, arguments["job"]) == JOB


def test_a_pod_trigger_remembers_when_it_was_made() -> None:
    before = datetime.now(UTC)
    made = PodTrigger(run="digits-0123456789-1", number=3)
    assert before <= datetime.fromisoformat(made.deferred_at) <= datetime.now(UTC)
    assert rebuilt(made).serialize() == made.serialize()


def test_how_a_pod_ended_travels_in_an_event() -> None:
    ended = Ended(kind=VerdictKind.PROGRAM_ERROR, reason="exit code 1", log_tail=("one", "two"))
    event: dict[str, Any] = json.loads(json.dumps({"ended": encode(ended)}))

    assert decode(Ended, event["ended"]) == ended
    assert set(event["ended"]) == {field.name for field in fields(Ended)}


def test_a_watch_that_finds_its_run_ordered_away_by_its_deadline_wakes_a_worker(
    installed: Installed, monkeypatch: pytest.MonkeyPatch
) -> None:
    attempt = launched(installed)
    looks = iter([Look(summary="it trains"), Look(summary="it trains", move=move(run=attempt.run, number=3))])
    monkeypatch.setattr(pod.Watch, "poll", lambda watch: next(looks))

    async def event() -> Any:
        return await Running(PodTrigger(run=attempt.run, number=1, poll_seconds=0.0)).event()

    assert json.loads(json.dumps(asyncio.run(event()))) == {"run": attempt.run, "move": 3}


def test_a_pod_is_given_up_before_airflow_gives_up_its_trigger() -> None:
    from airflow.configuration import conf

    assert KILL_PATIENCE.total_seconds() < conf.getfloat("triggerer", "on_kill_timeout")


def test_a_kill_that_airflow_cancels_while_it_works_still_ends_the_pod(monkeypatch: pytest.MonkeyPatch) -> None:
    """Airflow's second cancellation cannot be timed on a real triggerer, so the services are stand-ins here."""
    begun, go_on, ended = asyncio.Event(), asyncio.Event(), threading.Event()

    async def slow_services() -> str:
        begun.set()
        await go_on.wait()
        return "services"

    def cancel(services: str, run: str, reason: str, say: Any, *, kind: VerdictKind, number: int, **rest: Any) -> None:
        assert (services, run, number, kind) == ("services", "digits-0123456789-1", 3, VerdictKind.TASK_ENDED)
        ended.set()

    async def kill_twice() -> None:
        killing = asyncio.create_task(TRIGGERS["pod"].on_kill())
        await begun.wait()
        killing.cancel()
        with pytest.raises(asyncio.CancelledError):
            await killing
        assert not ended.is_set()
        go_on.set()
        assert await asyncio.to_thread(ended.wait, 60)

    monkeypatch.setattr(pod, "triggerer_services", slow_services)
    monkeypatch.setattr(pod, "cancel", cancel)
    asyncio.run(asyncio.wait_for(kill_twice(), 60))


def test_a_kill_that_fails_after_airflow_has_turned_away_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    begun, go_on, told = asyncio.Event(), asyncio.Event(), asyncio.Event()
    lines: list[str] = []

    async def no_services() -> None:
        begun.set()
        await go_on.wait()
        raise Unreachable("ledger", "connection refused")

    def error(line: str, **details: Any) -> None:
        lines.append(line)
        told.set()

    async def kill_twice() -> None:
        trigger = rebuilt(TRIGGERS["pod"])
        trigger._log = SimpleNamespace(error=error)  # type: ignore[assignment]
        killing = asyncio.create_task(trigger.on_kill())
        await begun.wait()
        killing.cancel()
        with pytest.raises(asyncio.CancelledError):
            await killing
        go_on.set()
        await told.wait()

    monkeypatch.setattr(pod, "triggerer_services", no_services)
    asyncio.run(asyncio.wait_for(kill_twice(), 60))
    (line,) = lines
    assert line.startswith(
        "attempt 3 of digits-0123456789-1 could not be ended; unless its task goes on, the sweeper will: "
    )
    assert "connection refused" in line
