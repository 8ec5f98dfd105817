"""The log of a pod that is watched: it goes on where it was, and the last lines of a lost pod stay."""

from __future__ import annotations

import asyncio
import json
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import Any

import pytest
from airflow.sdk.exceptions import TaskDeferred

from spillway.checkpoints.progress import LINE_PREFIX
from spillway.model import Attempt, CoolDown, Outcome, StallRule
from spillway.testing.installed import Installed
from spillway.testing.kube_space import Space
from spillway.testing.ledger_values import LEASE
from spillway.testing.watched import JOB, POLL_SECONDS, RUN, Log, Running, launched, train, until
from spillway_airflow.operators.training_pod import TrainingPodOperator
from spillway_airflow.triggers.pod import PodTrigger

pytestmark = pytest.mark.usefixtures("_soon")


def watch(attempt: Attempt) -> PodTrigger:
    return PodTrigger(run=attempt.run, number=attempt.number, poll_seconds=POLL_SECONDS)


def test_the_log_goes_on_where_it_was_when_the_triggerer_is_restarted(installed: Installed, space: Space) -> None:
    installed.edit("policy.yaml", lambda document: document["runs"].update(node_margin="1s", lease="10m"))
    attempt = launched(installed)
    train(installed, space, attempt, "i=0; while :; do i=$((i+1)); echo line $i; sleep 0.1; done")
    first = watch(attempt)

    async def scenario() -> None:
        before = Running(first)
        await before.says("line 1")
        begun = datetime.now(UTC)
        await until(lambda: installed.ledger.attempt(RUN, 1).lease_expires_at - LEASE > begun + timedelta(seconds=5))
        before.ends()
        after = Running(PodTrigger(**first.serialize()[1]))
        await until(after.numbers)
        assert min(after.numbers()) > 1, "the log was shown from its beginning"
        assert min(after.numbers()) <= max(before.numbers()) + 1, "lines were left out"
        anew = Running(watch(attempt))
        await until(anew.numbers)
        assert min(anew.numbers()) == 1, "the log of a new try has to be whole"

    asyncio.run(scenario())


def test_the_last_lines_of_a_lost_pod_are_repeated_in_the_log_of_the_task_that_goes_on(
    installed: Installed, space: Space, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = Log()
    monkeypatch.setattr(TrainingPodOperator, "log", log)
    attempt = launched(installed)
    later = datetime.now(UTC) + timedelta(hours=1)
    installed.ledger.cool_down(CoolDown(cluster="onprem", pool="gpu", until=later, reason="so that the run waits"))
    script = "for i in $(seq 5); do echo line $i; done; sleep 2; echo bye; exit 75"
    train(installed, space, attempt, script)

    async def event_of_loss() -> Any:
        return await Running(watch(attempt)).event()

    task = TrainingPodOperator(task_id="train", training_run=RUN)
    state: Any = SimpleNamespace(get=lambda key: None, set=lambda *_, **__: None)
    context: Any = {"ti": SimpleNamespace(max_tries=2), "task_state_store": state}
    event = asyncio.run(event_of_loss())
    with pytest.raises(TaskDeferred):
        task.resume(context, json.loads(json.dumps(event)))

    (first, *rest) = installed.ledger.attempts(RUN)
    assert (first.outcome, rest) == (Outcome.PREEMPTED, [])
    heading = log.lines.index("last lines of the log of attempt 1's pod:")
    assert log.lines[heading + 1 : heading + 7] == [*(f"  | line {i}" for i in range(1, 6)), "  | bye"]


def test_a_trainer_that_hangs_is_an_error_of_the_log_once_before_its_attempt_ends(
    installed: Installed, space: Space
) -> None:
    rule = StallRule(after=timedelta(seconds=3), steps=1)
    attempt = launched(installed, replace(JOB, stall=rule))
    step = {"event": "step", "step": 7, "total_steps": 60, "loss": 0.25, "first_step": 7}
    train(installed, space, attempt, f"echo '{LINE_PREFIX}{json.dumps(step)}'; sleep 1000")

    async def scenario() -> tuple[Running, Any]:
        running = Running(watch(attempt))
        return running, await running.event()

    running, event = asyncio.run(scenario())
    assert (event["ended"]["kind"], event["number"]) == ("stalled", 1)
    assert event["ended"]["reason"].startswith("stalled: no step after step 7 and no other word since")
    (told,) = running.log.errors
    assert told.startswith(f"attempt 1 of {RUN}: {event['ended']['reason']}; it is stopped after")
    assert running.log.said("; step 7 of 60, loss 0.25, nothing committed, time left unknown")
