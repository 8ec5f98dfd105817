"""Runs whose every carrier is killed, each at the next change, before or after it is made."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from spillway.model import JobSpec, Outcome
from spillway.sandbox import drills
from spillway.testing.carried_run import Carried
from spillway.testing.dying import DIED, Death, carry_until
from spillway.testing.polling import eventually
from spillway.testing.sandbox_server import Installation

MakeJob = Callable[..., JobSpec]
Carry = Callable[[JobSpec], Carried]

TO_A_POD = ("reserve", "advance:staged", "put", "advance:launched", "apply", "launch")
"""The changes from nothing to a running pod; the first put is the fence."""
TO_THE_END = ("book", "settle")
NEVER = Death(change="nothing", done=False)


def die_at(installation: Installation, run: Carried, *changes: str) -> None:
    """One process after the other carries the run; each dies at its change, the first before it is made."""
    for change in changes:
        for done in (False, True):
            assert carry(installation, run, Death(change=change, done=done)) == DIED, (change, done, run.attempts)


def carry(installation: Installation, run: Carried, death: Death) -> int:
    return carry_until(death, config=installation.config, connections=installation.connections, run=run.run)


def test_a_run_whose_carrier_dies_at_every_change_has_one_pod_and_one_booking(
    installation: Installation, open_run: Carry, make_job: MakeJob
) -> None:
    run = open_run(make_job(steps=3))
    die_at(installation, run, *TO_A_POD, "advance:running", *TO_THE_END)
    assert carry(installation, run, NEVER) == 0
    (only,) = run.attempts
    assert (only.number, only.outcome, only.first_step, only.last_step) == (1, Outcome.SUCCEEDED, 1, 3)
    assert installation.pods_ever(run.run) == (("onprem", only.label),)
    assert [cost.attempt for cost in run.services.ledger.costs(run.run)] == [only.label]
    assert run.services.ledger.reservations() == ()
    assert run.committed("onprem") == (2, 3)


@pytest.mark.slow
def test_a_hand_over_whose_carrier_dies_at_every_change_loses_and_repeats_nothing(
    installation: Installation, open_run: Carry, make_job: MakeJob
) -> None:
    run = open_run(make_job(steps=150, every=10, pace=0.1))
    assert carry(installation, run, Death(change="advance:running", done=True)) == DIED
    eventually(lambda: run.committed("onprem"), seconds=120)
    drills.evict(installation.sandbox, str(run.attempts[0].node), run.attempts[0].label)
    die_at(installation, run, "cool_down", *TO_THE_END, *TO_A_POD, "advance:running")
    assert carry(installation, run, NEVER) == 0
    first, second = run.attempts
    assert (first.outcome, second.outcome) == (Outcome.PREEMPTED, Outcome.SUCCEEDED)
    assert (second.resumed_from_step, second.last_step) == (first.committed_step, 150)
    assert installation.pods_ever(run.run) == (("cloud", second.label), ("onprem", first.label))
    assert [cost.attempt for cost in run.services.ledger.costs(run.run)] == [first.label, second.label]
    assert [step for step, _ in run.losses("cloud")] == list(range(1, 151))
