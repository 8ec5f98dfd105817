"""Loaders of job traces: the public formats, plain CSV, and what is said of input that is not as it should be."""

from __future__ import annotations

import gzip
import json
import re
import tracemalloc
from datetime import UTC, datetime, timedelta
from pathlib import Path
from zoneinfo import ZoneInfo

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from spillway.errors import BadTrace, UnknownName
from spillway.model import Priority
from spillway.model.demand import JobRecord
from spillway.replay.fields import Clock
from spillway.replay.formats import TABLES
from spillway.replay.trace import FAULTY, FORMATS, SAME_ROW, Trace, read_trace

START = datetime(2026, 3, 2, tzinfo=UTC)
PLAIN = "job,submitted_at,gpus,duration_seconds\n"
TOLD_NO_STARTS = "the format tells no starts: each job is taken to have started when it was submitted"


def hours(count: float) -> datetime:
    return START + timedelta(hours=count)


def written(folder: Path, text: str, name: str = "jobs.csv") -> Path:
    file = folder / name
    file.write_text(text, encoding="utf-8")
    return file


def test_plain_csv_is_read_with_every_column_that_it_may_have(tmp_path: Path) -> None:
    file = written(
        tmp_path,
        "job,submitted_at,gpus,started_at,ended_at,duration_seconds,nodes,priority,department,gpu_type,estimate_seconds\n"
        "a,2026-03-02T00:00:00Z,16,2026-03-02T01:00:00Z,2026-03-02T05:00:00Z,7200,2,research,vision,a100,9000\n"
        "b,2026-03-02 01:00:00+01:00,1,,,,,,,,\n"
        "c,2026-03-02T02:00,8.0,2026-03-02T02:00,,,,,,,\n",
    )
    assert read_trace(file) == Trace(
        file=str(file),
        format="csv",
        left_out={},
        jobs=(
            JobRecord(
                job="a",
                submitted_at=START,
                gpus=16,
                started_at=hours(1),
                ended_at=hours(5),
                nodes=2,
                priority=Priority.RESEARCH,
                department="vision",
                gpu_type="a100",
                duration_estimate=timedelta(seconds=9000),
                held_for=timedelta(hours=2),
            ),
            JobRecord(job="b", submitted_at=START, gpus=1),
            JobRecord(job="c", submitted_at=hours(2), gpus=8, started_at=hours(2)),
        ),
    )


def test_a_job_holds_its_gpus_from_start_to_end_or_as_long_as_it_is_told(tmp_path: Path) -> None:
    file = written(
        tmp_path,
        "job,submitted_at,gpus,started_at,ended_at,duration_seconds\n"
        "a,0,1,10,20,\nb,0,1,10,20,4\nc,0,1,10,,\nd,0,1,10,,7\ne,0,1,,,\n",
    )
    seconds = [job.duration and job.duration.total_seconds() for job in read_trace(file).jobs]
    assert seconds == [10, 4, None, 7, None]


@pytest.mark.parametrize("packed", [False, True], ids=["plain", "gzip"])
def test_seconds_count_from_the_epoch_that_is_given(tmp_path: Path, *, packed: bool) -> None:
    text = "job_id,submit_s,gpus,duration_s,vc\n0,-3600,8,7200,7f04ca\n1,0,1,60,\n"
    file = tmp_path / "jobs"
    file.write_bytes(gzip.compress(text.encode()) if packed else text.encode())
    trace = read_trace(file, clock=Clock(epoch=START))
    assert (trace.format, trace.left_out, trace.notes) == ("seconds", {}, (TOLD_NO_STARTS,))
    assert trace.jobs == (
        JobRecord(
            job="0", submitted_at=hours(-1), gpus=8, started_at=hours(-1), ended_at=hours(1), department="7f04ca"
        ),
        JobRecord(job="1", submitted_at=START, gpus=1, started_at=START, ended_at=START + timedelta(minutes=1)),
    )


def test_helios_tells_no_zone_and_has_jobs_without_gpus(tmp_path: Path) -> None:
    file = written(
        tmp_path,
        "job_id,user,vc,gpu_num,cpu_num,node_num,state,submit_time,start_time,end_time,duration,queue\n"
        "1,u1,vcA,16,64,2,COMPLETED,2026-03-02 08:00:00,2026-03-02 09:00:00,2026-03-02 12:00:00,10800,3600\n"
        "2,u1,vcA,0,4,1,COMPLETED,2026-03-02 08:00:00,2026-03-02 08:00:00,2026-03-02 08:00:09,9,0\n"
        "3,u2,vcB,4,4,1,CANCELLED,2026-03-02 08:00:00,,2026-03-02 08:10:00,0,0\n",
    )
    trace = read_trace(file, clock=Clock(zone=ZoneInfo("Asia/Shanghai")))
    assert trace == Trace(
        file=str(file),
        format="helios",
        left_out={"asked for no GPU": 1, "ended without having started": 1},
        jobs=(
            JobRecord(
                job="1",
                submitted_at=START,
                gpus=16,
                started_at=hours(1),
                ended_at=hours(4),
                nodes=2,
                department="vcA",
            ),
        ),
    )


PAI_HEADER = "job_name,task_name,inst_num,status,start_time,end_time,plan_cpu,plan_mem,plan_gpu,gpu_type\n"
PAI_ROWS = (
    "a,ps,1.0,Terminated,0.0,3600.0,600.0,29.3,,\n"
    "a,worker,2.0,Terminated,0.0,3600.0,600.0,29.3,50.0,V100\n"
    "a,chief,1.0,Terminated,60.0,7200.0,600.0,29.3,200.0,V100\n"
    "b,tensorflow,1.0,Running,3600.0,,600.0,29.3,100.0,MISC\n"
)


def test_where_clocks_are_changed_no_row_is_lost(tmp_path: Path) -> None:
    """K35: of the hour that comes twice the first, unless the job would end before it began; none that is left out."""
    file = written(
        tmp_path,
        "job,submitted_at,gpus,started_at,ended_at\n"
        "absent,2026-03-29 02:30,8,2026-03-29 03:40,2026-03-29 04:00\n"
        "first,2026-10-25 02:20,8,2026-10-25 02:20,2026-10-25 02:50\n"
        "both,2026-10-25 02:40,8,2026-10-25 02:50,2026-10-25 02:10\n"
        "second,2026-10-25 02:50,8,2026-10-25 02:30,2026-10-25 03:00\n",
    )
    jobs = read_trace(file, clock=Clock(zone=ZoneInfo("Europe/Berlin"))).jobs
    moments = [(job.submitted_at, job.started_at, job.ended_at) for job in jobs]
    assert [" ".join(f"{at:%H:%M}" for at in of_job if at) for of_job in moments] == [
        "01:30 01:40 02:00",
        "00:20 00:20 00:50",
        "00:40 00:50 01:10",
        "00:50 01:30 02:00",
    ]


@pytest.mark.parametrize(("header", "format"), [(PAI_HEADER, None), ("", "alibaba-2020")], ids=["header", "none"])
def test_the_tasks_of_a_pai_job_are_one_job_of_whole_gpus(tmp_path: Path, header: str, format: str | None) -> None:
    trace = read_trace(written(tmp_path, header + PAI_ROWS), format=format, clock=Clock(epoch=START))
    assert (trace.format, trace.left_out) == ("alibaba-2020", {"asked for no GPU": 1})
    assert trace.jobs == (
        JobRecord(job="a", submitted_at=START, gpus=4, started_at=START, ended_at=hours(2), nodes=3, gpu_type="V100"),
        JobRecord(job="b", submitted_at=hours(1), gpus=1, started_at=hours(1), gpu_type="MISC"),
    )


def test_pods_of_alibaba_2023_wait_from_their_creation_to_their_scheduling(tmp_path: Path) -> None:
    file = written(
        tmp_path,
        "name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec,qos,pod_phase,creation_time,deletion_time,scheduled_time\n"
        "p0,88000,327680,8,1000,V100M16|V100M32,Burstable,Succeeded,0,7200,60\n"
        "p1,12500,65536,0,0,,LS,Running,0,7200,60\n"
        "p2,12500,65536,1,220,,LS,Pending,0,7200,\n",
    )
    trace = read_trace(file, clock=Clock(epoch=START))
    assert (trace.format, trace.left_out) == (
        "alibaba-2023",
        {"asked for no GPU": 1, "ended without having started": 1},
    )
    assert trace.jobs == (
        JobRecord(
            job="p0",
            submitted_at=START,
            gpus=8,
            started_at=START + timedelta(minutes=1),
            ended_at=hours(2),
            gpu_type="V100M16|V100M32",
        ),
    )


def attempt(start: str | None, end: str | None, *gpus: int) -> dict[str, object]:
    detail = [{"ip": f"m{at}", "gpus": [f"gpu{n}" for n in range(count)]} for at, count in enumerate(gpus)]
    return {"start_time": start, "end_time": end, "detail": detail}


def entry(job: str, submitted: str, *attempts: dict[str, object]) -> dict[str, object]:
    return {"status": "Pass", "vc": "v", "jobid": job, "attempts": attempts, "submitted_time": submitted, "user": "u"}


PHILLY = [
    entry("b", "2026-03-02 02:00:00", attempt("2026-03-02 02:00:00", "None", 1)),
    entry(
        "a",
        "2026-03-02 00:00:00",
        attempt("2026-03-02 01:00:00", "2026-03-02 02:00:00", 8, 8),
        attempt("2026-03-02 03:00:00", "2026-03-02 05:00:00", 8, 8),
    ),
    entry("c", "2026-03-02 01:00:00"),
    entry("d", "2026-03-02 01:00:00", attempt(None, None, 4)),
]


@pytest.mark.parametrize("indent", [None, 2])
def test_the_log_of_philly_is_read_attempt_by_attempt(tmp_path: Path, indent: int | None) -> None:
    file = written(tmp_path, json.dumps(PHILLY, indent=indent), "cluster_job_log")
    assert read_trace(file) == Trace(
        file=str(file),
        format="philly",
        left_out={"ended without having started": 2},
        notes=("rows that were submitted before the one above them, put in order: 1",),
        jobs=(
            JobRecord(
                job="a",
                submitted_at=START,
                gpus=16,
                started_at=hours(1),
                ended_at=hours(5),
                nodes=2,
                department="v",
                held_for=timedelta(hours=3),
            ),
            JobRecord(job="b", submitted_at=hours(2), gpus=1, started_at=hours(2), department="v"),
        ),
    )


def test_a_log_longer_than_one_read_is_read_whole(tmp_path: Path) -> None:
    one = attempt("2026-03-02 02:00:00", "2026-03-02 03:00:00", 8)
    entries = [entry(f"j{number}", "2026-03-02 00:00:00", one) for number in range(6000)]
    file = written(tmp_path, json.dumps(entries, indent=1))
    assert file.stat().st_size > 2 << 20
    assert [job.job for job in read_trace(file).jobs] == [f"j{number}" for number in range(6000)]


def test_a_row_that_is_there_twice_counts_once(tmp_path: Path) -> None:
    trace = read_trace(written(tmp_path, PLAIN + "a,0,1,60\nb,10,1,60\na,0,1,60\n"))
    assert ([job.job for job in trace.jobs], trace.left_out) == (["a", "b"], {SAME_ROW: 1})


def test_rows_out_of_order_are_put_in_order_and_that_is_said(tmp_path: Path) -> None:
    trace = read_trace(written(tmp_path, PLAIN + "a,60,1,60\nb,10,1,60\nc,10,1,60\nd,0,1,60\n"))
    assert [job.job for job in trace.jobs] == ["d", "b", "c", "a"]
    assert "rows that were submitted before the one above them, put in order: 2" in trace.notes


MEND = "; mend it, or leave such rows out with --leave-out-bad-rows"


@pytest.mark.parametrize(
    ("row", "problem"),
    [
        ("a,0,1,nan", "duration_seconds: expected a number, got 'nan'"),
        ("a,0,1,-5", "duration_seconds: expected seconds, not fewer than 0, got '-5'"),
        ("a,0,-1,60", "gpus: expected a number from 0 to 1,000,000, got '-1'"),
        ("a,0,1e9,60", "gpus: expected a number from 0 to 1,000,000, got '1e9'"),
        ("a,0,1_0,60", "gpus: expected a number, got '1_0'"),
        ("a,0,1.5,60", "gpus: expected a whole number, got '1.5'"),
        ("a,0,nan,60", "gpus: expected a number, got 'nan'"),
        ("a,0,,60", "gpus: expected a whole number, got none"),
        ("a,0,many,60", "gpus: expected a number, got 'many'"),
        ("a,,1,60", "submitted_at: expected a moment, got none"),
        ("a,nan,1,60", "submitted_at: expected a moment such as 2026-03-01T12:00:00Z, or seconds, got 'nan'"),
        ("a,1e300,1,60", "submitted_at: 1e300 seconds are no moment"),
        ("a,0,1,1e300", "duration_seconds: 1e300 seconds are no duration"),
        ("a,0,1,1e13", "duration_seconds: 1e+13 seconds after its start are no moment"),
        ("a,noon,1,60", "submitted_at: expected a moment such as 2026-03-01T12:00:00Z, or seconds, got 'noon'"),
        (
            "a,0001-01-01T00:00+14:00,1,60",
            "submitted_at: expected a moment such as 2026-03-01T12:00:00Z, or seconds, got '0001-01-01T00:00+14:00'",
        ),
        (",0,1,60", "job: expected a name, got none"),
        ("a,0,1", "expected 4 fields, got 3"),
        ("b,0,2,60", "job 'b' is in line 2 already, with other values"),
    ],
)
def test_a_row_at_fault_is_named_by_its_line_or_left_out_and_counted(tmp_path: Path, row: str, problem: str) -> None:
    file = written(tmp_path, f"{PLAIN}b,0,1,60\n\n{row}\n")
    with pytest.raises(BadTrace) as refusal:
        read_trace(file)
    assert str(refusal.value) == f"{file}: line 4: {problem}{MEND}"
    trace = read_trace(file, leave_out_bad_rows=True)
    assert ([job.job for job in trace.jobs], trace.left_out) == (["b"], {FAULTY: 1})


@pytest.mark.parametrize(
    ("row", "problem"),
    [
        ("a,100,1,50,200,", "started_at: 1970-01-01 00:00:50 is before it was submitted"),
        ("a,100,1,150,140,", "ended_at: 1970-01-01 00:02:20 is before it started"),
        ("a,100,1,150,160,11", "duration_seconds: 11 is more than from its start to its end"),
        ("a,100,1,150,160,1,urgent", "expected 6 fields, got 7"),
    ],
)
def test_moments_that_cannot_all_be_true_are_refused(tmp_path: Path, row: str, problem: str) -> None:
    file = written(tmp_path, f"job,submitted_at,gpus,started_at,ended_at,duration_seconds\n{row}\n")
    with pytest.raises(BadTrace, match=re.escape(f"line 2: {problem}")):
        read_trace(file)


def test_a_column_is_named_as_the_file_names_it(tmp_path: Path) -> None:
    with pytest.raises(BadTrace, match="line 2: duration_s: expected a number, got 'nan'"):
        read_trace(written(tmp_path, "job_id,submit_s,gpus,duration_s,vc\n0,0,8,nan,a\n"))


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("", "is empty"),
        (" \n\n", "is empty"),
        (PLAIN, "has no job that can be used: only a header"),
        (PLAIN + "a,0,0,60\n", "has no job that can be used: 1 asked for no GPU"),
        ("job,gpus,duration_seconds\na,1,60\n", "line 1: no format has these columns: job, gpus, duration_seconds;"
         " 'csv' also has submitted_at; add them, or name another format: csv, seconds, helios,"
         " alibaba-2020, alibaba-2023, philly"),
        ("job,submitted_at,gpus\na,0,1\n", "'csv' also has duration_seconds or ended_at"),
        (PLAIN.replace("\n", ",gpus\n"), "line 1: column 'gpus' is there twice"),
        (PLAIN + 'a,0,"1,60\n', "line 2: is no CSV: unexpected end of data"),
        ("[{]", "line 1: is no JSON: Expecting property name enclosed in double quotes"),
        ('[\n{"jobid": "a"}]', "line 2: expected an object with 'jobid', 'submitted_time' and 'attempts'"),
        ('[{"jobid": "a", "attempts": []}]', "line 1: jobid, submitted_time: expected both"),
        ('{"a":' * 100_000, "line 1: is nested deeper than any log"),
        ('[{"jobid": "a", "submitted_time": "0", "attempts": [7]}]', "line 1: attempts: expected objects with"),
        ('[{"jobid": "a", "submitted_time": "0", "attempts": [{"start_time": 1, "detail": [{"gpus": 8}, 9]}]}]',
         "has no job that can be used: 1 ended without having started"),
        ("[]", "has no job that can be used"),
        ("a\0b", "is no text; unpack an archive first"),
    ],
)  # fmt: skip
def test_a_file_that_is_no_trace_is_refused_with_what_it_lacks(tmp_path: Path, text: str, problem: str) -> None:
    file = written(tmp_path, text)
    with pytest.raises(BadTrace, match=re.escape(problem)) as refusal:
        read_trace(file)
    assert refusal.value.file == str(file)


def test_a_format_that_is_named_is_the_one_that_must_fit(tmp_path: Path) -> None:
    file = written(tmp_path, PLAIN + "a,0,1,60\n")
    with pytest.raises(BadTrace, match="line 1: format 'seconds' has columns duration_s, job_id, submit_s, which are"):
        read_trace(file, format="seconds")
    with pytest.raises(UnknownName, match="Did you mean 'helios'"):
        read_trace(file, format="helois")


def test_what_cannot_be_read_is_told_without_a_traceback(tmp_path: Path) -> None:
    with pytest.raises(BadTrace, match="cannot be read: No such file"):
        read_trace(tmp_path / "none.csv")
    cut = tmp_path / "cut.csv.gz"
    cut.write_bytes(gzip.compress((PLAIN + "a,0,1,60\n" * 99).encode())[:-12])
    with pytest.raises(BadTrace, match="the gzip file is cut off or damaged"):
        read_trace(cut)
    latin = tmp_path / "latin.csv"
    latin.write_bytes(PLAIN.encode() + "caf\xe9,0,1,60\n".encode("latin-1"))
    with pytest.raises(BadTrace, match="is no UTF-8 text"):
        read_trace(latin)


@pytest.mark.parametrize(
    ("begins", "problem"),
    [
        (PLAIN + "a,0,1,60\n", "has a row of 16,777,216 characters or more, which is none of a job"),
        ('[{"jobid": "', "line 1: is no JSON: Unterminated string"),
    ],
)
def test_a_few_kilobytes_that_unpack_to_an_endless_row_are_refused_before_they_fill_the_memory(
    tmp_path: Path, begins: str, problem: str
) -> None:
    file = tmp_path / "bomb.gz"
    file.write_bytes(gzip.compress(begins.encode()) + gzip.compress(b"a" * (8 << 20)) * 100)
    tracemalloc.start()
    with pytest.raises(BadTrace, match=re.escape(problem)):
        read_trace(file)
    _, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert most < 200 << 20


CELLS = st.sampled_from([
    "", "a", "0", "1", "-1", "nan", "inf", "1e308", "8.5", "None", "2026-03-02", "9999-12-31T23:59Z", '"', "\r",
])  # fmt: skip
HEADERS = st.sampled_from([",".join([*table.columns.values(), table.part or "x"]) for table in TABLES.values()])
TABLES_OF_ANYTHING = st.builds(
    lambda header, rows: "\n".join([header, *(",".join(row) for row in rows)]),
    HEADERS,
    st.lists(st.lists(CELLS, min_size=6, max_size=12), max_size=6),
)
VALUES = st.recursive(
    st.none() | st.integers() | st.sampled_from(["a", "0", "nan", "2026-03-02 00:00:00"]),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["jobid", "submitted_time", "attempts", "start_time", "detail", "gpus"]), inner
        )
    ),
    max_leaves=12,
)


@settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    content=st.binary(max_size=60)
    | TABLES_OF_ANYTHING.map(str.encode)
    | VALUES.map(lambda value: json.dumps([value]).encode()),
    format=st.none() | st.sampled_from(FORMATS),
    leave_out=st.booleans(),
)
@example(content=b"\x1f\x8b", format=None, leave_out=False)
@example(content=b"\xef\xbb\xbf", format="philly", leave_out=True)
def test_whatever_a_file_holds_it_is_a_trace_in_order_or_one_refusal(
    tmp_path: Path, content: bytes, format: str | None, *, leave_out: bool
) -> None:
    file = tmp_path / "anything"
    file.write_bytes(content)
    try:
        trace = read_trace(file, format=format, leave_out_bad_rows=leave_out)
    except BadTrace as refusal:
        assert str(refusal).startswith(f"{file}: ")
        return
    assert trace.jobs == tuple(sorted(trace.jobs, key=lambda job: job.submitted_at))
    for job in trace.jobs:
        assert job.gpus > 0
        assert job.duration is None or job.duration >= timedelta()
