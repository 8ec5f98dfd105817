"""Figures of demand, the table and the chart; the samples are in a real ledger."""

from __future__ import annotations

import re
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

from spillway.demand.chart import Point, chart, points
from spillway.demand.figures import DemandFigures, Whose, latency
from spillway.demand.render import aligned, cells, lasting, number, queue_cells, remarks, totals
from spillway.ledger import Ledger, open_ledger
from spillway.model import (
    DeviceUse,
    JobDemand,
    JobUse,
    NodeSample,
    PodStart,
    PoolSample,
    Priority,
    Sample,
    SampleRetention,
)
from spillway.runs.demand_report import demand_chart, demand_now
from spillway.testing.builders import NOW, cloud_cluster, onprem_cluster
from spillway.testing.ledger_files import new_ledger

DECLARED = {"onprem": onprem_cluster(), "cloud": cloud_cluster()}
SECOND, MINUTE, HOUR = timedelta(seconds=1), timedelta(minutes=1), timedelta(hours=1)
PLACES = frozenset({("onprem", "a100"), ("cloud", "h100")})


@pytest.fixture
def ledger(tmp_path: Path) -> Ledger:
    return open_ledger(new_ledger(tmp_path / "ledger.db"))


def onprem(used: float = 20, **changes: Any) -> PoolSample:
    jobs = (JobUse(job=None, department=None, gpus=4), JobUse(job="llm", department="research", gpus=used - 4))
    values = {"cluster": "onprem", "pool": "a100", "gpus": 32, "used_gpus": used, "nodes": 4, "idle_nodes": 1}
    return PoolSample(**values | {"jobs": jobs} | changes)


def cloud(**changes: Any) -> PoolSample:
    values = {"cluster": "cloud", "pool": "h100", "gpus": 8, "used_gpus": 0, "nodes": 1, "idle_nodes": 1}
    return PoolSample(**values | changes)


def waits(job: str, gpus: float, department: str = "research") -> JobDemand:
    return JobDemand(job=job, department=department, places=PLACES, runs=1, gpus=gpus)


def record(
    ledger: Ledger, ago: timedelta, *pools: PoolSample, queue: tuple[JobDemand, ...] = (), **unknown: str
) -> None:
    nodes = [
        NodeSample(cluster="onprem", pool="a100", name=name, seen_at=NOW - ago, gpus=8, used_gpus=0, idle_since=since)
        for name, since in (("n2", NOW - ago), ("n1", NOW - ago), ("busy", None))
    ]
    starts = [
        PodStart(cluster="onprem", pool="a100", pod=f"t/{seconds}", created_at=NOW - HOUR, started_at=at)
        for seconds in (20, 30, 90)
        for at in [NOW - HOUR + seconds * SECOND]
    ]
    ledger.record_sample(Sample(at=NOW - ago, pools=pools, queue=queue, unknown=unknown), nodes, starts)


def shown(figures: DemandFigures) -> list[str]:
    return [" | ".join(line) for line in cells(figures)[1:]]


def test_each_pool_has_its_figures_and_their_age(ledger: Ledger) -> None:
    device = DeviceUse(gpus=24, utilisation=0.714)
    queue = (waits("ocr", 8, "production"), waits("llm", 16))
    record(ledger, MINUTE + 20 * SECOND, onprem(), cloud())
    record(ledger, 20 * SECOND, onprem(device=device, measured=1), cloud(), queue=queue)
    figures = demand_now(ledger, DECLARED, NOW)
    assert not figures.stale
    assert shown(figures) == [
        "onprem | a100 | 20s ago | 32 | 20 | 12 | 71% (of 24) | 2 | 24 | 4 | n1 1m, n2 1m | 30s / 1m 30s",
        "cloud | h100 | 20s ago | 8 | 0 | 8 | ? | 2 | 24 | 1 | - | -",
    ]
    assert remarks(figures) == [totals(figures)] == ["in all 20 of 40 GPUs used, 24 waited for"]
    assert queue_cells(figures)[1:] == [
        ["llm", "research", "1", "16", "cloud/h100 or onprem/a100"],
        ["ocr", "production", "1", "8", "cloud/h100 or onprem/a100"],
    ]


def test_figures_may_be_asked_for_by_department_priority_and_business_scene(ledger: Ledger) -> None:
    research = {"priority": Priority.RESEARCH, "business_scene": "reading"}
    explores = {"priority": Priority.EXPLORATION, "business_scene": "defects"}
    jobs = (
        JobUse(job=None, department=None, gpus=4),
        JobUse(job="llm", department="research", gpus=10, **research),
        JobUse(job="try", department="research", gpus=6, **explores),
    )
    queue = (replace(waits("ocr", 8, "production"), **research), replace(waits("try", 2), **explores))
    record(ledger, SECOND, onprem(jobs=jobs), cloud(), queue=queue)
    for whose, told in {
        Whose(): "20 of 40 GPUs used, 10 waited for",
        Whose(department="production"): "0 of 40 GPUs used by jobs of production, 8 waited for",
        Whose(priority=Priority.RESEARCH): "10 of 40 GPUs used by research jobs, 8 waited for",
        Whose(business_scene="defects"): "6 of 40 GPUs used by jobs in the scene defects, 2 waited for",
        Whose(department="research", priority=Priority.RESEARCH, business_scene="reading"): (
            "10 of 40 GPUs used by research jobs of research in the scene reading, 0 waited for"
        ),
    }.items():
        figures = demand_now(ledger, DECLARED, NOW, whose)
        assert totals(figures) == f"in all {told}"
        assert figures.pools[0].free_gpus == 12, "what no pod holds, whoever asks"
        assert figures.business_scenes == ("defects", "reading")
    assert [line[0] for line in queue_cells(figures)[1:]] == []
    theirs = demand_now(ledger, DECLARED, NOW, Whose(department="production"))
    assert [line[0] for line in queue_cells(theirs)[1:]] == ["ocr"]


def test_a_cluster_that_fails_for_half_an_hour_keeps_its_figures_with_their_age_and_the_cause(ledger: Ledger) -> None:
    record(ledger, 30 * MINUTE, onprem(8), cloud(used_gpus=4))
    record(ledger, SECOND, onprem(), queue=(waits("llm", 16),), cloud="connection refused")
    figures = demand_now(ledger, DECLARED, NOW)
    assert figures.stale
    assert [(pool.cluster, pool.stale) for pool in figures.pools] == [("onprem", False), ("cloud", True)]
    assert shown(figures)[1].startswith("cloud | h100 | 30m ago, STALE | 8 | 4 | 4 | ? | ? | ? | 1 |")
    assert remarks(figures) == [
        "cloud/h100: as it was 30m ago: connection refused",
        "in all 24 of 40 GPUs used, 16 waited for (not of now: cloud/h100)",
    ]
    record(ledger, timedelta(), onprem(), cloud())
    healed = demand_now(ledger, DECLARED, NOW)
    assert not healed.stale
    assert "not of now" not in totals(healed), "recovery clears the mark by itself"


def test_what_was_never_read_or_is_read_by_nobody_differs_from_what_is_empty(ledger: Ledger) -> None:
    nothing = demand_now(ledger, DECLARED, NOW)
    assert nothing.stale
    assert shown(nothing)[0] == "onprem | a100 | never | ? | ? | ? | ? | ? | ? | ? | ? | -"
    assert remarks(nothing)[0] == (
        "onprem/a100: unknown: nobody takes samples: is `python -m spillway sample` running?"
    )
    assert totals(nothing).startswith(
        "in all 0 of 0 GPUs used, the queue is not known (not of now: onprem/a100, cloud/h100"
    )
    record(ledger, HOUR, onprem(), cloud())
    old = demand_now(ledger, DECLARED, NOW)
    assert [pool.cause for pool in old.pools] == ["nobody takes samples: is `python -m spillway sample` running?"] * 2
    assert old.queue is None
    record(ledger, SECOND, onprem(gpus=0, used_gpus=0, nodes=0, idle_nodes=0, jobs=()), cloud="bad credentials")
    empty, gone = demand_now(ledger, DECLARED, NOW).pools
    assert (empty.gpus, empty.used_gpus, empty.pending_gpus, empty.stale) == (0, 0, 0, False)
    assert (gone.cause, gone.pending_gpus) == ("bad credentials", None)


def test_words_of_the_table() -> None:
    assert [lasting(timedelta(seconds=s)) for s in (0, 0.4, 59, 61, 3600, 90061)] == [
        "0s", "0s", "59s", "1m 1s", "1h", "1d 1h",
    ]  # fmt: skip
    assert [number(value) for value in (None, 0, 2.504, 12.0)] == ["?", "0", "2.5", "12"]
    assert aligned([["a", "bb"], ["ccc", ""]]) == "a    bb\nccc"
    assert latency([]) is None
    assert latency([SECOND * n for n in range(100, 0, -1)]) == (50 * SECOND, 95 * SECOND)


def test_the_chart_draws_what_was_measured_and_hatches_what_was_not(ledger: Ledger) -> None:
    step = 5 * MINUTE
    begin = NOW.replace(hour=6, minute=0, second=0, microsecond=0)

    def average(index: int, *pools: PoolSample, **unknown: str) -> Sample:
        return Sample(
            at=begin + index * step, step=step, taken=10, pools=pools, queue=(waits("llm", 8),), unknown=unknown
        )

    averages = [average(0, onprem(), cloud()), average(1, onprem(), cloud="away"), average(3, onprem(0), cloud())]
    assert points(averages, DECLARED) == {
        begin: Point(capacity=40, used=20, demand=28),
        begin + 3 * step: Point(capacity=40, used=0, demand=8),
    }
    drawn = chart(averages, DECLARED, since=begin, until=begin + 5 * step, step=step)
    root = ElementTree.fromstring(drawn)
    assert root.attrib["aria-label"].endswith("2 of 5 steps measured")
    assert len(root.findall("polyline")) == 2 * 3
    hatched = [rect for rect in root.findall("rect") if rect.find("title") is not None]
    assert [(float(r.attrib["x"]), float(r.attrib["width"])) for r in hatched] == [(236.8, 361.6), (779.2, 180.8)]
    assert "nan" not in drawn.lower()
    nothing = chart([], DECLARED, since=begin, until=begin + 5 * step, step=step)
    assert "0 of 5 steps measured" in nothing


def test_the_chart_of_the_last_day_is_of_averages(ledger: Ledger) -> None:
    for index in range(40):
        record(ledger, 30 * MINUTE - index * 30 * SECOND, onprem(), cloud())
    ledger.roll_up_samples(SampleRetention(), NOW)
    drawn = demand_chart(ledger, DECLARED, NOW)
    [counted] = re.findall(r"(\d+) of 288 steps measured", drawn)
    assert int(counted) in (4, 5)
