"""Retention as the platform applies it: at every site, for every run that it still looks at."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta

import pytest

from spillway.checkpoints.layout import CommittedStep, Head
from spillway.checkpoints.replicate import replicate
from spillway.checkpoints.store import CheckpointStore
from spillway.errors import SpillwayError, Unreachable
from spillway.model import AttemptState, JobSpec, Retention, VerdictKind
from spillway.runs.evidence import evidence
from spillway.runs.retention import apply_retention, prune_run, resumed_from
from spillway.runs.services import Services
from spillway.runs.settling import Ended, settle
from spillway.testing.builders import attempt
from spillway.testing.carried_run import Carried
from spillway.testing.checkpoints import commit_step

MakeJob = Callable[..., JobSpec]
Carry = Callable[[JobSpec], Carried]
RETENTION = Retention(last=2, best=0, minimum_age=timedelta(0))


@pytest.fixture
def run(open_run: Carry, make_job: MakeJob) -> Carried:
    """A run with four committed steps at both sites."""
    carried = open_run(make_job())
    carried.place()
    source = carried.checkpoints("onprem")
    source.fence(1)
    for step in (2, 4, 6, 8):
        commit_step(source, step)
    replicate(source, carried.checkpoints("cloud"))
    return carried


def with_retention(services: Services, retention: Retention | None) -> Services:
    return replace(services, configuration=replace(services.configuration, retention=retention))


def test_every_site_is_pruned_and_every_loss_is_still_told(services: Services, run: Carried) -> None:
    before = evidence(services, run.run)["loss"]
    failed = apply_retention(with_retention(services, RETENTION), run.said.append)
    assert not [line for line in failed if run.run in line]
    assert (run.committed("onprem"), run.committed("cloud")) == ((6, 8), (6, 8))
    assert f"checkpoints of {run.run} at cloud: steps 2, 4 taken out of use" in run.story
    assert evidence(services, run.run)["loss"] == before
    assert [entry["step"] for entry in evidence(services, run.run)["checkpoints"]] == [6, 8]


def test_without_declared_retention_nothing_is_deleted(services: Services, run: Carried) -> None:
    assert apply_retention(with_retention(services, None), run.said.append) == ()
    assert (run.committed("onprem"), run.committed("cloud")) == ((2, 4, 6, 8), (2, 4, 6, 8))


def test_a_site_that_does_not_answer_keeps_its_steps_and_the_others_are_pruned(
    services: Services, run: Carried, monkeypatch: pytest.MonkeyPatch
) -> None:
    head = CheckpointStore.head
    silent = services.site("onprem").checkpoints.name

    def head_of(checkpoints: CheckpointStore) -> Head | None:
        if checkpoints.store.name == silent:
            raise Unreachable(silent, "no route to host")
        return head(checkpoints)

    monkeypatch.setattr(CheckpointStore, "head", head_of)
    found = prune_run(services, run.run, RETENTION)
    monkeypatch.undo()
    assert isinstance(found["onprem"], SpillwayError)
    assert (run.committed("onprem"), run.committed("cloud")) == ((2, 4, 6, 8), (6, 8))


def test_a_prune_leaves_the_step_that_the_next_attempt_is_about_to_read(services: Services, run: Carried) -> None:
    lost = Ended(kind=VerdictKind.PREEMPTED, reason="its node is gone")
    settle(services, services.ledger.attempt(run.run, 1), lost)
    following = services.ledger.amend(run.place(), resumed_from_step=2)
    prune_run(services, run.run, RETENTION)
    assert run.committed("onprem") == (2, 6, 8)
    settle(services, following, lost)
    prune_run(services, run.run, RETENTION)
    assert run.committed("onprem") == (6, 8)


def test_the_step_that_a_living_attempt_resumes_from_stays(services: Services, run: Carried) -> None:
    steps = (CommittedStep(step=2, attempt=1, sha256="a" * 64), CommittedStep(step=4, attempt=1, sha256="b" * 64))
    head = Head(run=run.run, attempt=2, committed=steps)
    living = attempt(run=run.run, number=2, resumed_from_step=2, state=AttemptState.LAUNCHED)
    assert resumed_from(head, [living]) == [steps[0]]
    assert resumed_from(head, [replace(living, state=AttemptState.SETTLED)]) == []
    assert resumed_from(head, [replace(living, number=1)]) == []
