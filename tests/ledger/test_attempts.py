from __future__ import annotations

import dataclasses
from collections.abc import Callable
from datetime import timedelta

import pytest

from spillway.errors import IllegalTransition, Missing
from spillway.ledger import AttemptFacts, Ledger
from spillway.ledger.attempts import NEXT
from spillway.model import Attempt, AttemptState, Outcome
from spillway.testing.ledger_values import LEASE, NOW, reserved

LATER = NOW + timedelta(hours=2)
ORDER = [AttemptState.RESERVED, AttemptState.STAGED, AttemptState.LAUNCHED, AttemptState.RUNNING]


def _at(ledger: Ledger, state: AttemptState) -> Attempt:
    """An attempt in that state."""
    attempt = reserved(ledger, f"at-{state}")
    if state is AttemptState.SETTLED:
        return ledger.settle(attempt, Outcome.FAILED, "exit code 3", LATER)
    while attempt.state is not state:
        attempt = ledger.advance(attempt, NEXT[attempt.state])
    return attempt


def test_an_attempt_is_led_through_its_life_and_every_fact_is_kept(ledger: Ledger) -> None:
    attempt = reserved(ledger, "r")
    ledger.advance(attempt, AttemptState.STAGED, image_digest="sha256:ab")
    staged = ledger.attempt("r", 1)
    launched = ledger.advance(staged, AttemptState.LAUNCHED, pod_uid="u-1", resumed_from_step=4000)
    running = ledger.advance(launched, AttemptState.RUNNING, node="gpu-3", started_at=NOW + timedelta(minutes=1))
    settled = ledger.settle(
        running, Outcome.PREEMPTED, "node lost", LATER, first_step=4001, last_step=2**40, committed_step=2**40
    )
    assert settled == dataclasses.replace(
        attempt,
        state=AttemptState.SETTLED,
        image_digest="sha256:ab",
        pod_uid="u-1",
        resumed_from_step=4000,
        node="gpu-3",
        started_at=NOW + timedelta(minutes=1),
        settled_at=LATER,
        outcome=Outcome.PREEMPTED,
        reason="node lost",
        first_step=4001,
        last_step=2**40,
        committed_step=2**40,
        ended_at=LATER,
    )
    assert ledger.attempt("r", 1) == settled


@pytest.mark.parametrize("to", [*ORDER, AttemptState.SETTLED])
@pytest.mark.parametrize("state", [*ORDER, AttemptState.SETTLED])
def test_only_the_next_state_and_the_same_state_are_steps(
    ledger: Ledger, state: AttemptState, to: AttemptState
) -> None:
    attempt = _at(ledger, state)
    if to is state:
        assert ledger.advance(attempt, to, node="elsewhere") == attempt
    elif NEXT.get(state) is to:
        assert ledger.advance(attempt, to) == dataclasses.replace(attempt, state=to)
    else:
        with pytest.raises(IllegalTransition, match=f"{state} -> {to} is not a step of an attempt"):
            ledger.advance(attempt, to)
        assert ledger.attempt(attempt.run, 1) == attempt


def test_a_step_that_is_repeated_keeps_what_the_first_one_wrote(ledger: Ledger) -> None:
    attempt = _at(ledger, AttemptState.STAGED)
    launched = ledger.advance(attempt, AttemptState.LAUNCHED, pod_uid="u-1")
    assert ledger.advance(attempt, AttemptState.LAUNCHED, pod_uid="u-2") == launched
    assert ledger.attempt(attempt.run, 1) == launched


def test_a_step_from_a_state_that_another_process_left_is_refused(ledger: Ledger) -> None:
    seen = reserved(ledger, "r")
    ledger.advance(ledger.advance(seen, AttemptState.STAGED), AttemptState.LAUNCHED)
    with pytest.raises(IllegalTransition, match="attempt 'r-1' is launched, expected reserved to move it to staged"):
        ledger.advance(seen, AttemptState.STAGED)


def test_a_settled_attempt_goes_nowhere_and_says_why_it_ended(ledger: Ledger) -> None:
    seen = reserved(ledger, "r")
    ledger.settle(seen, Outcome.CANCELLED, "marked by a person", LATER)
    with pytest.raises(IllegalTransition, match=r"is settled \(cancelled: marked by a person\), expected reserved"):
        ledger.advance(seen, AttemptState.STAGED)


@pytest.mark.parametrize("state", ORDER)
def test_an_attempt_may_be_settled_from_any_state_and_keeps_its_first_outcome(
    ledger: Ledger, state: AttemptState
) -> None:
    attempt = _at(ledger, state)
    ended_at = LATER - timedelta(minutes=7)
    settled = ledger.settle(attempt, Outcome.SUCCEEDED, "exit code 0", LATER, ended_at=ended_at)
    assert settled == dataclasses.replace(
        attempt,
        state=AttemptState.SETTLED,
        outcome=Outcome.SUCCEEDED,
        reason="exit code 0",
        ended_at=ended_at,
        settled_at=LATER,
    )
    assert ledger.settle(attempt, Outcome.FAILED, "seen late", LATER + LEASE, last_step=1) == settled
    assert ledger.reservations() == ()


def test_facts_are_added_without_a_step_until_the_attempt_is_settled(ledger: Ledger) -> None:
    running = _at(ledger, AttemptState.RUNNING)
    facts: AttemptFacts = {"first_step": 0, "node": None}
    known = ledger.amend(running, **facts)
    assert known == dataclasses.replace(running, first_step=0)
    assert ledger.amend(known, first_step=None) == known
    settled = ledger.settle(running, Outcome.SUCCEEDED, "exit code 0", LATER)
    assert settled.first_step == 0
    assert ledger.amend(running, first_step=7) == settled == ledger.attempt(running.run, 1)


def test_a_lease_is_renewed_and_never_shortened(ledger: Ledger) -> None:
    attempt = reserved(ledger, "r")
    renewed = ledger.renew_lease(attempt, LATER)
    assert renewed == dataclasses.replace(attempt, lease_expires_at=LATER)
    assert ledger.renew_lease(attempt, NOW) == renewed == ledger.attempt("r", 1)


def test_only_open_attempts_whose_lease_is_over_are_expired(ledger: Ledger) -> None:
    lapsed = reserved(ledger, "lapsed")
    ledger.renew_lease(reserved(ledger, "renewed"), NOW + LEASE + timedelta(microseconds=1))
    ledger.settle(reserved(ledger, "settled"), Outcome.SUCCEEDED, "exit code 0", NOW)
    assert ledger.expired(NOW + LEASE - timedelta(microseconds=1)) == ()
    assert ledger.expired(NOW + LEASE) == (lapsed,)


def test_a_lapsed_lease_ends_the_attempt(ledger: Ledger) -> None:
    attempt = reserved(ledger, "r")
    expired = ledger.expire(attempt, LATER)
    assert expired == dataclasses.replace(
        attempt,
        state=AttemptState.SETTLED,
        outcome=Outcome.PREEMPTED,
        reason="its lease ended at 2026-03-02T09:40:00.123456+00:00 and nobody renewed it",
        ended_at=LATER,
        settled_at=LATER,
    )
    assert ledger.reservations() == ()


def test_a_lease_that_was_renewed_in_the_meantime_does_not_end_the_attempt(ledger: Ledger) -> None:
    seen = reserved(ledger, "r")
    renewed = ledger.renew_lease(seen, LATER + LEASE)
    assert ledger.expire(seen, LATER) == renewed == ledger.open_attempt("r")


def test_a_settled_attempt_has_no_lease_to_renew(ledger: Ledger) -> None:
    settled = _at(ledger, AttemptState.SETTLED)
    assert ledger.renew_lease(settled, LATER + LEASE) == settled == ledger.expire(settled, LATER + LEASE)


def test_attempts_are_found_by_run_and_by_label(ledger: Ledger) -> None:
    older = reserved(ledger, "b")
    first = ledger.settle(reserved(ledger, "a-1"), Outcome.PREEMPTED, "evicted", NOW)
    second = reserved(ledger, "a-1", now=NOW + timedelta(minutes=1))
    assert ledger.attempts("a-1") == (first, second)
    assert ledger.attempts("a") == ()
    assert ledger.open_attempt("a-1") == second
    assert ledger.open_attempt("a") is None
    assert [ledger.attempt_by_label(label) for label in ("a-1-1", "a-1-2", "b-1")] == [first, second, older]


def test_the_newest_attempt_of_a_run_is_recent_while_it_is_open_and_for_a_while_after_it_was_settled(
    ledger: Ledger,
) -> None:
    minute = timedelta(minutes=1)
    ledger.settle(reserved(ledger, "again"), Outcome.PREEMPTED, "evicted", LATER)
    again = reserved(ledger, "again", now=NOW + minute)
    first_of_two = ledger.settle(reserved(ledger, "over"), Outcome.PREEMPTED, "evicted", LATER)
    last_of_two = ledger.settle(reserved(ledger, "over", now=NOW + minute), Outcome.SUCCEEDED, "exit code 0", NOW)
    assert first_of_two.ended_at == LATER and last_of_two.ended_at == NOW
    before = reserved(ledger, "ended", now=NOW - minute)
    ended = ledger.settle(before, Outcome.SUCCEEDED, "exit code 0", LATER, ended_at=NOW - minute)
    ledger.open_run("never-placed", again.job, {}, NOW)

    assert ledger.recent_attempts(LATER - minute) == (ended, again)
    assert ledger.recent_attempts(LATER) == (again,)
    assert ledger.recent_attempts(NOW - minute) == (ended, again, last_of_two)


@pytest.mark.parametrize("label", ["", "a", "a-", "a-x", "a-0", "a-2", "a-²", "-1"])
def test_a_label_that_this_ledger_never_gave_is_nobody(ledger: Ledger, label: str) -> None:
    reserved(ledger, "a")
    assert ledger.attempt_by_label(label) is None


def test_an_attempt_that_never_was_is_missing(ledger: Ledger) -> None:
    stranger = dataclasses.replace(reserved(ledger, "r"), number=2)
    calls: list[Callable[[], Attempt]] = [
        lambda: ledger.attempt("r", 2),
        lambda: ledger.advance(stranger, AttemptState.STAGED),
        lambda: ledger.settle(stranger, Outcome.FAILED, "", NOW),
        lambda: ledger.renew_lease(stranger, NOW),
    ]
    for call in calls:
        with pytest.raises(Missing, match="attempt 'r-2' is not in ledger"):
            call()
