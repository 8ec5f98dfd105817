"""``scale``: plans with their reasons, orders, and every change, for people and for programs."""

from __future__ import annotations

import getpass
import json
import socket
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from spillway.commands.scale import rules_told
from spillway.model import OffPeak
from spillway.sandbox import drills
from spillway.scaling.presets import PRESETS
from spillway.scaling.rules import WindowRule
from spillway.scaling.wishes import UNCHANGED
from spillway.testing.command_line import Spillway
from spillway.testing.sandbox_server import Installation
from spillway.windows import Iteration

NOTHING_FORESEEN = "nothing is foreseen: demand is known for 0 steps of 1:00:00, which is less than a day"
ME = f"{getpass.getuser()}@{socket.gethostname()}"
pytestmark = pytest.mark.usefixtures("slow_cloud")


@pytest.fixture
def slow_cloud(installation: Installation) -> None:
    """Machines that are ordered do not come while a test looks."""
    drills.misbehave(installation.sandbox, boot=timedelta(hours=1))


def test_a_plan_shows_every_reason_and_changes_nothing(spillway: Spillway, installation: Installation) -> None:
    answer = spillway("scale", "plan")
    assert (answer.code, answer.out.splitlines()) == (
        0,
        [
            "cloud/gpu: 2 nodes, as wanted",
            f"  reactive wants 2: {UNCHANGED}",
            NOTHING_FORESEEN,
            "rules: default; no job waits by choice or goes back",
        ],
    )
    told = json.loads(spillway("scale", "plan", "--json").out)
    assert (told["foreseen"], told["problems"]) == (NOTHING_FORESEEN, [])
    (target,) = told["plan"]
    assert (target["cluster"], target["nodes"], target["remove"]) == ("cloud", 2, [])
    assert installation.services().ledger.scaling_changes() == ()


def test_nodes_are_ordered_applied_and_found_again_among_orders_and_changes(
    spillway: Spillway, installation: Installation
) -> None:
    assert spillway("scale", "add", "cloud/gpu", "1", "--dry-run").out.splitlines() == [
        "cloud/gpu: 2 -> 3 nodes, ready within 10 minutes",
        "costs an hour: 32.00",
    ]
    assert installation.services().ledger.scaling_orders() == ()
    ordered = json.loads(spillway("scale", "add", "cloud/gpu", "1", "--hours", "2", "--json").out)
    assert (ordered["kind"], ordered["nodes"], ordered["base_nodes"], ordered["ordered_by"]) == ("add", 1, 2, ME)
    applied = spillway("scale", "apply")
    assert applied.code == 0
    assert "cloud/gpu: 2 -> 3 nodes" in applied.out
    assert "  manual wants 3: 1 beside the 2 of then until" in applied.out
    again = spillway("scale", "apply")
    assert "2 of 3 nodes ready" in again.out
    assert "every pool is as wanted" in again.out
    (header, order) = spillway("scale", "orders").out.splitlines()
    assert header.split()[:4] == ["ORDER", "WHAT", "POOL", "BY"]
    assert order.split()[:4] == [ordered["order"], "+1", "cloud/gpu", ME]
    (_, change) = spillway("scale", "changes").out.splitlines()
    assert [part.strip() for part in change.split("  ") if part.strip()][1:5] == ["cloud/gpu", "2 -> 3", ME, "done"]
    (number,) = (line["number"] for line in json.loads(spillway("scale", "changes", "--json").out))
    inputs = spillway("scale", "inputs", str(number))
    planned = json.loads(inputs.out)
    assert (inputs.code, planned["follows"], planned["snapshot"]["orders"][0]["order"]) == (0, True, ordered["order"])
    unknown = spillway("scale", "inputs", "99")
    assert (unknown.code, "change '99' is not in" in unknown.err) == (1, True)
    withdrawn = spillway("scale", "withdraw", ordered["order"])
    assert withdrawn.out.startswith(f"order {ordered['order']}: 1 node more at cloud/gpu, withdrawn")
    assert "withdrawn" in spillway("scale", "orders").out


def test_the_rules_in_force_are_told_with_what_the_clock_makes_of_them() -> None:
    window = WindowRule(iteration=Iteration(), nodes=3, lead=timedelta(hours=24))
    hours = OffPeak(begins=timedelta(hours=2), ends=timedelta(hours=6), time_zone="UTC")
    rules = replace(PRESETS["s2"], window=window, release_hours=hours)
    inside, outside = datetime(2026, 3, 25, 3, tzinfo=UTC), datetime(2026, 3, 10, 12, tzinfo=UTC)
    assert [rules_told(PRESETS["s2"], inside), rules_told(rules, inside), rules_told(rules, outside)] == [
        "rules: s2",
        "rules: s2; in the window 2026-03; idle nodes leave between 02:00 and 06:00 (UTC)",
        "rules: s2; no window now; not in the hours of release",
    ]


def test_a_pool_that_is_there_and_not_scaled_is_told_as_that(spillway: Spillway) -> None:
    told = spillway("scale", "add", "onprem/gpu", "1").err
    assert "it declares no scaled_by; declare it in clusters.yaml, or name one that does: cloud/gpu" in told
    assert "unknown pool that can be scaled 'cloud/gpus'" in spillway("scale", "add", "cloud/gpus", "1").err


def test_a_shrink_shows_its_plan_and_is_ordered_by_who_approves_it(
    spillway: Spillway, installation: Installation
) -> None:
    (leaves,) = json.loads(spillway("scale", "shrink", "cloud/gpu", "1", "--json").out)["leaving"]
    shown = spillway("scale", "shrink", "cloud/gpu", "1")
    assert shown.out.splitlines() == [
        f"cloud/gpu: 2 -> 1 node; leaving: {leaves}",
        "lost work: 0 s",
        "saved an hour: 32.00",
    ]
    assert installation.services().ledger.scaling_orders() == ()
    assert spillway("scale", "shrink", "cloud/gpu", "1", "--approve").code == 0
    (order,) = installation.services().ledger.scaling_orders()
    assert (order.kind, order.nodes, order.remove, order.ordered_by) == ("shrink", 1, (leaves,), ME)


def test_what_cannot_be_done_is_told_in_one_line(spillway: Spillway, installation: Installation) -> None:
    answers = [
        spillway("scale", "add", "cloud/gpus", "1"),
        spillway("scale", "add", "cloud/gpu", "9"),
        spillway("scale", "withdraw", "nothing"),
    ]
    assert [(answer.code, answer.err.count("\n")) for answer in answers] == [(1, 1)] * 3
    assert "Did you mean 'cloud/gpu'?" in answers[0].err
    assert "it is to have 2 and may have 4" in answers[1].err
    assert "`scale orders` tells which there are" in answers[2].err
    with installation.taken("cloud-machines"):
        answer = spillway("scale", "plan")
    assert answer.code == 1
    assert answer.out.startswith("not known, so it keeps its size: cloud/gpu: ")
