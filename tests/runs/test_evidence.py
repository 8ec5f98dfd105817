"""What is told of a run when not all of it can be read: the rest, and what is unknown by name."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from spillway.checkpoints.layout import manifest_key, pruned_key
from spillway.checkpoints.progress import Progress, write_progress
from spillway.codec import encode
from spillway.model import JobSpec, VerdictKind
from spillway.runs.evidence import evidence, timeline
from spillway.runs.settling import Ended, settle
from spillway.testing.carried_run import Carried
from spillway.testing.checkpoints import commit_step
from spillway.testing.sandbox_server import Installation

MakeJob = Callable[..., JobSpec]
Carry = Callable[[JobSpec], Carried]


def committed(run: Carried, *steps: int) -> None:
    """The steps of a first attempt, on premises, that was lost then."""
    attempt = run.place()
    store = run.checkpoints("onprem")
    store.fence(1)
    for step in steps:
        commit_step(store, step)
    settle(run.services, attempt, Ended(kind=VerdictKind.LOST_NODE, reason="node lost"))


def test_what_only_a_store_knows_is_unknown_and_not_empty_while_the_store_is_down(
    installation: Installation, open_run: Carry, make_job: MakeJob
) -> None:
    run = open_run(make_job())
    committed(run, 2, 4)
    whole = evidence(run.services, run.run)
    assert [entry["step"] for entry in whole["checkpoints"]] == [2, 4]
    assert whole["unknown"] == {}
    with installation.taken("onprem-store"):
        found = evidence(run.services, run.run)
    assert (found["checkpoints"], found["loss"], found["progress"]) == (None, None, None)
    assert found["unknown"].keys() == {"checkpoints", "loss", "progress"}
    assert all("is unreachable" in problem for problem in found["unknown"].values())
    same = {"run", "attempts", "images", "placements", "cost"}
    assert {field: found[field] for field in same} == {field: whole[field] for field in same}
    assert "unknown checkpoints, cost 0.0000" in timeline(found)
    assert " from the start, no step: preempted (node lost)" in timeline(found), "none was trained"


def test_the_progress_of_the_newest_attempt_is_told_with_what_is_left_of_it(open_run: Carry, make_job: MakeJob) -> None:
    run = open_run(make_job())
    committed(run, 2, 4)
    assert evidence(run.services, run.run)["progress"] is None
    store = run.services.site("onprem").checkpoints
    told = Progress(first_step=1, step=4, total_steps=6, loss=0.5, at="2026-01-05T12:00:00+00:00", step_seconds=1.5)
    write_progress(store, run.run, 1, told)
    found = evidence(run.services, run.run)["progress"]
    assert found == {**encode(told), "left_seconds": 3.0}
    write_progress(store, run.run, 1, replace(told, step_seconds=None))
    assert evidence(run.services, run.run)["progress"]["left_seconds"] is None


def test_a_damaged_step_is_listed_as_committed_and_named_as_unknown(open_run: Carry, make_job: MakeJob) -> None:
    run = open_run(make_job())
    committed(run, 2, 4)
    store = run.services.site("onprem").checkpoints
    store.put(manifest_key(run.run, 2, 1), b"{}", size_bytes=2)
    found = evidence(run.services, run.run)
    assert [(entry["step"], entry["bytes"] is None) for entry in found["checkpoints"]] == [(2, True), (4, False)]
    assert [entry["step"] for entry in found["loss"]] == [4]
    assert "checkpoint of step 2 is not valid" in found["unknown"]["loss"]


def test_what_is_left_of_a_pruned_step_and_cannot_be_read_hides_nothing_else(
    open_run: Carry, make_job: MakeJob
) -> None:
    run = open_run(make_job())
    committed(run, 2, 4)
    store = run.services.site("onprem").checkpoints
    store.put(pruned_key(run.run, 1, 1), b"{}", size_bytes=2)
    found = evidence(run.services, run.run)
    assert [entry["step"] for entry in found["checkpoints"]] == [2, 4]
    assert [entry["step"] for entry in found["loss"]] == [2, 4]
    assert "checkpoint of step 1 is not valid" in found["unknown"]["loss"]
