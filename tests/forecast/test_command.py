"""``python -m spillway.forecast backtest`` on a history in a file."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from spillway.forecast.__main__ import main
from spillway.testing.histories import made_up_jobs

METHODS = ["--method", "current count", "--method", "chosen"]


@pytest.fixture
def trace(tmp_path: Path) -> Callable[[int], str]:
    def write(days: int) -> str:
        file = tmp_path / "jobs.csv"
        lines = [
            f"{job.job},{job.submitted_at.isoformat()},{job.gpus},{job.submitted_at.isoformat()},{job.ended_at.isoformat()}"
            for job in made_up_jobs(days)
            if job.ended_at is not None
        ]
        file.write_text("\n".join(["job,submitted_at,gpus,started_at,ended_at", *lines]), encoding="utf-8")
        return str(file)

    return write


def test_each_method_has_a_line_and_the_choice_of_now_its_reason(
    trace: Callable[[int], str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["backtest", trace(16), "--days", "2", "--horizon", "1h", *METHODS]) == 0
    first, header, count, chosen, now = capsys.readouterr().out.splitlines()
    assert first.endswith(" steps of 1:00:00, 2026-03-02 01:00 UTC to 2026-03-18 00:00 UTC")
    assert header.split()[:4] == ["horizon", "method", "WAPE", "%"]
    assert count.startswith("1 h ahead  current count  ")
    assert chosen.startswith("1 h ahead  chosen         ")
    assert now.startswith("now, 1 h ahead: ")


def test_a_program_gets_the_scores_and_the_choice_as_json(
    trace: Callable[[int], str], capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["backtest", trace(16), "--days", "2", "--horizon", "2h", "--horizon", "1d", "--json", *METHODS]
    assert main(words) == 0
    told = json.loads(capsys.readouterr().out)
    assert [(score["horizon"], score["method"]) for score in told["scores"]] == [
        (2, "current count"), (2, "chosen"), (24, "current count"), (24, "chosen"),
    ]  # fmt: skip
    assert all(0 <= score["coverage"] <= 1 and score["wape"] > 0 for score in told["scores"])
    assert [choice["horizon"] for choice in told["now"]] == [2, 24]


def test_too_short_a_history_and_a_file_that_is_none_are_one_message(
    trace: Callable[[int], str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["backtest", trace(16)]) == 1
    assert "too few to go back 28 days" in capsys.readouterr().err
    assert main(["backtest", str(tmp_path / "none.csv"), "--json"]) == 1
    told = capsys.readouterr()
    assert "none.csv: cannot be read" in told.err
    assert json.loads(told.out)["error"]["kind"] == "BadTrace"


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        (["--horizon", "soon"], "expected a duration such as '30s', '10m', '2h' or 'PT30S', got 'soon'"),
        (["--horizon", "90m"], "a horizon is whole steps of 1:00:00, got 1:30:00"),
        (["--days", "0"], "expected a whole number from 1 to 3650, got '0'"),
        (["--days", "99999999999"], "expected a whole number from 1 to 3650, got '99999999999'"),
        (["--horizon", "-1h"], "expected a duration such as '30s', '10m', '2h' or 'PT30S', got '-1h'"),
        (["--step", "30s"], "--step: expected whole minutes, got 0:00:30"),
        (["--time-zone", "Mars/Olympus"], "expected a time zone such as Europe/Berlin, got 'Mars/Olympus'"),
        (["--method", "survivals"], "Did you mean 'survival'?"),
    ],
)
def test_words_that_make_no_sense_are_told_before_the_file_is_read(
    words: list[str], problem: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["backtest", "no such file", *words])
    assert ended.value.code == 2
    assert problem in capsys.readouterr().err
