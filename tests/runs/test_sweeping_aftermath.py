"""What comes to light after an attempt was settled: the sweeper corrects its booking and removes what is left of it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from spillway.checkpoints.progress import read_progress, write_progress
from spillway.errors import TrainingFailed
from spillway.leases import CLOCK_TOLERANCE
from spillway.ledger import ledger_opener, upgrade
from spillway.model import JobSpec, PodPhase, VerdictKind
from spillway.pricing import prolonged
from spillway.runs.cancelling import cancel
from spillway.runs.settling import Ended, note_start, settle
from spillway.runs.sweeping import Remedy, sweep
from spillway.testing.carried_run import Carried
from spillway.testing.polling import eventually
from spillway.testing.sandbox_server import Installation
from spillway.testing.sweeps import later_by, nobody, phase, somebody

MakeJob = Callable[..., JobSpec]
Carry = Callable[[JobSpec], Carried]

ENDLESS: dict[str, Any] = {"steps": 100_000, "every": 50_000, "pace": 0.1}
MOMENT = timedelta(seconds=0.1)


def test_a_booking_is_not_corrected_by_less_than_clocks_may_differ(start_run: Carry, make_job: MakeJob) -> None:
    run = start_run(make_job(steps=2))
    label, site = run.result().label, run.services.site("onprem")
    (cost,) = run.services.ledger.costs(run.run)
    site.client.remove(site.client.state(label))
    progress = read_progress(site.checkpoints, run.run, 1)
    assert progress is not None
    for later, corrected in ((CLOCK_TOLERANCE - MOMENT, False), (CLOCK_TOLERANCE + MOMENT, True)):
        told = replace(progress, at=(cost.ended_at + later).isoformat())
        write_progress(site.checkpoints, run.run, 1, told)
        swept = sweep(later_by(run.services, 1), somebody, run.said.append)
        assert [entry.remedy for entry in swept] == ([Remedy.REBOOKED] if corrected else [])


def test_a_pod_that_goes_on_after_a_mark_is_billed_to_its_end_once_it_is_gone(
    installation: Installation, open_run: Carry, make_job: MakeJob
) -> None:
    run = open_run(make_job(**ENDLESS, grace=timedelta(seconds=60)))
    services, first = run.services, run.launched()
    node = eventually(lambda: run.pod(first), lambda pod: pod.phase is PodPhase.RUNNING).node
    with installation.frozen(f"{node}-agent"):
        marked = cancel(services, run.run, "marked", run.said.append, patience=timedelta(seconds=0.1))
        (early,) = services.ledger.costs(run.run)
        assert marked is not None and marked.ended_at == early.ended_at
        assert [entry.remedy for entry in sweep(services, somebody, run.said.append, dry_run=True)] == [Remedy.STOPPED]
        eventually(lambda: services.clock() > early.ended_at + CLOCK_TOLERANCE + MOMENT)
    eventually(lambda: phase(services, first.label) is PodPhase.GONE, seconds=120)
    progress = read_progress(services.site("onprem").checkpoints, run.run, 1)
    assert progress is not None
    flushed_at = datetime.fromisoformat(progress.at)
    assert flushed_at > early.ended_at

    (planned,) = sweep(services, somebody, run.said.append, dry_run=True)
    assert (planned.attempt, planned.remedy, planned.done) == (first.label, Remedy.REBOOKED, False)
    assert services.ledger.costs(run.run) == (early,)
    (swept,) = sweep(services, somebody, run.said.append)
    assert (swept.attempt, swept.remedy, swept.done) == (first.label, Remedy.REBOOKED, True)
    (late,) = services.ledger.costs(run.run)
    assert late == prolonged(early, flushed_at)
    assert sweep(services, somebody, run.said.append) == ()
    (trace,) = services.ledger.corrections(run.run)
    assert (trace.before, trace.after) == (early, late)


def test_a_pod_that_outlived_a_silence_is_billed_to_the_end_that_it_reports(open_run: Carry, make_job: MakeJob) -> None:
    run = open_run(make_job(steps=100_000, every=5, pace=0.1))
    services, first = run.services, run.launched()
    seen = eventually(lambda: run.pod(first), lambda pod: pod.phase is PodPhase.RUNNING)
    started = note_start(services, first, seen)
    silence = Ended(kind=VerdictKind.CLUSTER_UNREACHABLE, reason="no answer", at=started.started_at)
    settled = settle(services, started, silence)
    assert settled.ended_at is not None
    eventually(lambda: services.clock() > settled.ended_at + CLOCK_TOLERANCE + 10 * MOMENT)  # pods tell whole seconds
    run.checkpoints("onprem").fence(2)
    ended = eventually(lambda: run.pod(first), lambda pod: pod.finished_at is not None, seconds=120)
    assert [entry.remedy for entry in sweep(services, somebody, run.said.append)] == [Remedy.REBOOKED]
    assert [cost.ended_at for cost in services.ledger.costs(run.run)] == [ended.finished_at]
    assert sweep(services, somebody, run.said.append) == ()


def test_what_ended_a_day_ago_is_removed_and_all_else_stays(
    installation: Installation, start_run: Carry, open_run: Carry, make_job: MakeJob, tmp_path: Path
) -> None:
    done, failed = start_run(make_job(steps=2)), start_run(make_job(steps=2, command=("no-such-module",)))
    busy = open_run(make_job(**ENDLESS))
    services, working = busy.services, busy.launched()
    services.ledger.renew_lease(working, services.clock() + timedelta(days=3))
    done.result()
    with pytest.raises(TrainingFailed):
        failed.result()
    ended = {run.attempts[0].label for run in (done, failed)}
    upgrade(f"sqlite:///{tmp_path}/other.db")
    theirs = replace(services, open_ledger=ledger_opener(lambda: f"sqlite:///{tmp_path}/other.db"))
    secrets = installation.secrets("onprem")
    assert sweep(later_by(services, 23), somebody, print) == ()
    assert sweep(later_by(theirs, 25), nobody, print) == ()

    planned = sweep(later_by(services, 25), somebody, print, dry_run=True)
    assert {(entry.attempt, entry.remedy, entry.done) for entry in planned} == {
        (label, Remedy.REMOVED, False) for label in ended
    }
    assert all(phase(services, label) in {PodPhase.SUCCEEDED, PodPhase.FAILED} for label in ended)
    said: list[str] = []
    swept = sweep(later_by(services, 25), somebody, said.append)
    assert {(entry.attempt, entry.remedy, entry.done) for entry in swept} == {
        (label, Remedy.REMOVED, True) for label in ended
    }
    assert any("no-such-module" in line for line in said)
    assert {phase(services, label) for label in ended} == {PodPhase.GONE}
    assert phase(services, working.label) is PodPhase.RUNNING
    assert installation.secrets("onprem") == secrets
    assert sweep(later_by(services, 25), somebody, print) == ()
