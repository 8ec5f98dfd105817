"""``runs``: a job carried to its end, left by Ctrl-C and taken up again, cancelled, swept."""

from __future__ import annotations

import json
import signal
from datetime import timedelta

from spillway.model import Attempt, AttemptState, CoolDown, Outcome
from spillway.runs.services import Services
from spillway.testing.command_line import Spillway, StartSpillway
from spillway.testing.polling import eventually

ENDLESS = {
    "SPILLWAY_STEPS": "10000",
    "SPILLWAY_CHECKPOINT_EVERY": "2",
    "SPILLWAY_STEP_SECONDS": "0.2",
    "SPILLWAY_SEED": "7",
}


def only_run(services: Services) -> str:
    (record,) = services.ledger.runs()
    return record.run


def running_attempt(services: Services) -> Attempt:
    """The only run's open attempt, once its pod runs."""
    seen = eventually(services.ledger.open_attempts, lambda found: found and found[0].state is AttemptState.RUNNING)
    return seen[0]


def test_a_job_waits_for_room_is_carried_to_its_end_and_shown(spillway: Spillway, services: Services) -> None:
    until = services.clock() + timedelta(seconds=3)
    for cluster in ("onprem", "cloud"):
        services.ledger.cool_down(CoolDown(cluster=cluster, pool="gpu", until=until, reason="the test wants it"))
    answer = spillway("runs", "start", "quick", "--poll-seconds", "0.2")
    run = only_run(services)
    assert answer.code == 0, answer.err
    assert answer.out.startswith(f"run {run}\n")
    assert answer.out.count("waits, nothing fits now\n") == 1
    assert answer.out.endswith(f"run {run} succeeded with attempt 1, last step 6\n")

    listed = json.loads(spillway("runs", "list", "--json").out)
    assert [(row["run"], row["attempts"], row["state"], row["committed_step"]) for row in listed] == [
        (run, 1, "succeeded", 6)
    ]
    shown = spillway("runs", "show", run).out
    assert "onprem/gpu/owned" in shown and "1..6" in shown and "succeeded" in shown
    evidence = json.loads(spillway("runs", "show", run, "--json").out)
    assert [attempt["outcome"] for attempt in evidence["attempts"]] == ["succeeded"]
    assert [entry["step"] for entry in evidence["checkpoints"]] == [2, 4, 6]

    cancelled = spillway("runs", "cancel", run)
    assert (cancelled.code, cancelled.out) == (0, f"run {run} has no open attempt (succeeded): nothing to do\n")


def test_a_dry_run_starts_nothing(spillway: Spillway, services: Services) -> None:
    answer = spillway("runs", "start", "quick", "--dry-run")
    assert answer.code == 0 and "would run on onprem/gpu (owned)" in answer.out
    assert services.ledger.runs() == ()


def test_ctrl_c_leaves_the_run_as_it_is_and_says_how_to_go_on(
    spillway: Spillway, start_spillway: StartSpillway, services: Services, change_job: object
) -> None:
    assert callable(change_job)
    change_job(environment=ENDLESS)
    process = start_spillway("runs", "start", "quick", "--poll-seconds", "0.2")
    attempt = running_attempt(services)
    process.send_signal(signal.SIGINT)
    _, told = process.communicate(timeout=60)
    assert process.returncode == 130
    assert told.startswith(f"spillway: interrupted; run {attempt.run} was left as it is, attempt 1 at onprem. ")
    assert f"`runs start quick` goes on with it, `runs cancel {attempt.run}` ends it" in told
    pod = services.site("onprem").client.state(attempt.label)
    assert pod.uid == attempt.pod_uid and pod.deleted_at is None

    again = start_spillway("runs", "start", "quick", "--poll-seconds", "0.2")
    assert again.stdout is not None
    assert again.stdout.readline() == f"run {attempt.run}\n"
    eventually(lambda: again.stdout and "running on node" in again.stdout.readline())
    assert [entry.number for entry in services.ledger.attempts(attempt.run)] == [1]
    again.kill()

    planned = spillway("runs", "cancel", attempt.run, "--dry-run")
    assert planned.out == f"would end attempt 1 of {attempt.run} at onprem (running)\n"
    assert spillway("runs", "cancel", attempt.run, "--reason", "enough seen").code == 0
    (settled,) = services.ledger.attempts(attempt.run)
    assert (settled.outcome, settled.reason) == (Outcome.CANCELLED, "enough seen")


def test_a_sweep_stops_only_what_no_run_owns(
    spillway: Spillway, start_spillway: StartSpillway, services: Services, change_job: object
) -> None:
    assert callable(change_job)
    change_job(environment=ENDLESS)
    start_spillway("runs", "start", "quick", "--poll-seconds", "0.2")
    attempt = running_attempt(services)
    assert spillway("runs", "sweep").out == "no pod without an owner\n"

    services.ledger.settle(attempt, Outcome.CANCELLED, "its row was ended by hand", services.clock())
    planned = spillway("runs", "sweep", "--dry-run")
    assert planned.out == f"would stop {attempt.label} at onprem: its attempt was settled: its row was ended by hand\n"
    assert services.site("onprem").client.state(attempt.label).uid == attempt.pod_uid
    assert spillway("runs", "sweep").code == 0
    eventually(lambda: not services.site("onprem").client.owned())


def test_a_run_that_is_misspelt_is_one_message(spillway: Spillway) -> None:
    for words in (("show", "none"), ("cancel", "none")):
        answer = spillway("runs", *words)
        assert (answer.code, answer.out) == (1, "")
        assert answer.err == "spillway: run 'none' is not in the ledger; it has no run yet\n"
