"""How fast traces are read, and the bounds that policies are compared with. One line a figure."""

from __future__ import annotations

import os
import resource
import time
from datetime import UTC, datetime
from pathlib import Path

import numpy as np
import pytest

from spillway.replay.bounds import fluid_bound, placement_bound
from spillway.replay.fields import Clock
from spillway.replay.trace import Trace, read_trace

DAY = 86400.0
TRACES = Path(os.environ.get("SPILLWAY_TRACES", "/nowhere"))
KNOWN = {
    "itp_jobs.csv.gz": (datetime(2021, 3, 4, tzinfo=UTC), 1200, (14 * DAY, 58 * DAY), 900.3, 993.0),
    "philly_jobs_weeks_1_7.csv.gz": (datetime(2017, 9, 18, tzinfo=UTC), 500, (21 * DAY, 49 * DAY), 564.5, 589.5),
}
"""Of each trace: its first day, the local GPUs, the days that count, and both bounds in thousands at 8.0 a GPU-hour."""
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not TRACES.is_dir(), reason="SPILLWAY_TRACES names no directory of traces"),
]


def read(name: str) -> tuple[Trace, datetime]:
    epoch = KNOWN[name][0]
    return read_trace(TRACES / name, clock=Clock(epoch=epoch)), epoch


@pytest.mark.parametrize("name", KNOWN)
def test_a_trace_is_read_in_about_a_second(name: str) -> None:
    began = time.process_time()
    trace, _ = read(name)
    seconds = time.process_time() - began
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(f"{name} {len(trace.jobs)} jobs read in {seconds:.2f} s, process at most {peak:.0f} MiB")
    assert trace.left_out == {}
    assert len(trace.jobs) / seconds > 15_000


@pytest.mark.parametrize("name", KNOWN)
def test_the_bounds_are_those_that_are_known(name: str) -> None:
    trace, epoch = read(name)
    _, local, measured, fluid_known, placed_known = KNOWN[name]
    starts = np.array([(job.submitted_at - epoch).total_seconds() for job in trace.jobs])
    ends = starts + np.array([job.duration.total_seconds() for job in trace.jobs if job.duration is not None])
    gpus = np.array([job.gpus for job in trace.jobs])
    began = time.process_time()
    fluid = fluid_bound(starts=starts, ends=ends, gpus=gpus, local_gpus=local, measured=measured) * 8 / 1000
    placed = placement_bound(starts=starts, ends=ends, gpus=gpus, local_gpus=local, measured=measured)
    assert placed is not None
    print(
        f"{name} {local} local: fluid {fluid:.1f} k, placement {placed * 8 / 1000:.1f} k "
        f"in {time.process_time() - began:.1f} s"
    )
    assert (fluid, placed * 8 / 1000) == pytest.approx((fluid_known, placed_known), rel=0.001)
