"""Runs in the cloud that go back to on-premises when it has room: who, where to, and why not."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from decimal import Decimal

import pytest

from spillway.model import JobSpec, MoveState, Outcome, Tier
from spillway.runs.migrating import bring, drain, order_move
from spillway.runs.returning import Homecoming, homecomings
from spillway.runs.services import Services
from spillway.scaling.presets import DEFAULT
from spillway.scaling.returning import ReturnRules
from spillway.testing.carried_run import Carried
from spillway.testing.polling import eventually

MakeJob = Callable[..., JobSpec]
Carry = Callable[[JobSpec], Carried]
HOUR = timedelta(hours=1)


def by(services: Services, rules: ReturnRules | None, ahead: timedelta = timedelta()) -> Services:
    """The services by these rules, so much later."""
    configuration = replace(services.configuration, scaling=replace(DEFAULT, returning=rules))
    return replace(services, configuration=configuration, clock=lambda: datetime.now(UTC) + ahead)


@pytest.fixture
def away(services: Services, open_run: Carry, start_run: Carry, make_job: MakeJob) -> Carried:
    """A run that trains in the cloud, for on-premises was full when it began and has room again."""
    blockers = [open_run(make_job(tier=Tier.CORE, gpus_per_node=2)).place() for _ in range(2)]
    run = start_run(
        make_job(steps=600, every=2, pace=0.2, gpus_per_node=1, tier=Tier.PUBLIC, expected_duration=9 * HOUR)
    )

    def committed() -> int | None:
        attempt = services.ledger.open_attempt(run.run)
        return attempt.committed_step if attempt is not None and attempt.candidate.cluster == "cloud" else None

    eventually(committed, seconds=120)
    for blocker in blockers:
        services.ledger.settle(blocker, Outcome.CANCELLED, "it was in the way", services.clock())
    return run


def test_a_run_goes_back_where_that_saves_money_and_no_sooner_than_the_rule_says(
    services: Services, away: Carried
) -> None:
    said: list[str] = []
    assert homecomings(by(services, None), said.append) == ()
    assert homecomings(by(services, ReturnRules(after=HOUR)), said.append) == ()
    dear = ReturnRules(after=timedelta(), least_saving=Decimal(10**6))
    assert homecomings(by(services, dear), said.append) == ()
    assert said == []

    (back,) = homecomings(by(services, ReturnRules(after=timedelta())), said.append)
    assert (back.run, back.where) == (away.run, "onprem/gpu/owned")
    assert back.reason.startswith("on-premises has room and about 8:59")

    move = order_move(services, back.run, back.where, back.reason, said.append, origin={"test": "back"})
    drain(services, bring(services, move, said.append), said.append)
    assert homecomings(by(services, ReturnRules(after=timedelta())), said.append) == ()
    eventually(lambda: services.ledger.moves(away.run)[-1].state, lambda state: state is MoveState.DONE, seconds=120)


def test_a_run_stays_while_on_premises_has_no_room_and_says_why(
    services: Services, away: Carried, open_run: Carry, make_job: MakeJob
) -> None:
    for _ in range(2):
        open_run(make_job(tier=Tier.CORE, gpus_per_node=2)).place()
    said: list[str] = []
    found: tuple[Homecoming, ...] = homecomings(by(services, ReturnRules(after=timedelta())), said.append)
    assert found == ()
    assert [line.startswith(f"{away.run} stays: run '{away.run}' is not moved: ") for line in said] == [True]
