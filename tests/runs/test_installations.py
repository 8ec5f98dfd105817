"""Installations that share clusters and buckets stay apart, also where both have a run of the same name."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from spillway.errors import LaunchRefused
from spillway.ledger import ledger_opener, upgrade
from spillway.model import Attempt, AttemptState, JobSpec, Outcome, PodPhase
from spillway.runs.cancelling import cancel
from spillway.runs.engine import Watching
from spillway.runs.identity import open_generation
from spillway.runs.watching import Watch
from spillway.testing.carried_run import Carried

MakeJob = Callable[..., JobSpec]
Carry = Callable[[JobSpec], Carried]

ENDLESS: dict[str, Any] = {"steps": 100_000, "every": 50_000, "pace": 0.1}


@pytest.fixture
def theirs(open_run: Carry, make_job: MakeJob) -> Carried:
    """A run of another installation, whose pod is there."""
    run = open_run(make_job(**ENDLESS))
    assert isinstance(run.advance(), Watching)
    return run


@pytest.fixture
def ours(theirs: Carried, tmp_path: Path) -> Carried:
    """A run of the same name in a ledger of our own."""
    url = f"sqlite:///{tmp_path}/ours.db"
    upgrade(url)
    services = replace(theirs.services, open_ledger=ledger_opener(lambda: url))
    services.ledger.open_run(theirs.run, theirs.job, {"test": theirs.run}, services.clock())
    return replace(theirs, services=services)


def launched(run: Carried) -> Attempt:
    """An attempt of whose pod nothing is on record: its owner died while it was created."""
    staged = run.services.ledger.advance(run.place(), AttemptState.STAGED)
    return run.services.ledger.advance(staged, AttemptState.LAUNCHED)


def is_untouched(theirs: Carried) -> bool:
    pod = theirs.services.pod(theirs.attempts[0])
    return pod.uid == theirs.attempts[0].pod_uid and pod.deleted_at is None and pod.phase is not PodPhase.GONE


def test_a_launch_that_meets_the_pod_of_another_installation_fails_and_leaves_it_alone(
    theirs: Carried, ours: Carried
) -> None:
    with pytest.raises(LaunchRefused, match="it was left alone"):
        ours.advance()
    (refused,) = ours.attempts
    assert (refused.outcome, refused.pod_uid, refused.node) == (Outcome.FAILED, None, None)
    assert ours.services.ledger.costs() == ()
    assert is_untouched(theirs)


def test_the_pod_of_another_installation_is_not_watched(theirs: Carried, ours: Carried) -> None:
    theirs.launched()
    look = Watch(services=ours.services, attempt=launched(ours)).poll()
    assert look.ended is not None and "was never seen at the cluster" in look.ended.reason
    assert look.log_lines == ()
    (attempt,) = ours.attempts
    assert (attempt.state, attempt.pod_uid, attempt.node) == (AttemptState.LAUNCHED, None, None)
    assert is_untouched(theirs)


def test_cancelling_does_not_reach_the_pod_of_another_installation(theirs: Carried, ours: Carried) -> None:
    launched(ours)
    settled = cancel(ours.services, ours.run, "nobody needs it", ours.said.append)
    assert settled is not None
    assert (settled.outcome, settled.pod_uid, settled.started_at) == (Outcome.CANCELLED, None, None)
    assert is_untouched(theirs)


def test_the_same_work_of_two_installations_has_two_names(theirs: Carried, ours: Carried) -> None:
    origin = {"dag_id": "nightly", "run_id": "scheduled__2026-11-30T00:00:00+00:00"}
    names = {open_generation(run.services, run.job, origin) for run in (theirs, ours)}
    assert len(names) == 2
    assert {name.rpartition("-")[2] for name in names} == {"1"}
