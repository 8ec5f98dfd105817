"""The trainer as a process, on folders and on a real S3 server."""

import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

from spillway.checkpoints.progress import read_progress
from spillway.testing.builders import job_spec
from spillway.testing.polling import eventually
from spillway.testing.training import (
    RUN,
    Train,
    TrainingSite,
    finish,
    handles_stop_signal,
    read_until,
    stop_at_step,
)
from spillway.trainer.progress import LINE_PERIOD, LINES_AT_ONCE, Lines

PAUSED = {"SPILLWAY_STEP_SECONDS": "3600"}
ENDLESS = {"SPILLWAY_STEPS": "1000000", "SPILLWAY_STEP_SECONDS": "0.02"}


def test_an_interrupted_run_has_the_losses_of_an_undisturbed_one_to_the_bit(any_site: TrainingSite) -> None:
    first = any_site.train(attempt=1, SPILLWAY_STEPS="12")
    with any_site.training(attempt=2, **PAUSED) as process:
        stopped = stop_at_step(process, 13)
    resumed = any_site.train(attempt=3)
    assert (first.exit_code, stopped.exit_code, resumed.exit_code) == (0, 75, 0)
    assert (first.steps, stopped.steps, resumed.steps) == (list(range(1, 13)), [13], list(range(14, 31)))
    undisturbed = replace(any_site, run="undisturbed")
    undisturbed.train()
    assert any_site.losses() == undisturbed.losses()
    assert [step for step, _ in any_site.losses()] == list(range(1, 31))


def test_a_killed_run_computes_the_lost_steps_again_with_the_same_losses(site: TrainingSite) -> None:
    with site.training(**ENDLESS) as process:
        read_until(process, lambda facts: facts["event"] == "step" and facts["step"] == 14)
        process.kill()
        killed = finish(process)
    assert killed.exit_code == -signal.SIGKILL
    durable = site.checkpoints.resume_point().step
    assert durable is not None and durable >= 10
    end = durable + 15
    resumed = site.train(attempt=2, SPILLWAY_STEPS=str(end))
    assert resumed.steps == list(range(durable + 1, end + 1))
    undisturbed = replace(site, run="undisturbed")
    undisturbed.train(SPILLWAY_STEPS=str(end))
    assert site.losses() == undisturbed.losses()


def test_a_manifest_holds_the_losses_since_the_commit_before_it(site: TrainingSite, train: Train) -> None:
    train(site)
    losses = [manifest.metrics["loss"] for manifest in site.checkpoints.manifests()]
    assert [[step for step, _ in pairs] for pairs in losses] == [
        list(range(1, 11)),
        list(range(11, 21)),
        list(range(21, 31)),
    ]


def test_it_learns_to_read_digits(site: TrainingSite, train: Train) -> None:
    done = train(site, SPILLWAY_STEPS="150", SPILLWAY_CHECKPOINT_EVERY="150")
    assert done.exit_code == 0
    losses = dict(site.losses())
    assert losses[1] > 2.0
    assert losses[150] < 0.3
    assert done.named("finished")[0]["held_out_accuracy"] > 0.93


def test_another_seed_is_another_run(site: TrainingSite, train: Train) -> None:
    train(site)
    other = replace(site, run="other")
    train(other, SPILLWAY_SEED="1")
    assert site.losses() != other.losses()


def test_each_of_the_first_steps_is_told_and_later_ones_seldom() -> None:
    lines = Lines()
    told = [step for step in range(1, 100_001) if lines.due(now=step / 100)]
    assert told[:LINES_AT_ONCE] == list(range(1, LINES_AT_ONCE + 1))
    later = told[LINES_AT_ONCE - 1 :]
    period = LINE_PERIOD.total_seconds() * 100
    assert later == [LINES_AT_ONCE + n * period for n in range(len(later))]
    assert later[-1] > 100_000 - period


def test_a_long_training_tells_every_commit_and_loses_no_loss(site: TrainingSite, train: Train) -> None:
    done = train(site, SPILLWAY_STEPS="400", SPILLWAY_CHECKPOINT_EVERY="100")
    assert LINES_AT_ONCE <= len(done.steps) < 400
    assert [facts["step"] for facts in done.named("committed")] == [100, 200, 300, 400]
    assert [step for step, _ in site.losses()] == list(range(1, 401))


def test_progress_is_a_line_per_step_of_a_short_training_and_an_object_per_attempt(
    site: TrainingSite, train: Train
) -> None:
    first = train(site, SPILLWAY_STEPS="12")
    done = train(site, attempt=2)
    assert first.named("started") == [
        {
            "event": "started",
            "run": RUN,
            "attempt": 1,
            "first_step": 1,
            "total_steps": 12,
            "resumed_from_step": None,
        }
    ]
    losses = dict(site.losses())
    assert done.named("step") == [
        {"event": "step", "step": step, "total_steps": 30, "loss": losses[step], "first_step": 13}
        for step in range(13, 31)
    ]
    progress = read_progress(site.bucket, RUN, 2)
    assert progress is not None
    assert (progress.first_step, progress.step, progress.total_steps, progress.durable_step) == (13, 30, 30, 30)
    assert progress.loss == losses[30]
    slowest = max(facts["seconds"] for facts in done.named("committed"))
    assert progress.slowest_commit_seconds == slowest


def test_the_first_step_is_on_the_store_before_the_first_checkpoint(site: TrainingSite) -> None:
    with site.training(**PAUSED) as process:
        read_until(process, lambda facts: facts["event"] == "step")
        progress = eventually(lambda: read_progress(site.bucket, RUN, 1), seconds=60)
    assert progress is not None
    assert (progress.first_step, progress.step, progress.durable_step) == (1, 1, None)


# -- the stop signal --------------------------------------------------------------------------------------------------


def test_the_stop_signal_ends_a_long_pause_at_once_with_a_checkpoint(site: TrainingSite) -> None:
    with site.training(**PAUSED) as process:
        stopped = stop_at_step(process, 1)
    assert stopped.exit_code == 75
    assert site.checkpoints.resume_point().step == 1


def test_a_stop_before_the_first_step_is_not_lost(site: TrainingSite) -> None:
    with site.training(**PAUSED) as process:
        handles_stop_signal(process)
        process.send_signal(signal.SIGTERM)
        stopped = finish(process)
    assert stopped.exit_code == 75
    assert stopped.named("preempted") == [{"event": "preempted", "step": None, "durable_step": None}]


def test_the_stop_signal_reaches_the_trainer_as_the_first_process_of_a_container(site: TrainingSite) -> None:
    site.checkpoints.fence(1)
    environment = site.environment(**PAUSED)
    container = ["unshare", "--map-root-user", "--pid", "--fork", "--kill-child"]
    trainer = [sys.executable, "-m", "spillway.trainer", *job_spec().command]
    with subprocess.Popen(
        [*container, *trainer], env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as outside:
        seen = read_until(outside, lambda facts: facts["event"] == "step")
        (first,) = Path(f"/proc/{outside.pid}/task/{outside.pid}/children").read_text().split()
        assert "NSpid:\t" + first + "\t1\n" in Path(f"/proc/{first}/status").read_text()
        subprocess.run(["kill", "-TERM", first], check=True)
        stopped = finish(outside, seen=seen)
    assert stopped.exit_code == 75
    assert site.checkpoints.resume_point().step == 1


def test_a_stop_that_cannot_be_committed_is_no_preemption(site: TrainingSite, tmp_path: Path) -> None:
    with site.training(**PAUSED) as process:
        seen = read_until(process, lambda facts: facts["event"] == "step")
        Path(site.bucket.name.removeprefix("file://")).rename(tmp_path / "away")
        process.send_signal(signal.SIGTERM)
        stopped = finish(process, seen=seen)
    assert stopped.exit_code == 1
    assert "3 commits in a row failed, the last one of step 1; the last durable step is none" in stopped.stderr


# -- failing stores ---------------------------------------------------------------------------------------------------


def test_a_job_whose_checkpoints_never_become_durable_fails(site: TrainingSite, train: Train) -> None:
    site.bucket.put(f"{RUN}/manifests", b"in the way of every manifest", size_bytes=28)
    failed = train(site)
    assert failed.exit_code == 1
    assert failed.steps == list(range(1, 31))
    failures = [(facts["step"], facts["durable_step"]) for facts in failed.named("commit-failed")]
    assert failures == [(10, None), (20, None), (30, None)]
    assert "3 commits in a row failed, the last one of step 30; the last durable step is none: " in failed.stderr
    assert failed.stderr.count("\n") == 1


def test_a_fenced_trainer_stops_without_committing(any_site: TrainingSite) -> None:
    with any_site.training(**ENDLESS) as process:
        seen = read_until(process, lambda facts: facts["event"] == "committed")
        any_site.checkpoints.fence(2)
        before = any_site.checkpoints.head()
        fenced = finish(process, seen=seen)
    assert fenced.exit_code == 76
    assert "attempt 1 is fenced" in fenced.stderr
    assert any_site.checkpoints.head() == before


def test_an_attempt_that_is_fenced_before_it_starts_computes_nothing(site: TrainingSite, train: Train) -> None:
    site.checkpoints.fence(3)
    fenced = train(site, attempt=2, fence=False)
    assert (fenced.exit_code, fenced.steps) == (76, [])


def test_a_wrong_password_is_one_clear_line(s3_site: TrainingSite, train: Train) -> None:
    refused = train(s3_site, SPILLWAY_STORE_SECRET_KEY="wrong")
    assert refused.exit_code == 1
    assert refused.stderr.startswith("spillway-trainer: s3://")
    assert "refused the credentials" in refused.stderr
    assert refused.stderr.count("\n") == 1
