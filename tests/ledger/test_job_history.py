"""The history of jobs: own runs by their attempts, and what was imported beside them."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

from spillway.ledger import Ledger
from spillway.ledger.history import WRITTEN_AT_ONCE, ImportCounts
from spillway.model import AttemptState, DemandSeries, JobRecord, Outcome, Priority
from spillway.testing.builders import job_spec
from spillway.testing.ledger_values import NOW, reserve, reserved

HOUR = timedelta(hours=1)
JOB = job_spec()
WAITED = JobRecord(
    job="r",
    submitted_at=NOW,
    gpus=int(JOB.gpus),
    nodes=JOB.nodes,
    priority=JOB.priority,
    department=JOB.department,
    gpu_type=JOB.gpu_model,
    duration_estimate=JOB.expected_duration,
)


def trained(ledger: Ledger, run: str, begins: float, ends: float, outcome: Outcome, *, anew: bool = True) -> None:
    """An attempt of the run that trained from one hour after NOW to another."""
    attempt = reserved(ledger, run) if anew else reserve(ledger, run, now=NOW + begins * HOUR)[0]
    assert attempt is not None
    for state in (AttemptState.STAGED, AttemptState.LAUNCHED):
        attempt = ledger.advance(attempt, state)
    attempt = ledger.advance(attempt, AttemptState.RUNNING, started_at=NOW + begins * HOUR)
    ledger.settle(attempt, outcome, "as the test says", NOW + ends * HOUR)


def test_a_run_is_a_job_from_when_it_was_asked_for_to_when_its_last_attempt_ended(ledger: Ledger) -> None:
    trained(ledger, "r", 1, 3, Outcome.SUCCEEDED)
    assert ledger.own_jobs() == (replace(WAITED, started_at=NOW + HOUR, ended_at=NOW + 3 * HOUR),)


def test_an_interrupted_run_held_its_gpus_while_an_attempt_trained(ledger: Ledger) -> None:
    trained(ledger, "r", 1, 3, Outcome.PREEMPTED)
    assert ledger.own_jobs() == (replace(WAITED, started_at=NOW + HOUR),)
    trained(ledger, "r", 6, 7, Outcome.FAILED, anew=False)
    ended = replace(WAITED, started_at=NOW + HOUR, ended_at=NOW + 7 * HOUR, held_for=3 * HOUR)
    assert ledger.own_jobs() == (ended,)


def test_runs_that_wait_or_train_have_not_ended_and_those_cancelled_before_are_no_jobs(ledger: Ledger) -> None:
    ledger.open_run("r", JOB, {}, NOW)
    ledger.open_run("gone", JOB, {}, NOW)
    ledger.cancel_run("gone", "nobody wants it", NOW + HOUR)
    ledger.open_run("cores", job_spec(gpus_per_node=0), {}, NOW)
    reserved(ledger, "reserved", now=NOW + HOUR)
    assert ledger.own_jobs() == (WAITED, replace(WAITED, job="reserved", submitted_at=NOW + HOUR))


FOREIGN = (
    JobRecord(job="1", submitted_at=NOW - HOUR, gpus=8),
    JobRecord(
        job="2",
        submitted_at=NOW + HOUR,
        gpus=16,
        nodes=2,
        started_at=NOW + 2 * HOUR,
        ended_at=NOW + 9 * HOUR,
        priority=Priority.RESEARCH,
        department="vision",
        gpu_type="a100",
        duration_estimate=timedelta(seconds=0.25),
        held_for=3 * HOUR,
    ),
)


def test_what_is_imported_is_history_and_no_run(ledger: Ledger) -> None:
    trained(ledger, "r", 0, 1, Outcome.SUCCEEDED)
    before = ledger.runs()
    assert ledger.import_jobs("slurm", FOREIGN) == ImportCounts(added=2)
    assert (ledger.imported_jobs(), ledger.runs()) == ({"slurm": FOREIGN}, before)
    own = ledger.own_jobs()
    assert ledger.job_history() == (replace(FOREIGN[0], job="slurm/1"), *own, replace(FOREIGN[1], job="slurm/2"))


def test_an_import_is_idempotent_and_a_job_is_what_was_told_of_it_last(ledger: Ledger) -> None:
    ledger.import_jobs("slurm", FOREIGN)
    assert ledger.import_jobs("slurm", FOREIGN) == ImportCounts(same=2)
    sized = [replace(record, dataset_gib=100.0, checkpoint_gib=2.0) for record in FOREIGN]
    assert ledger.import_jobs("slurm", sized) == ImportCounts(same=2)
    ended = replace(FOREIGN[0], started_at=NOW, ended_at=NOW + HOUR)
    assert ledger.import_jobs("slurm", [ended, replace(FOREIGN[0], job="3")]) == ImportCounts(added=1, changed=1)
    assert ledger.imported_jobs() == {"slurm": (ended, replace(FOREIGN[0], job="3"), FOREIGN[1])}


def test_sources_are_apart_and_own_runs_are_not_imported_again(ledger: Ledger) -> None:
    trained(ledger, "r", 0, 1, Outcome.SUCCEEDED)
    ledger.import_jobs("slurm", FOREIGN)
    assert ledger.import_jobs("lsf", [*ledger.own_jobs(), FOREIGN[0]]) == ImportCounts(added=1, own=1)
    assert ledger.imported_jobs() == {"lsf": FOREIGN[:1], "slurm": FOREIGN}


def test_an_import_that_was_cut_off_is_finished_by_the_next_one(ledger: Ledger) -> None:
    many = [replace(FOREIGN[0], job=f"{number:05}") for number in range(2 * WRITTEN_AT_ONCE + 1)]
    ledger.import_jobs("slurm", many[: WRITTEN_AT_ONCE + 1])
    assert ledger.import_jobs("slurm", many) == ImportCounts(added=WRITTEN_AT_ONCE, same=WRITTEN_AT_ONCE + 1)
    assert ledger.imported_jobs() == {"slurm": tuple(many)}


def test_a_dry_run_counts_and_keeps_nothing(ledger: Ledger) -> None:
    assert ledger.import_jobs("slurm", FOREIGN, dry_run=True) == ImportCounts(added=2)
    assert ledger.imported_jobs() == {}


def test_what_imported_jobs_wanted_is_told_by_the_hour_from_the_first_submission_to_the_last(ledger: Ledger) -> None:
    start = NOW.replace(minute=0, second=0, microsecond=0)
    later = start + 9 * HOUR
    assert ledger.imported_demand(start, 2, later).gpus == (None, None)
    jobs = [
        JobRecord(job="a", submitted_at=start, gpus=4, started_at=start + HOUR, ended_at=start + 2.5 * HOUR),
        JobRecord(job="b", submitted_at=start + 1.5 * HOUR, gpus=8),
        JobRecord(job="c", submitted_at=start + 4 * HOUR, gpus=1, started_at=start, ended_at=start + 5 * HOUR),
    ]
    ledger.import_jobs("slurm", jobs)
    told = DemandSeries(starts_at=start - HOUR, step=HOUR, gpus=(None, 4.0, 8.0, 10.0, 8.0, None, None))
    assert ledger.imported_demand(start - HOUR, 7, later) == told
    assert ledger.imported_demand(start, 0, later).gpus == ()


def test_an_imported_job_of_a_day_to_come_does_not_make_its_log_one_that_goes_on_until_then(ledger: Ledger) -> None:
    start = NOW.replace(minute=0, second=0, microsecond=0)
    log = [JobRecord(job=f"{hour}", submitted_at=start + hour * HOUR, gpus=4) for hour in range(3)]
    ledger.import_jobs("slurm", log)
    told = ledger.imported_demand(start, 6, start + 6 * HOUR), ledger.demanding_jobs(start, start + 6 * HOUR)
    ledger.import_jobs("slurm", [JobRecord(job="mistake", submitted_at=start + 9000 * HOUR, gpus=4)])
    assert (ledger.imported_demand(start, 6, start + 6 * HOUR), ledger.demanding_jobs(start, start + 6 * HOUR)) == told
    assert told[0].gpus == (4.0, 8.0, None, None, None, None)


def test_jobs_are_demand_as_long_as_samples_count_them(ledger: Ledger) -> None:
    later = NOW + 10 * HOUR
    trained(ledger, "over", 0, 1, Outcome.SUCCEEDED)
    trained(ledger, "late", 0, 3, Outcome.SUCCEEDED)
    trained(ledger, "nobody-asks", 0, 4, Outcome.PREEMPTED)
    reserved(ledger, "has-a-place")
    ledger.open_run("never-asked", JOB, {}, NOW)
    for run, origin in (("waits", {}), ("leftovers", {"run_type": "backfill"})):
        ledger.open_run(run, JOB, origin, NOW)
        ledger.still_waits(run, JOB, {("onprem", "a100")}, later)
    ended = replace(WAITED, started_at=NOW)
    assert ledger.demanding_jobs(NOW + 2 * HOUR, later) == (
        replace(WAITED, job="has-a-place"),
        replace(ended, job="late", ended_at=NOW + 3 * HOUR),
        replace(ended, job="nobody-asks", ended_at=NOW + 4 * HOUR),
        replace(WAITED, job="waits"),
    )


def test_a_backfill_wants_gpus_from_its_start_on(ledger: Ledger) -> None:
    ledger.open_run("r", JOB, {"run_type": "backfill"}, NOW)
    trained(ledger, "r", 2, 3, Outcome.SUCCEEDED)
    began = NOW + 2 * HOUR
    found = replace(WAITED, submitted_at=began, started_at=began, ended_at=NOW + 3 * HOUR)
    assert ledger.demanding_jobs(NOW, NOW + 5 * HOUR) == (found,)


def test_imported_jobs_whose_end_is_not_told_are_demand_until_the_log_ends(ledger: Ledger) -> None:
    ledger.import_jobs("slurm", FOREIGN)
    until = replace(FOREIGN[0], ended_at=FOREIGN[1].submitted_at)
    assert ledger.demanding_jobs(NOW - 9 * HOUR, NOW + 20 * HOUR) == (until, FOREIGN[1])
    assert ledger.demanding_jobs(NOW + 2 * HOUR, NOW + 20 * HOUR) == (FOREIGN[1],)
