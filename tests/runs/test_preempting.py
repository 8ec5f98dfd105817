"""Runs that give way to one which comes first: who is asked when, what they keep, and what is lost on the way."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from spillway.model import Attempt, AttemptState, JobSpec, Outcome, PodPhase, Priority, Tier, VerdictKind
from spillway.runs.admission import admit
from spillway.runs.displacing import awaited
from spillway.runs.engine import Finished, GivingWay, Waiting, Watching, conclude
from spillway.runs.explaining import explained
from spillway.runs.planning import plan
from spillway.runs.settling import Ended, settle
from spillway.runs.stopping import note_ending
from spillway.testing.carried_run import Carried
from spillway.testing.one_pod import watched
from spillway.testing.polling import eventually
from spillway.testing.sandbox_server import Installation
from spillway.testing.standing_run import standing
from spillway.testing.sweeps import an_hour_later

MakeJob = Callable[..., JobSpec]
Carry = Callable[[JobSpec], Carried]
GAVE_WAY = Ended(kind=VerdictKind.DISPLACED, reason="it gives way")


def preempting(run: Carried) -> Carried:
    """The run, carried where whoever may be interrupted gives way at once."""
    configuration = run.services.configuration
    policy = replace(configuration.policy, preempt_after=timedelta())
    run.services = replace(run.services, configuration=replace(configuration, policy=policy))
    return run


@pytest.fixture
def low(open_run: Carry, make_job: MakeJob) -> Callable[..., Carried]:
    """A run that takes one of the two nodes on premises, where alone its data may be stored."""

    def opened(**fields: object) -> Carried:
        return preempting(open_run(make_job(tier=Tier.CORE, spot_ok=True, gpus_per_node=2, **fields)))

    return opened


@pytest.fixture
def urgent(open_run: Carry, make_job: MakeJob) -> Carried:
    """A run that needs a node there too, and comes first."""
    first = {"department": "production", "priority": Priority.PRODUCTION_CORE, "gpus_per_node": 2}
    return preempting(open_run(make_job(tier=Tier.CORE, **first)))


@pytest.fixture
def leaving(low: Callable[..., Carried], urgent: Carried) -> Carried:
    """The younger of two runs that fill both nodes as far as the ledger knows: the one that loses less."""
    standing(low())
    younger = low()
    standing(younger)
    assert urgent.place().displaces == (younger.attempts[0].label,)
    return younger


def test_the_run_with_the_newest_checkpoint_gives_way_and_resumes_at_the_next_step(
    installation: Installation, low: Callable[..., Carried], urgent: Carried
) -> None:
    endless = {"steps": 100_000, "pace": 0.1, "grace": timedelta(seconds=20)}
    old = low(every=100_000, **endless).start()
    old.running(1)
    fresh = low(every=10, **endless).start()
    fresh.running(1, committed=1)
    eventually(lambda: fresh.attempts[0].committed_at, seconds=60)

    last = urgent.start().result()

    (first,) = [attempt for attempt in fresh.attempts if attempt.number == 1]
    assert (last.outcome, last.displaces) == (Outcome.SUCCEEDED, (first.label,))
    assert (first.outcome, first.ending) == (Outcome.PREEMPTED, VerdictKind.DISPLACED)
    assert first.reason == f"it gives way to run {urgent.run} of 'production' (production-core), which comes first"
    assert first.ended_at is not None and last.started_at is not None
    assert first.ended_at.replace(microsecond=0) <= last.started_at, "clusters tell whole seconds"
    assert f"attempt 1 of {urgent.run} waits for {first.label} (research) to give way" in urgent.said
    second = fresh.running(2)
    assert second.resumed_from_step == first.committed_step == first.last_step
    eventually(lambda: fresh.attempts[1].first_step == int(str(first.last_step)) + 1, seconds=60)
    assert [attempt.state for attempt in old.attempts] == [AttemptState.RUNNING]
    assert urgent.services.ledger.cool_downs(urgent.services.clock()) == ()
    assert [cost.attempt for cost in urgent.services.ledger.costs()] == [first.label, last.label]
    assert installation.pods_ever(fresh.run) == (("onprem", first.label), ("onprem", second.label))
    for run in (urgent, fresh, old):
        assert all(entry.otherwise is None for entry in explained(run.services.ledger, run.run))
    told = explained(urgent.services.ledger, urgent.run)[0].record.decision.preemption
    assert told is not None and told.spared.keys() == {old.attempts[0].label}


def test_nobody_is_asked_to_end_before_all_but_the_room_is_there_and_then_once(
    leaving: Carried, urgent: Carried
) -> None:
    watch, cluster = watched(leaving, leaving.attempts[0])
    assert watch.poll().summary.startswith("running on node onprem-1; step 4 of 100, ")
    assert not cluster.stopped

    step = urgent.advance()

    assert isinstance(step, GivingWay)
    reason = f"it gives way to run {urgent.run} of 'production' (production-core), which comes first"
    assert watch.poll().summary == f"{reason}; waiting for the pod to end"
    assert watch.poll().summary == f"{reason}; waiting for the pod to end"
    assert cluster.stopped == 1
    assert isinstance(urgent.advance(), GivingWay)
    cluster.pod = replace(cluster.pod, phase=PodPhase.FAILED, exit_code=75, finished_at=datetime.now(UTC))
    ended = watch.poll().ended
    assert ended is not None
    settled = conclude(leaving.services, leaving.run, 1, ended, leaving.said.append)
    assert (settled.outcome, settled.ending) == (Outcome.PREEMPTED, VerdictKind.DISPLACED)
    assert leaving.services.ledger.cool_downs(leaving.services.clock()) == ()
    assert awaited(urgent.services, urgent.attempts[0]) == ()


def test_a_run_that_is_done_while_it_gives_way_is_done(leaving: Carried, urgent: Carried) -> None:
    watch, cluster = watched(leaving, leaving.attempts[0])
    assert isinstance(urgent.advance(), GivingWay)
    assert watch.poll().ended is None
    assert cluster.stopped == 1
    cluster.pod = replace(cluster.pod, phase=PodPhase.SUCCEEDED, exit_code=0, finished_at=datetime.now(UTC))
    ended = watch.poll().ended
    assert ended is not None
    settled = conclude(leaving.services, leaving.run, 1, ended, leaving.said.append)
    assert (settled.outcome, settled.ending) == (Outcome.SUCCEEDED, VerdictKind.SUCCEEDED)
    assert isinstance(leaving.advance(), Finished)


def test_what_one_leaves_is_held_for_whom_it_left_it_to(
    leaving: Carried, urgent: Carried, low: Callable[..., Carried]
) -> None:
    settle(leaving.services, leaving.attempts[0], GAVE_WAY)
    assert isinstance(leaving.advance(), Waiting), "its own place is held for the other one too"
    assert isinstance(low().advance(), Waiting)
    assert isinstance(urgent.advance(), Watching)


def test_when_the_one_that_is_waited_for_ends_by_itself_nobody_else_is_asked(leaving: Carried, urgent: Carried) -> None:
    assert isinstance(urgent.advance(), GivingWay)
    others = [a for a in urgent.services.recent_attempts() if a.run not in {leaving.run, urgent.run}]
    assert [urgent.services.ledger.displacing(other, urgent.services.clock()) for other in others] == [None]
    settle(leaving.services, leaving.attempts[0], Ended(kind=VerdictKind.SUCCEEDED, reason="it is done"))
    assert isinstance(urgent.advance(), Watching)
    assert [urgent.services.ledger.displacing(other, urgent.services.clock()) for other in others] == [None]


def test_a_run_to_which_nobody_may_give_way_any_more_is_placed_anew_with_the_next_look(
    leaving: Carried, urgent: Carried
) -> None:
    configuration = urgent.services.configuration
    nobody = replace(configuration, policy=replace(configuration.policy, preempt_after=None))
    urgent.services = replace(urgent.services, configuration=nobody)
    step = urgent.advance()
    assert isinstance(step, GivingWay)
    lost = "its place does not fit any more, whoever gives way"
    assert step.why == f"attempt 1 of {urgent.run} is placed anew: {lost}"
    assert [attempt.outcome for attempt in urgent.attempts] == [Outcome.MIGRATED]
    assert urgent.services.ledger.displacing(leaving.attempts[0], urgent.services.clock()) is None
    assert isinstance(urgent.advance(), Waiting)


def test_whoever_carries_on_after_a_crash_waits_for_the_same_ones(leaving: Carried, urgent: Carried) -> None:
    lease = urgent.attempts[0].lease_expires_at
    for _ in range(3):  # each as a new process would
        assert isinstance(urgent.advance(), GivingWay)
    (only,) = urgent.attempts
    assert (only.state, only.displaces) == (AttemptState.STAGED, (leaving.attempts[0].label,))
    assert only.lease_expires_at > lease
    assert urgent.services.ledger.displacing(leaving.attempts[0], urgent.services.clock()) == only


def test_a_run_that_nobody_carries_any_more_keeps_nobody_from_training_on(leaving: Carried, urgent: Carried) -> None:
    urgent.advance()
    victim = leaving.attempts[0]
    later = an_hour_later(urgent.services)
    later.ledger.renew_lease(victim, later.clock() + timedelta(hours=1))
    assert later.ledger.displacing(victim, later.clock()) is None, "before anybody closes it"
    admit(later, leaving.run, leaving.job)  # whoever looks for a place closes what nobody carries
    assert urgent.attempts[0].outcome is Outcome.PREEMPTED
    assert later.ledger.displacing(victim, later.clock()) is None
    watch, cluster = watched(leaving, victim)
    assert watch.poll().ended is None
    assert not cluster.stopped


def test_a_person_who_ends_a_run_that_gives_way_ends_it(leaving: Carried) -> None:
    victim = leaving.attempts[0]
    note_ending(leaving.services, victim, VerdictKind.DISPLACED, "it gives way")
    note_ending(leaving.services, victim, VerdictKind.DELETED_BY_PERSON, "enough seen")
    assert settle(leaving.services, victim, GAVE_WAY).outcome is Outcome.CANCELLED


def test_giving_way_again_and_again_is_not_a_lack_of_progress(low: Callable[..., Carried]) -> None:
    run = low()
    for _ in range(run.services.configuration.runs.attempts_without_progress):
        attempt = run.services.ledger.amend(run.place(), pod_uid="u")
        run.services.ledger.settle(
            attempt, Outcome.PREEMPTED, "it gives way", run.services.clock(), ending=VerdictKind.DISPLACED
        )
    assert isinstance(run.advance(), Watching)


def test_a_dry_run_shows_who_would_give_way_and_changes_nothing(
    low: Callable[..., Carried], open_run: Carry, urgent: Carried
) -> None:
    victims = [low(), low()]
    for run in victims:
        standing(run)
    before = _known(urgent, victims)

    told = plan(urgent.services, urgent.job).text

    label = victims[1].attempts[0].label
    assert f"{label} gives way, which loses " in told
    assert f"{victims[0].attempts[0].label} does not give way: its end is not needed" in told
    assert f"would run on onprem/gpu (owned) once {label} gave way" in told
    assert _known(urgent, victims) == before


def _known(urgent: Carried, runs: list[Carried]) -> tuple[object, list[tuple[Attempt, ...]]]:
    return urgent.services.ledger.reservations(), [run.attempts for run in (urgent, *runs)]
