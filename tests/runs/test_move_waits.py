"""A run that is moved may commit once more before it is asked to end."""

from __future__ import annotations

import threading
from collections.abc import Callable
from datetime import UTC, datetime, timedelta

from spillway.checkpoints.prune import prune
from spillway.model import JobSpec, MoveState, Retention
from spillway.runs.migrating import bring, order_move
from spillway.runs.services import Say
from spillway.testing.carried_run import Carried
from spillway.testing.checkpoints import commit_step
from spillway.testing.polling import eventually
from spillway.testing.standing_run import standing

MakeJob = Callable[..., JobSpec]
Carry = Callable[[JobSpec], Carried]


def brought(run: Carried, wait: timedelta, say: Say | None = None) -> MoveState:
    move = order_move(run.services, run.run, "cloud", "maintenance", run.said.append, origin={"test": run.run})
    return bring(run.services, move, say or run.said.append, wait=wait).state


def waits(run: Carried) -> bool:
    return any("waiting for its next checkpoint" in line for line in run.said)


def test_the_checkpoint_that_was_waited_for_is_at_the_target_before_the_drain(
    open_run: Carry, make_job: MakeJob
) -> None:
    run = open_run(make_job())
    standing(run)

    def commit() -> None:
        eventually(lambda: waits(run))
        commit_step(run.checkpoints("onprem"), 6)

    threading.Thread(target=commit, daemon=True).start()
    assert brought(run, timedelta(minutes=1)) is MoveState.ORDERED
    assert run.committed("cloud")[-1] == 6
    assert not any("committed nothing" in line for line in run.said)


def test_a_run_that_commits_nothing_in_that_time_is_moved_all_the_same(open_run: Carry, make_job: MakeJob) -> None:
    run = open_run(make_job())
    standing(run)
    assert brought(run, timedelta(seconds=0.1)) is MoveState.ORDERED
    assert run.said[-1] == f"{run.run}: it committed nothing in 0 s and is moved all the same"


def test_a_prune_is_not_taken_for_the_checkpoint_that_is_waited_for(open_run: Carry, make_job: MakeJob) -> None:
    run = open_run(make_job())
    standing(run)
    retention = Retention(last=1, best=0, minimum_age=timedelta(0))

    def say(line: str) -> None:
        run.said.append(line)
        if "waiting for its next checkpoint" in line:
            prune(run.checkpoints("onprem"), retention, now=datetime.now(UTC) + timedelta(minutes=1))

    assert brought(run, timedelta(seconds=0.1), say) is MoveState.ORDERED
    assert run.committed("onprem") == (4,)
    assert "it committed nothing" in run.said[-1]


def test_nothing_is_waited_for_unless_it_is_asked_for(open_run: Carry, make_job: MakeJob) -> None:
    run = open_run(make_job())
    standing(run)
    assert brought(run, timedelta()) is MoveState.ORDERED
    assert not waits(run)
