"""The termination message and the exit code."""

import json
from pathlib import Path

import pytest

from spillway.testing.training import TrainingSite
from spillway.trainer.__main__ import main
from spillway.trainer.progress import Ending, write_termination_message


@pytest.fixture
def log(tmp_path: Path) -> Path:
    path = tmp_path / "termination-log"
    path.touch()
    return path


def test_a_finished_attempt_leaves_its_ending(site: TrainingSite, log: Path) -> None:
    site.checkpoints.fence(1)
    assert main(["digits"], site.environment(SPILLWAY_STEPS="3"), termination_log=log) == 0
    assert json.loads(log.read_text()) == {"outcome": "succeeded", "last_step": 3, "durable_step": 3, "error": None}


def test_a_fenced_attempt_leaves_its_reason(site: TrainingSite, log: Path) -> None:
    site.checkpoints.fence(2)
    assert main(["digits"], site.environment(), termination_log=log) == 76
    ending = json.loads(log.read_text())
    assert (ending["outcome"], ending["last_step"], ending["durable_step"]) == ("fenced", None, None)
    assert "attempt 1 is fenced" in ending["error"]


def test_a_bad_environment_leaves_its_reason(log: Path) -> None:
    assert main(["digits"], {}, termination_log=log) == 1
    assert json.loads(log.read_text()) == {
        "outcome": "failed",
        "last_step": None,
        "durable_step": None,
        "error": "environment: SPILLWAY_RUN: expected a value, it is not set; the platform sets it in the pod",
    }


def test_a_fault_of_the_program_shows_its_traceback(
    site: TrainingSite, log: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def broken(self: object) -> float:
        raise ZeroDivisionError("division by zero")

    monkeypatch.setattr("spillway.trainer.digits.Digits.step", broken)
    site.checkpoints.fence(1)
    assert main(["digits"], site.environment(), termination_log=log) == 1
    assert "Traceback" in capsys.readouterr().err
    assert json.loads(log.read_text())["error"] == "ZeroDivisionError: division by zero"


def test_a_loss_that_is_not_a_number_fails_the_job(
    site: TrainingSite, log: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("spillway.trainer.digits.Digits.step", lambda self: float("nan"))
    site.checkpoints.fence(1)
    assert main(["digits"], site.environment(), termination_log=log) == 1
    assert capsys.readouterr().err == "spillway-trainer: run 'digits-1': the loss of step 1 is nan: training diverged\n"
    assert site.checkpoints.manifests() == ()


def test_a_long_reason_still_fits_the_kubelets_limit_as_json(log: Path) -> None:
    write_termination_message(log, Ending(outcome="failed", last_step=1, durable_step=None, error="x" * 10_000))
    assert len(log.read_bytes()) < 4096
    assert json.loads(log.read_text())["outcome"] == "failed"


def test_a_place_without_a_termination_log_is_left_as_it_is(tmp_path: Path) -> None:
    write_termination_message(tmp_path / "absent", Ending(outcome="failed", last_step=1, durable_step=None))
    assert list(tmp_path.iterdir()) == []
