"""A day of scaling as it was recorded: its plans follow from what is stored, and a candidate differs as it did."""

from __future__ import annotations

import gzip
import json
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from spillway.codec import decode
from spillway.ledger import ScalingLook
from spillway.runs.shadow_scaling import ScalingShadow, shadow_scaling
from spillway.scaling.planner import plan_scaling
from spillway.scaling.presets import S2
from spillway.scaling.rules import QueueRule, ScalingRules

RECORDED = Path(__file__).with_name("recorded_day.jsonl.gz")
TOLD = Path(__file__).with_name("recorded_day.txt")
"""``record_day.py`` makes both anew."""
DAY = datetime(2026, 3, 2, tzinfo=UTC)
NEXT = DAY + timedelta(days=1)
CANDIDATE = ScalingRules(preset="event", reactive=QueueRule(), idle_release=timedelta(minutes=10))


@pytest.fixture(scope="module")
def looks() -> list[ScalingLook]:
    lines = gzip.decompress(RECORDED.read_bytes()).splitlines()
    return [decode(ScalingLook, json.loads(line)) for line in lines]


def numbers(found: ScalingShadow) -> str:
    """Each difference without the reasons, which may be put otherwise: clock, nodes of before, live and candidate."""
    rows = ((f"{one.taken_at:%H:%M}", one.before, one.live, one.candidate, one.per_hour) for one in found.differences)
    return "".join("{:5} {:2} {:2} {:2} {:+8}\n".format(*row) for row in rows)


def test_the_live_rules_give_the_recorded_changes_again(looks: list[ScalingLook]) -> None:
    changes = []
    for look in looks:
        plan = plan_scaling(look.snapshot, look.forecasts, look.rules)
        for use, target in zip(look.snapshot.pools, plan, strict=True):
            if use.wanted != target.nodes:
                changes.append((f"{look.snapshot.taken_at:%H:%M}", use.wanted, target.nodes))
    assert changes == [
        ("07:20", 0, 5),
        ("08:30", 5, 4),
        ("09:36", 4, 3),
        ("09:46", 3, 2),
        ("15:38", 2, 7),
        ("17:57", 7, 6),
    ]


def test_the_rules_that_were_in_force_differ_from_themselves_nowhere(looks: list[ScalingLook]) -> None:
    found = shadow_scaling(looks, S2, since=DAY, until=NEXT)
    assert found == ScalingShadow(since=DAY, until=NEXT, compared=len(looks), not_rebuilt=0, differences=())


def test_a_candidate_wants_other_numbers_of_nodes_exactly_where_it_did(looks: list[ScalingLook]) -> None:
    found = shadow_scaling(looks, CANDIDATE, since=DAY, until=NEXT)
    assert numbers(found) == TOLD.read_text()
