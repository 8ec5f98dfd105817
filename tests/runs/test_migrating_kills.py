"""A move of which every mover and every carrier is killed, each at the next change, before or after it is made."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta

import pytest

from spillway.model import JobSpec, MoveState, Outcome
from spillway.runs.cancelling import cancel
from spillway.runs.migrating import bring, drain, order_move
from spillway.runs.services import Services
from spillway.testing.carried_run import Carried
from spillway.testing.dying import DIED, Death, Work, carry_to_its_end, carry_until
from spillway.testing.polling import eventually
from spillway.testing.sandbox_server import Installation

MakeJob = Callable[..., JobSpec]
Carry = Callable[[JobSpec], Carried]

TO_THE_DRAIN = ("order_move", "record_transfer", "put", "apply", "drain_move")
"""The changes of whoever orders; the first put is of a checkpoint that is brought while the run trains on."""
TO_THE_TARGET = (
    *("amend:ending,reason", "stop", "book", "settle"),
    *("reserve", "advance:staged", "put", "advance:launched", "apply", "launch", "advance:running", "confirm_move"),
)
"""The changes of whoever carries: the source is left, the target reached, its first step seen."""


def order_and_drain(services: Services, run: str) -> object:
    """What the mover does; the same order each time."""

    def silent(text: str) -> None:
        """Nobody listens."""

    origin = {"ordered_by": "a test"}
    return drain(
        services, bring(services, order_move(services, run, "cloud", "a test", silent, origin=origin), silent), silent
    )


def die_at(installation: Installation, run: Carried, work: Work, *changes: str) -> None:
    """One process after the other does the work; each dies at its change, the first before it is made."""
    for change in changes:
        for done in (False, True):
            code = do(installation, run, Death(change=change, done=done), work)
            assert code == DIED, (change, done, run.attempts, run.services.ledger.moves(run.run))


def do(installation: Installation, run: Carried, death: Death, work: Work) -> int:
    where = {"config": installation.config, "connections": installation.connections}
    return carry_until(death, run=run.run, work=work, **where)


@pytest.mark.slow
def test_a_move_whose_movers_and_carriers_die_at_every_change_is_made_once(
    installation: Installation, open_run: Carry, make_job: MakeJob
) -> None:
    run = open_run(make_job(steps=100_000, every=5, pace=0.1, grace=timedelta(seconds=20)))
    assert do(installation, run, Death(change="advance:running", done=True), carry_to_its_end) == DIED
    eventually(lambda: run.committed("onprem"), seconds=120)

    die_at(installation, run, order_and_drain, *TO_THE_DRAIN)
    die_at(installation, run, carry_to_its_end, *TO_THE_TARGET)

    first, second = run.attempts
    (move,) = run.services.ledger.moves(run.run)
    assert (move.state, move.to_attempt, move.problem) == (MoveState.DONE, 2, None)
    assert (first.outcome, second.outcome, second.candidate) == (Outcome.MIGRATED, None, move.target)
    assert second.resumed_from_step == first.committed_step == first.last_step
    assert second.first_step == move.resumed_step == int(str(first.committed_step)) + 1
    assert installation.pods_ever(run.run) == (("cloud", second.label), ("onprem", first.label))
    assert [cost.attempt for cost in run.services.ledger.costs(run.run)] == [first.label]
    assert [r.attempt for r in run.services.ledger.reservations()] == [second.label]
    assert run.services.ledger.cool_downs(run.services.clock()) == ()
    cancel(run.services, run.run, "enough seen", run.said.append)
    losses = [step for step, _ in run.losses("cloud")]
    assert losses == list(range(1, len(losses) + 1)), "no step was trained twice or left out"
