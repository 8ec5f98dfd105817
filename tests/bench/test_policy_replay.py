"""What policies come to on public traces, beside what is asked of them, and how fast they are replayed.

One line a figure: ``NAME VALUE goal <=X ok|short``.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from functools import cache
from pathlib import Path

import pytest
import yaml

from spillway.model import Billing, Cluster, JobRecord, PlacementPolicy
from spillway.replay.comparing import WEIGHTS, WHOLE, bounds_of, estimated
from spillway.replay.engine import Policy, replay
from spillway.replay.fields import Clock
from spillway.replay.metrics import Figures, figures
from spillway.replay.trace import read_trace
from spillway.replay.world import Conditions
from spillway.sandbox.settings import INCLUDE
from spillway.scaling.presets import PRESETS, S2
from spillway.scaling.rules import QueueRule, ScalingRules
from spillway.testing.builders import cloud_cluster, cloud_pool, node_pool, onprem_cluster

DAY = 86400.0
TRACES = Path(os.environ.get("SPILLWAY_TRACES", "/nowhere"))
pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(3600),
    pytest.mark.skipif(not TRACES.is_dir(), reason="SPILLWAY_TRACES names no directory of traces"),
]


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """A trace, the local GPUs beside it, the days since ``epoch`` that count, and what is asked of ``default``."""

    file: str
    epoch: datetime
    local_gpus: int
    days: tuple[int, int]
    over_bound: float
    idle: float


CASES: Mapping[str, Case] = {
    "itp": Case(
        file="itp_jobs.csv.gz",
        epoch=datetime(2021, 3, 4, tzinfo=UTC),
        local_gpus=1200,
        days=(14, 58),
        over_bound=1.05,
        idle=0.10,
    ),
    "philly": Case(
        file="philly_jobs_weeks_1_7.csv.gz",
        epoch=datetime(2017, 9, 18, tzinfo=UTC),
        local_gpus=500,
        days=(21, 49),
        over_bound=1.12,
        idle=0.15,
    ),
}
EVENT = ScalingRules(preset="event", reactive=QueueRule(), idle_release=timedelta(minutes=10))
RULES: Mapping[str, ScalingRules] = {"event": EVENT, **PRESETS, "s2-literal": replace(S2, idle_release=None)}


def clusters(local_gpus: int) -> tuple[Cluster, ...]:
    """8-GPU nodes: as many on-premises as there are whole ones, and more in the cloud than anybody wants."""
    bought = cloud_pool(max_nodes=1000, prices_per_gpu_hour={Billing.ON_DEMAND: Decimal(8)})
    return (onprem_cluster(pools=(node_pool(max_nodes=local_gpus // 8),)), cloud_cluster(pools=(bought,)))


@cache
def jobs(case: str) -> tuple[JobRecord, ...]:
    trace = read_trace(TRACES / CASES[case].file, clock=Clock(epoch=CASES[case].epoch))
    return trace.jobs


def measured(case: str) -> tuple[float, float]:
    before = (jobs(case)[0].submitted_at - CASES[case].epoch).total_seconds()
    return CASES[case].days[0] * DAY - before, CASES[case].days[1] * DAY - before


@cache
def found(case: str, rules: str, sigma: float = 0.0) -> tuple[Figures, float]:
    """The figures, and jobs that were replayed a second of CPU time."""
    policy = Policy(name=rules, placement=PlacementPolicy(weights=WEIGHTS, quotas=WHOLE), scaling=RULES[rules])
    records = estimated(jobs(case), sigma, 1)
    began = time.process_time()
    result = replay(
        case, records, clusters(CASES[case].local_gpus), policy, conditions=Conditions(), measured=measured(case)
    )
    lasted = time.process_time() - began
    return figures(result), len(records) / lasted


def line(name: str, value: float, *, most: float | None = None, least: float | None = None) -> None:
    if most is not None:
        print(f"{name} {value:.3f} goal <={most:g} {'ok' if value <= most else 'short'}")
    elif least is not None:
        print(f"{name} {value:.3f} goal >={least:g} {'ok' if value >= least else 'short'}")
    else:
        print(f"{name} {value:.3f}")


@pytest.mark.parametrize("case", CASES)
def test_default_pays_little_more_than_the_bound(case: str) -> None:
    bounds = bounds_of(jobs(case), clusters(CASES[case].local_gpus), measured=measured(case))
    assert bounds.placement is not None
    print()
    line(f"{case}.bound.placement-gpu-hours", bounds.placement)
    line(f"{case}.bound.fluid-over-placement", bounds.fluid / bounds.placement)
    for sigma, goals in ((0.0, True), (1.0, False)):
        of, _ = found(case, "default", sigma)
        name = f"{case}.default" if goals else f"{case}.default.estimates-off-by-e"
        paid = of.cloud_gpu_hours_paid / bounds.placement
        line(f"{name}.paid-over-bound", paid, most=CASES[case].over_bound if goals else None)
        line(f"{name}.idle", of.cloud_idle or 0.0, most=CASES[case].idle if goals else None)
        line(f"{name}.p95-wait-minutes", of.wait_p95_minutes or 0.0, most=10 if goals else None)
        assert of.unstarted == 0


@pytest.mark.parametrize("case", CASES)
def test_thrifty_halves_what_event_driven_scaling_costs(case: str) -> None:
    event, _ = found(case, "event")
    thrifty, _ = found(case, "thrifty")
    assert event.response_mean_hours is not None
    assert thrifty.response_mean_hours is not None
    print()
    line(f"{case}.thrifty.cost-over-event", float(thrifty.cloud_cost / event.cloud_cost), most=0.5)
    longer = thrifty.response_mean_hours / event.response_mean_hours
    line(f"{case}.thrifty.completion-over-event", longer, most=1.06)
    line(f"{case}.thrifty.p95-wait-minutes", thrifty.wait_p95_minutes or 0.0)


@pytest.mark.parametrize("rules", ["event", "s0", "s2", "s2-literal"])
@pytest.mark.parametrize("case", CASES)
def test_what_the_rules_of_the_texts_come_to(case: str, rules: str) -> None:
    of, _ = found(case, rules)
    print()
    line(f"{case}.{rules}.cost-thousands", float(of.cloud_cost) / 1000)
    line(f"{case}.{rules}.idle", of.cloud_idle or 0.0)
    line(f"{case}.{rules}.mean-wait-minutes", of.wait_mean_minutes or 0.0)
    line(f"{case}.{rules}.p95-wait-minutes", of.wait_p95_minutes or 0.0)
    line(f"{case}.{rules}.response-hours", of.response_mean_hours or 0.0)
    line(f"{case}.{rules}.local-utilisation", of.local_utilisation or 0.0)


ALONE = """
import sys
from spillway.replay.__main__ import main

code = main(sys.argv[1:])
(peak,) = (line.split()[1] for line in open("/proc/self/status") if line.startswith("VmHWM"))
print("peak-kib", peak)
sys.exit(code)
"""


def peak_mib(case: str, tmp_path: Path) -> float:
    """Of a process that does nothing but replay the case by ``default``, the trace read in it."""
    file = tmp_path / "clusters.yaml"
    declared = yaml.safe_load((INCLUDE / "config" / "clusters.yaml").read_text())
    declared["clusters"][1]["pools"][0]["max_nodes"] = 1000
    file.write_text(yaml.safe_dump(declared))
    words = [str(TRACES / CASES[case].file), "--clusters", str(file), "--policy", "default", "--without-bound"]
    words += ["--local-gpus", str(CASES[case].local_gpus)]
    alone = [sys.executable, "-c", ALONE, *words]
    environment = {**os.environ, "PYTHONPATH": str(INCLUDE)}
    told = subprocess.run(alone, check=True, capture_output=True, text=True, env=environment).stdout
    return int(told.split("peak-kib")[1]) / 1024


def test_a_replay_is_fast_and_takes_little_memory(tmp_path: Path) -> None:
    print()
    line("itp.event.jobs-per-second", found("itp", "event")[1], least=20_000)
    line("itp.default.jobs-per-second", found("itp", "default")[1], least=5_000)
    line("replay.peak-mib", peak_mib("itp", tmp_path), most=300)
