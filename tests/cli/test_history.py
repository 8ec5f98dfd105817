"""``history``: a ledger's runs as a trace, and another scheduler's jobs beside them."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from spillway.__main__ import main
from spillway.ledger import Ledger, open_ledger
from spillway.model import JobRecord
from spillway.replay.trace import read_trace
from spillway.testing.builders import job_spec
from spillway.testing.ledger_files import new_ledger

NOW = datetime(2026, 3, 2, 9, 30, 0, 123456, tzinfo=UTC)
SLURM = (
    "job,submitted_at,gpus,duration_seconds\n7,2026-03-01T00:00:00Z,8,3600\n8,0,0,60\n7,2026-03-01T00:00:00Z,8,3600\n"
)
SEVEN = JobRecord(
    job="7",
    submitted_at=datetime(2026, 3, 1, tzinfo=UTC),
    gpus=8,
    started_at=datetime(2026, 3, 1, tzinfo=UTC),
    ended_at=datetime(2026, 3, 1, 1, tzinfo=UTC),
)


@pytest.fixture
def ledger(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Ledger:
    """A ledger with one run that waits, which the commands find."""
    url = new_ledger(tmp_path / "ledger.db")
    file = tmp_path / "connections.json"
    file.write_text(json.dumps({"spillway_ledger": {"conn_type": "sqlite", "extra": json.dumps({"url": url})}}))
    monkeypatch.setenv("SPILLWAY_CONNECTIONS", str(file))
    ledger = open_ledger(url)
    ledger.open_run("own", job_spec(), {}, NOW)
    return ledger


@pytest.mark.parametrize("name", ["jobs.csv", "jobs.csv.gz"])
def test_what_is_exported_is_read_back_as_it_was(
    ledger: Ledger, tmp_path: Path, name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    ledger.import_jobs("slurm", [replace(SEVEN, held_for=timedelta(seconds=0.5), department='a, "b"\nc')])
    file = tmp_path / name
    assert main(("history", "export", str(file))) == 0
    assert capsys.readouterr().out == f"wrote 1 job to {file}\n"
    assert read_trace(file).jobs == ledger.own_jobs()
    written = file.read_bytes()
    assert main(("history", "export", str(file), "--imported")) == 0
    assert read_trace(file).jobs == ledger.job_history()
    assert main(("history", "export", str(file))) == 0
    assert (file.read_bytes(), {entry.name for entry in tmp_path.iterdir() if entry.name.startswith(".")}) == (
        written,
        set(),
    )


def test_an_import_tells_what_is_new_and_what_was_left_out_and_may_be_repeated(
    ledger: Ledger, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "slurm.csv"
    file.write_text(SLURM)
    words = ("history", "import", str(file), "--source", "slurm")
    assert main((*words, "--dry-run")) == 0
    told = "left out: 1 (asked for no GPU)\nleft out: 1 (the same row once more)\n"
    assert capsys.readouterr().out.endswith(f"would import from 'slurm' (csv): 1 new, 0 changed, 0 as before\n{told}")
    assert ledger.imported_jobs() == {}
    for counts in ("1 new, 0 changed, 0 as before", "0 new, 0 changed, 1 as before"):
        assert main(words) == 0
        assert capsys.readouterr().out.endswith(f"imported from 'slurm' (csv): {counts}\n{told}")
    assert ledger.imported_jobs() == {"slurm": (SEVEN,)}
    assert [run.run for run in ledger.runs()] == ["own"]


def test_a_file_at_fault_is_one_message_and_imports_nothing(
    ledger: Ledger, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "slurm.csv"
    file.write_text(SLURM + "9,0,8,nan\n")
    assert main(("history", "import", str(file), "--source", "slurm")) == 1
    assert capsys.readouterr().err == (
        f"spillway: {file}: line 5: duration_seconds: expected a number, got 'nan'; "
        "mend it, or leave such rows out with --leave-out-bad-rows\n"
    )
    assert ledger.imported_jobs() == {}
    assert main(("history", "import", str(file), "--source", "slurm", "--leave-out-bad-rows")) == 0
    assert ledger.imported_jobs() == {"slurm": (SEVEN,)}


def test_a_file_that_cannot_be_written_is_one_message(
    ledger: Ledger, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "none" / "jobs.csv"
    assert main(("history", "export", str(file))) == 1
    assert capsys.readouterr().err == f"spillway: {file}: cannot be written: No such file or directory\n"


def test_a_made_up_trace_that_has_no_place_is_told_before_it_is_made_up(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(("history", "make-up", "/nowhere/at/all.csv", "--days", "3650")) == 1
    shown = capsys.readouterr()
    assert (shown.out, shown.err.count("\n")) == ("", 1)
    assert "/nowhere/at/all.csv cannot be written" in shown.err


def test_a_made_up_trace_is_the_same_for_the_same_seed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    once, again = tmp_path / "a.csv.gz", tmp_path / "b.csv.gz"
    for file in (once, again):
        assert main(("history", "make-up", str(file), "--like", "philly", "--days", "3", "--month-end")) == 0
    jobs = read_trace(once).jobs
    assert capsys.readouterr().out.startswith(f"wrote {len(jobs)} made-up jobs to {once}\n")
    assert once.read_bytes() == again.read_bytes()
    assert {job.submitted_at.date().isoformat() for job in jobs} == {"2026-01-01", "2026-01-02", "2026-01-03"}
