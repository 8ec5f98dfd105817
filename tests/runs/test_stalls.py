"""Trainers on real pods that hang, and others that are only slow. Minutes pass on the watch's clock alone."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta

import pytest

from spillway.errors import NoProgress, Unreachable
from spillway.model import Attempt, JobSpec, Outcome, StallRule, VerdictKind
from spillway.runs.engine import Watching, advance, conclude
from spillway.runs.services import Services
from spillway.runs.settling import Ended, settle
from spillway.runs.watching import Watch
from spillway.testing.carried_run import PATIENCE_SECONDS, Carried
from spillway.testing.hung_pods import hung
from spillway.testing.polling import eventually
from spillway.testing.sandbox_server import Installation

MakeJob = Callable[..., JobSpec]
Carry = Callable[[JobSpec], Carried]
RULE = StallRule(after=timedelta(minutes=15), steps=10)
SLOW = {"steps": 100_000, "every": 100_000, "pace": 0.3, "stall": RULE}


@dataclass
class Ahead:
    """The clock of a watch: the real one and as much as the test lets pass."""

    by: timedelta = timedelta(0)

    def __call__(self) -> datetime:
        return datetime.now(UTC) + self.by

    def minutes(self, count: float) -> None:
        self.by += timedelta(minutes=count)


@dataclass
class Watched:
    """A run whose pod trains, and who watches it."""

    run: Carried
    clock: Ahead
    watch: Watch

    @property
    def step(self) -> int:
        """The newest step that the watch has heard of."""
        self.watch.poll()
        progress = self.watch._hearing.progress
        return progress.step if progress else 0

    def trains_on(self) -> None:
        """Return when a further step was heard of."""
        before = self.step
        eventually(lambda: self.step > before, seconds=PATIENCE_SECONDS, pause=0.2)

    def falls_silent(self) -> None:
        """Return when what was written before the pod hung has been heard."""
        eventually(
            lambda: (self.step, self.step), lambda steps: steps[0] == steps[1], seconds=PATIENCE_SECONDS, pause=1
        )


def watched(run: Carried) -> Watched:
    """The run's next attempt, which has done some steps."""
    attempt = run.launched()
    clock = Ahead()
    found = Watched(run, clock, Watch(services=replace(run.services, clock=clock), attempt=attempt, steady=clock))
    found.trains_on()
    return found


def test_a_trainer_that_hangs_is_told_then_ended_and_followed_by_one_that_goes_on(
    open_run: Carry, make_job: MakeJob
) -> None:
    run = open_run(make_job(**SLOW | {"every": 2}))
    seen = watched(run)
    eventually(lambda: run.committed("onprem"), seconds=PATIENCE_SECONDS)
    with hung(run.run):
        seen.falls_silent()
        seen.clock.minutes(14)
        assert seen.watch.poll().alert is None

        seen.clock.minutes(2)
        look = seen.watch.poll()
        assert look.ended is None
        assert str(look.alert).startswith(f"stalled: no step after step {seen.step} and no other word since")
        assert str(look.alert) in look.summary
        assert run.attempts[0].reason == look.alert
        assert seen.watch.poll() == look

        seen.clock.minutes(15)
        seen.watch.poll()
        assert run.attempts[0].ending is VerdictKind.STALLED
        seen.clock.by = timedelta(0)
        ended = eventually(seen.watch.poll, lambda look: look.ended, seconds=PATIENCE_SECONDS, pause=0.2).ended
    assert ended is not None
    assert (ended.kind, ended.reason) == (VerdictKind.STALLED, str(look.alert).partition(";")[0])
    assert ended.log_tail
    first = conclude(seen.watch.services, run.run, 1, ended, run.said.append)
    assert (first.outcome, first.ending) == (Outcome.STALLED, VerdictKind.STALLED)

    second = run.launched()
    assert second.resumed_from_step == run.committed("onprem")[-1]
    assert second.candidate == first.candidate


def test_a_trainer_that_is_slow_but_alive_is_left_alone(open_run: Carry, make_job: MakeJob) -> None:
    seen = watched(open_run(make_job(**SLOW)))
    for _ in range(4):
        seen.clock.minutes(14)
        seen.trains_on()
        look = seen.watch.poll()
        assert (look.ended, look.alert) == (None, None)


def test_a_trainer_that_goes_on_after_the_alert_is_left_alone(open_run: Carry, make_job: MakeJob) -> None:
    run = open_run(make_job(**SLOW))
    seen = watched(run)
    with hung(run.run):
        seen.falls_silent()
        seen.clock.minutes(16)
        assert seen.watch.poll().alert
    seen.trains_on()
    assert seen.watch.poll().alert is None
    assert not run.attempts[0].reason
    seen.clock.minutes(20)
    seen.trains_on()
    assert seen.watch.poll().ended is None


def test_a_wall_clock_that_is_set_forward_is_no_silence(open_run: Carry, make_job: MakeJob) -> None:
    run = open_run(make_job(**SLOW))
    attempt, wall, steady = run.launched(), Ahead(), Ahead()
    watch = Watch(services=replace(run.services, clock=wall), attempt=attempt, steady=steady)
    with hung(run.run):
        Watched(run, steady, watch).falls_silent()
        wall.minutes(60)
        look = watch.poll()
        assert (look.ended, look.alert) == (None, None)
        steady.minutes(16)
        assert watch.poll().alert


@pytest.mark.parametrize("process", ["onprem-store", "onprem-kube-api"])
def test_an_outage_is_no_silence_of_the_trainer(
    installation: Installation, open_run: Carry, make_job: MakeJob, process: str
) -> None:
    run = open_run(make_job(**SLOW))
    seen = watched(run)
    with hung(run.run):
        seen.falls_silent()
        seen.clock.minutes(14)
        assert seen.watch.poll().alert is None
        with installation.taken(process):
            seen.watch.poll()
        eventually(lambda: _answers(seen), seconds=PATIENCE_SECONDS)
        seen.clock.minutes(14)
        look = seen.watch.poll()
        assert (look.ended, look.alert) == (None, None)


def _answers(seen: Watched) -> bool:
    """Whether cluster and store can be asked again."""
    try:
        seen.run.pod(seen.watch.attempt)
        seen.run.checkpoints("onprem").head()
    except Unreachable:
        return False
    return not seen.watch.poll().unanswered


# -- how often -----------------------------------------------------------------------------------------------------


def lose(run: Carried, kind: VerdictKind, *, committed: int | None = None) -> Attempt:
    attempt = run.place()
    if committed is not None:
        run.services.ledger.amend(attempt, committed_step=committed)
    return settle(run.services, attempt, Ended(kind=kind, reason=f"{kind} on purpose"))


def patient(services: Services) -> Services:
    """Services whose places need no rest."""
    runs = replace(services.configuration.runs, cool_down=timedelta(0))
    return replace(services, configuration=replace(services.configuration, runs=runs))


def gives_up(run: Carried) -> str | None:
    """Why the run is given up; None where another attempt is launched."""
    try:
        step = advance(run.services, run.run, run.job, run.said.append)
    except NoProgress as problem:
        return str(problem)
    assert isinstance(step, Watching)
    return None


def test_two_stalls_without_a_new_step_end_the_run_whatever_is_lost_between_them(
    open_run: Carry, make_job: MakeJob
) -> None:
    run = open_run(make_job(stall=RULE))
    run.services = patient(run.services)
    lose(run, VerdictKind.STALLED, committed=4)
    lose(run, VerdictKind.STALLED)
    lose(run, VerdictKind.LOST_NODE)
    lose(run, VerdictKind.LOST_NODE)
    lose(run, VerdictKind.STALLED)
    told = str(gives_up(run))
    assert "2 attempts stalled and committed no new step: attempt 2 on onprem/gpu" in told
    assert "; attempt 5 on " in told


def test_a_stall_between_losses_begins_no_new_count_of_them(open_run: Carry, make_job: MakeJob) -> None:
    run = open_run(make_job(stall=RULE))
    run.services = patient(run.services)
    for kind in (VerdictKind.LOST_NODE, VerdictKind.LOST_NODE, VerdictKind.STALLED, VerdictKind.LOST_NODE):
        lose(run, kind)
    assert "3 attempts in a row committed no new step: attempt 1 on" in str(gives_up(run))


def test_a_stall_is_no_lost_place(open_run: Carry, make_job: MakeJob) -> None:
    run = open_run(make_job(stall=RULE))
    lose(run, VerdictKind.STALLED)
    assert run.services.ledger.cool_downs(run.services.clock()) == ()
    run.services = patient(run.services)
    lose(run, VerdictKind.LOST_NODE)
    lose(run, VerdictKind.LOST_NODE)
    assert gives_up(run) is None
