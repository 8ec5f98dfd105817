"""While a run waits, its trigger says to all others where it lacks nothing but room."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta

import pytest

from spillway.codec import encode
from spillway.ledger import Ledger
from spillway.model import Attempt, AttemptState, Outcome, PlacementDecision, PreemptionPlan, Snapshot, Victim
from spillway.testing.builders import job_spec, placement_policy, snapshot
from spillway.testing.installed import Installed
from spillway.testing.ledger_values import LEASE, PLACE, reserve, reserved
from spillway.testing.watched import Running, until
from spillway_airflow.triggers.capacity import CapacityTrigger

RUN, JOB = "digits-0123456789-1", job_spec()


@pytest.mark.usefixtures("_soon")
def test_a_run_that_waits_holds_no_pool_that_cannot_be_seen_any_more(installed: Installed) -> None:
    ledger, now = installed.ledger, datetime.now(UTC)
    ledger.open_run(RUN, JOB, {}, now)
    ledger.still_waits(RUN, JOB, {("onprem", "gpu")}, now)

    def held() -> bool:
        return bool(ledger.complete(None, JOB, snapshot(), placement_policy(), datetime.now(UTC)).queue)

    async def wait() -> object:
        running = Running(CapacityTrigger(job=encode(JOB), run=RUN, poll_seconds=0.1))
        await until(lambda: not held())
        ledger.cancel_run(RUN, "nobody needs it", now)
        return await running.event()

    assert held()
    assert asyncio.run(wait()) == {"run": RUN, "chosen": None}


def displacing(ledger: Ledger, now: datetime) -> tuple[Attempt, Attempt]:
    """An attempt, and the staged one of ``RUN`` for which it is to end."""
    victim = reserved(ledger, "victim", now=now)
    plan = PreemptionPlan(
        place=PLACE, victims=(Victim(attempt=victim.label, lost_gpu_seconds=1.0, reason="it is below"),), spared={}
    )

    def decide(seen: Snapshot) -> PlacementDecision:
        return PlacementDecision(job=JOB.name, taken_at=now, chosen=PLACE, possible=True, verdicts=(), preemption=plan)

    attempt, _ = reserve(ledger, RUN, JOB, now=now - LEASE, decide=decide)
    assert attempt is not None
    staged = ledger.advance(attempt, AttemptState.STAGED)

    asking = ledger.displace(
        staged, now=now, snapshot=snapshot(), policy=placement_policy(), needed=lambda seen, asked: asked
    )
    assert asking is not None and ledger.displacing(victim, asking.reserved_at) == asking
    return victim, asking


WAITS = f"attempt 1 of {RUN} waits for victim-1 (research) to give way"


@pytest.mark.usefixtures("_soon")
def test_a_run_that_has_a_place_waits_until_those_that_give_way_have_ended(installed: Installed) -> None:
    ledger, now = installed.ledger, datetime.now(UTC)
    victim, attempt = displacing(ledger, now)

    async def wait() -> object:
        running = Running(CapacityTrigger(job=encode(JOB), run=RUN, poll_seconds=0.1))
        await running.says(WAITS)
        assert ledger.attempt(RUN, 1).lease_expires_at > attempt.lease_expires_at
        ledger.settle(victim, Outcome.SUCCEEDED, "it is done", now + timedelta(minutes=1))
        return await running.event()

    assert asyncio.run(wait()) == {"run": RUN, "chosen": encode(PLACE)}


@pytest.mark.usefixtures("_soon")
def test_nobody_gives_way_any_more_to_a_run_whose_task_is_ended(installed: Installed) -> None:
    ledger = installed.ledger
    victim, asking = displacing(ledger, datetime.now(UTC))

    async def kill() -> None:
        trigger = CapacityTrigger(job=encode(JOB), run=RUN, poll_seconds=0.1)
        running = Running(trigger)
        await running.says(WAITS)
        running.ends()
        await trigger.on_kill()

    asyncio.run(kill())
    assert ledger.attempt(RUN, 1).outcome is Outcome.CANCELLED
    assert ledger.displacing(victim, asking.reserved_at) is None
