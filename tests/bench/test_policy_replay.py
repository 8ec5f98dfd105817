"""What policies come to on public traces, beside what is asked of them, and how fast they are replayed.

One line a figure: ``NAME VALUE goal <=X ok|short``; beside a claim of the texts ``claimed <=X holds|does not hold``.
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

import numpy as np
import pytest
import yaml

from spillway.model import Billing, Cluster, JobRecord, PlacementPolicy
from spillway.replay.bounds import Bounds
from spillway.replay.comparing import WEIGHTS, WHOLE, bounds_of, estimated
from spillway.replay.engine import Policy, replay
from spillway.replay.fields import Clock
from spillway.replay.metrics import Figures, ReplayResult, figures
from spillway.replay.steps import Seconds
from spillway.replay.trace import read_trace
from spillway.replay.world import Conditions
from spillway.sandbox.settings import INCLUDE
from spillway.scaling.presets import DEFAULT, PRESETS, S2, THRIFTY
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
BY_HAND = ScalingRules(preset="by-hand", reactive=QueueRule(after=timedelta(hours=2)), idle_release=timedelta(hours=5))
"""The state before, as the texts tell it: nodes come two hours late, and leave so late that about a quarter idles."""
RULES: Mapping[str, ScalingRules] = {
    "by-hand": BY_HAND,
    "event": EVENT,
    **PRESETS,
    "s2-literal": replace(S2, idle_release=None),
    "default-unforeseen": replace(DEFAULT, forecast=None),
    "thrifty-unforeseen": replace(THRIFTY, forecast=None),
}
SPEEDS = {"event": 20_000, "s0": 20_000, "s2": 20_000, "default-unforeseen": 5_000, "default": None}
"""Jobs a second; a forecast takes some milliseconds for each hour of a trace, whatever the jobs are."""
CLAIMED = ("s0", "s2", "s2-literal", "default", "thrifty")
"""What is held against the claims of the texts: their rules, and the presets of our own."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What a policy came to. ``bought_p95_minutes``: the wait of jobs that began in the cloud; None without any.

    ``jobs_per_second`` are those that were replayed in a second of CPU time.
    """

    figures: Figures
    bought_p95_minutes: float | None
    jobs_per_second: float


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
def found(case: str, rules: str, sigma: float = 0.0) -> Outcome:
    policy = Policy(name=rules, placement=PlacementPolicy(weights=WEIGHTS, quotas=WHOLE), scaling=RULES[rules])
    records = estimated(jobs(case), sigma, 1)
    began = time.process_time()
    result = replay(
        case, records, clusters(CASES[case].local_gpus), policy, conditions=Conditions(), measured=measured(case)
    )
    lasted = time.process_time() - began
    bought = waits_of_bought(result)
    return Outcome(
        figures=figures(result),
        bought_p95_minutes=float(np.percentile(bought, 95)) if bought.size else None,
        jobs_per_second=len(records) / lasted,
    )


def waits_of_bought(result: ReplayResult) -> Seconds:
    """Of the measured jobs that began in the cloud: from submission to their start, in minutes."""
    stays, places = result.stays, np.array([place.cloud for place in result.places])
    first = stays.start == result.started[stays.job]
    began_there = np.zeros(result.submitted.size, dtype=bool)
    began_there[stays.job[first & places[stays.place]]] = True
    inside = result.measured_jobs()
    inside = inside[began_there[inside]]
    return np.asarray((result.started - result.submitted)[inside] / 60)


def line(name: str, value: float | None, *, most: float | None = None, least: float | None = None) -> None:
    print(f"{name} {told(value)}{judged(value, most, least, 'goal', 'ok', 'short')}")


def claim(name: str, value: float | None, *, most: float | None = None, least: float | None = None) -> None:
    print(f"{name} {told(value)}{judged(value, most, least, 'claimed', 'holds', 'does not hold')}")


def told(value: float | None) -> str:
    return "?" if value is None else f"{value:.3f}"


def judged(value: float | None, most: float | None, least: float | None, what: str, met: str, missed: str) -> str:
    if most is not None:
        return f" {what} <={most:g} {met if value is not None and value <= most else missed}"
    if least is not None:
        return f" {what} >={least:g} {met if value is not None and value >= least else missed}"
    return ""


@cache
def bounds(case: str) -> Bounds:
    return bounds_of(jobs(case), clusters(CASES[case].local_gpus), measured=measured(case))


@pytest.mark.parametrize("case", CASES)
def test_default_pays_little_more_than_the_bound(case: str) -> None:
    placement = bounds(case).placement
    assert placement is not None
    print()
    line(f"{case}.bound.placement-gpu-hours", placement)
    line(f"{case}.bound.fluid-over-placement", bounds(case).fluid / placement)
    for sigma, goals in ((0.0, True), (1.0, False)):
        of = found(case, "default", sigma).figures
        name = f"{case}.default" if goals else f"{case}.default.estimates-off-by-e"
        paid = of.cloud_gpu_hours_paid / placement
        line(f"{name}.paid-over-bound", paid, most=CASES[case].over_bound if goals else None)
        line(f"{name}.idle", of.cloud_idle, most=CASES[case].idle if goals else None)
        line(f"{name}.p95-wait-minutes", of.wait_p95_minutes, most=10 if goals else None)
        assert of.unstarted == 0


@pytest.mark.parametrize("case", CASES)
def test_thrifty_halves_what_event_driven_scaling_costs(case: str) -> None:
    event = found(case, "event").figures
    assert event.response_mean_hours is not None
    print()
    line(f"{case}.fluid-bound.cost-over-event", bounds(case).fluid / event.cloud_gpu_hours_paid)
    for sigma, goals in ((0.0, True), (1.0, False)):
        of = found(case, "thrifty", sigma).figures
        assert of.response_mean_hours is not None
        name = f"{case}.thrifty" if goals else f"{case}.thrifty.estimates-off-by-e"
        line(f"{name}.cost-over-event", float(of.cloud_cost / event.cloud_cost), most=0.5 if goals else None)
        longer = of.response_mean_hours / event.response_mean_hours
        line(f"{name}.completion-over-event", longer, most=1.06 if goals else None)


@pytest.mark.parametrize("rules", RULES)
@pytest.mark.parametrize("case", CASES)
def test_what_each_policy_comes_to(case: str, rules: str) -> None:
    of = found(case, rules).figures
    print()
    line(f"{case}.{rules}.mean-wait-minutes", of.wait_mean_minutes)
    line(f"{case}.{rules}.p95-wait-minutes", of.wait_p95_minutes)
    line(f"{case}.{rules}.bought-p95-wait-minutes", found(case, rules).bought_p95_minutes)
    line(f"{case}.{rules}.response-hours", of.response_mean_hours)
    line(f"{case}.{rules}.cost-thousands", float(of.cloud_cost) / 1000)
    line(f"{case}.{rules}.idle", of.cloud_idle)
    line(f"{case}.{rules}.local-utilisation", of.local_utilisation)
    line(f"{case}.{rules}.moves", of.moves)


@pytest.mark.parametrize("rules", CLAIMED)
@pytest.mark.parametrize("case", CASES)
def test_what_the_texts_claim_is_measured(case: str, rules: str) -> None:
    """They claim it of the state before and after: the cost is beside that of nodes that people order."""
    outcome, before = found(case, rules), found(case, "by-hand").figures
    of = outcome.figures
    print()
    claim(f"{case}.{rules}.claim.response-minutes", outcome.bought_p95_minutes, most=10)
    claim(f"{case}.{rules}.claim.cloud-idle", of.cloud_idle, most=0.08)
    claim(f"{case}.{rules}.claim.local-utilisation", of.local_utilisation, least=0.75)
    claim(f"{case}.{rules}.claim.cloud-utilisation", of.cloud_utilisation, least=0.85)
    claim(f"{case}.{rules}.claim.cost-over-by-hand", float(of.cloud_cost / before.cloud_cost), most=0.75)


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
    for rules, least in SPEEDS.items():
        line(f"itp.{rules}.jobs-per-second", found("itp", rules).jobs_per_second, least=least)
    line("replay.peak-mib", peak_mib("itp", tmp_path), most=300)
