"""``runs``: a job carried to its end, left by Ctrl-C and taken up again, cancelled, swept."""

from __future__ import annotations

import json
import signal
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import timedelta

import pytest
import yaml
from sqlalchemy import delete

from spillway.checkpoints.progress import Progress, write_progress
from spillway.config import load_job
from spillway.ledger.schema import cool_downs
from spillway.model import Attempt, AttemptState, CoolDown, DatasetUse, Outcome, Tier
from spillway.runs.engine import place_run
from spillway.runs.services import Services
from spillway.sandbox.settings import INCLUDE
from spillway.testing.command_line import Spillway, StartSpillway
from spillway.testing.polling import eventually
from spillway.testing.sandbox_server import Installation

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

    def look() -> Attempt | None:
        return services.ledger.open_attempt(only_run(services)) if services.ledger.runs() else None

    seen = eventually(look, lambda found: found is not None and found.state is AttemptState.RUNNING)
    assert seen is not None
    return seen


def no_room(services: Services) -> None:
    until = services.clock() + timedelta(hours=1)
    for cluster in ("onprem", "cloud"):
        services.ledger.cool_down(CoolDown(cluster=cluster, pool="gpu", until=until, reason="the test wants it"))


def make_room_once_somebody_waits(services: Services) -> None:
    eventually(lambda: any(services.ledger.decisions(run.run) for run in services.ledger.runs()))
    with services.ledger.database.writing() as connection:
        connection.execute(delete(cool_downs))


def test_a_job_waits_for_room_is_carried_to_its_end_and_shown(spillway: Spillway, services: Services) -> None:
    no_room(services)
    with ThreadPoolExecutor(1) as beside:
        making = beside.submit(make_room_once_somebody_waits, services)
        answer = spillway("runs", "start", "quick", "--poll-seconds", "0.2")
        making.result()
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
    assert (cancelled.code, cancelled.out) == (0, f"run {run} has succeeded: nothing to do\n")


def test_a_dry_run_starts_nothing(spillway: Spillway, services: Services) -> None:
    answer = spillway("runs", "start", "quick", "--dry-run")
    assert answer.code == 0 and "would run on onprem/gpu (owned)\nimage train:" in answer.out
    assert "py3.11 is at home at onprem\n" in answer.out and "would mirror" not in answer.out
    assert services.ledger.runs() == ()


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        pytest.param({"nodes": 999}, "would fail: nothing can ever hold it\n", id="no place is large enough"),
        pytest.param({"image": "train:none"}, "would fail: ", id="the image does not exist"),
    ],
)
def test_a_dry_run_of_what_would_fail_says_so_with_its_exit_code(
    spillway: Spillway, services: Services, change_job: Callable[..., None], changes: dict[str, object], told: str
) -> None:
    change_job(**changes)
    answer = spillway("runs", "start", "quick", "--dry-run")
    assert (answer.code, answer.err) == (1, "") and f"\n{told}" in answer.out
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

    shown = spillway("runs", "show", attempt.run).out
    assert "\nattempt 1: step " in shown and " of 10000, loss " in shown and " UTC\n" in shown

    planned = spillway("runs", "cancel", attempt.run, "--dry-run")
    assert planned.out == (f"run {attempt.run}: would end attempt 1 at onprem (running), no attempt would follow\n")
    assert spillway("runs", "cancel", attempt.run, "--reason", "enough seen").code == 0
    (settled,) = services.ledger.attempts(attempt.run)
    assert (settled.outcome, settled.reason) == (Outcome.CANCELLED, "enough seen")


def test_a_run_that_commits_elsewhere_is_shown_with_its_progress(
    spillway: Spillway, installation: Installation
) -> None:
    read = {"remote_read": {"connection": "onprem_store_remote"}}
    vault = {"name": "vault", "home": "onprem", "prefix": "remote/vault/", "tier": "core", **read}
    digits = {"name": "digits", "home": "onprem", "prefix": "digits/", "tier": "public"}
    (installation.config / "datasets.yaml").write_text(yaml.safe_dump({"datasets": [digits, vault]}))
    services = installation.services()
    declared = load_job(INCLUDE / "jobs" / "digits.yaml", services.configuration.datasets)
    job = replace(
        declared, datasets=(DatasetUse(name="vault"),), tier=Tier.CORE, image_tier=Tier.PUBLIC, gpu_model="H100"
    )
    services.ledger.open_run("digits-1", job, {}, services.clock())
    placed = place_run(services, "digits-1", job, print)
    assert isinstance(placed, Attempt) and placed.candidate.cluster == "cloud"
    told = Progress(first_step=1, step=4, total_steps=6, loss=None, at="2026-01-05T12:00:00")
    write_progress(services.site("onprem").checkpoints, "digits-1", 1, told)
    assert f"\nattempt 1: {told}, told 2026-01-05T12:00:00 UTC\n" in spillway("runs", "show", "digits-1").out


def test_a_run_whose_output_is_no_longer_read_is_left_as_it_is_and_says_how_to_go_on(
    start_spillway: StartSpillway, services: Services, change_job: Callable[..., None]
) -> None:
    change_job(environment=ENDLESS)
    process = start_spillway("runs", "start", "quick", "--poll-seconds", "0.2")
    attempt = running_attempt(services)
    assert process.stdout is not None and process.stderr is not None
    process.stdout.close()  # as `| head` does
    told = process.stderr.read()
    assert process.wait(60) == 1
    assert told.startswith(f"spillway: interrupted; run {attempt.run} was left as it is, attempt 1 at onprem. ")
    assert services.site("onprem").client.state(attempt.label).deleted_at is None


@pytest.mark.parametrize("lost", [False, True], ids=["never placed", "between two attempts"])
def test_a_run_that_waits_for_a_place_is_cancelled(spillway: Spillway, services: Services, lost: bool) -> None:
    job = load_job(INCLUDE / "jobs" / "digits.yaml", services.configuration.datasets)
    services.ledger.open_run("digits-1", job, {}, services.clock())
    if lost:
        placed = place_run(services, "digits-1", job, print)
        assert isinstance(placed, Attempt)
        services.ledger.settle(placed, Outcome.PREEMPTED, "lost its node", services.clock())

    planned = spillway("runs", "cancel", "digits-1", "--dry-run")
    assert planned.out == "run digits-1: would end its waiting, no attempt would follow\n"
    assert services.ledger.cancel_reason("digits-1") is None

    answer = spillway("runs", "cancel", "digits-1", "--reason", "nobody needs it")
    assert (answer.code, answer.err) == (0, "")
    assert answer.out == "run digits-1 gets no attempt any more; whoever waits with it for a place gives up\n"
    assert "UTC: nobody needs it\n" in spillway("runs", "show", "digits-1").out
    assert json.loads(spillway("runs", "show", "digits-1", "--json").out)["cancelled"] == "nobody needs it"
    assert [row["state"] for row in json.loads(spillway("runs", "list", "--json").out)] == ["cancelled"]


def test_a_job_that_waits_for_a_place_ends_with_one_message_when_it_is_cancelled(
    spillway: Spillway, start_spillway: StartSpillway, services: Services
) -> None:
    no_room(services)
    process = start_spillway("runs", "start", "quick", "--poll-seconds", "0.2")
    eventually(lambda: process.stdout and "waits, nothing fits now" in process.stdout.readline())
    run = only_run(services)
    assert spillway("runs", "cancel", run, "--reason", "nobody needs it").code == 0
    _, told = process.communicate(timeout=60)
    assert process.returncode == 1
    assert told.startswith(f"spillway: run '{run}' is cancelled: nobody needs it; ")


def test_a_sweep_stops_only_what_no_run_owns(
    spillway: Spillway, start_spillway: StartSpillway, services: Services, change_job: object
) -> None:
    assert callable(change_job)
    change_job(environment=ENDLESS)
    start_spillway("runs", "start", "quick", "--poll-seconds", "0.2")
    attempt = running_attempt(services)
    assert spillway("runs", "sweep").out == "nothing to put right\n"

    services.ledger.settle(attempt, Outcome.CANCELLED, "its row was ended by hand", services.clock())
    planned = spillway("runs", "sweep", "--dry-run")
    assert planned.out == (
        f"{attempt.label} at onprem would be stopped: its attempt was settled: its row was ended by hand\n"
    )
    assert services.site("onprem").client.state(attempt.label).uid == attempt.pod_uid
    assert spillway("runs", "sweep").code == 0
    eventually(lambda: not services.site("onprem").client.owned(services.ledger.installation()))


def test_a_run_that_is_misspelt_is_one_message(spillway: Spillway) -> None:
    for words in (("show", "none"), ("cancel", "none")):
        answer = spillway("runs", *words)
        assert (answer.code, answer.out) == (1, "")
        assert answer.err == "spillway: run 'none' is not in the ledger; it has no run yet\n"
