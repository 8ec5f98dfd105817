"""The block ``scaling``: a preset by name, and what is written in place of its numbers."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from decimal import Decimal
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest

from spillway.config import load
from spillway.config.load import NOT_SAID
from spillway.model import OffPeak, WaitRules
from spillway.scaling.presets import DEFAULT, PRESETS, S0, S2, THRIFTY
from spillway.scaling.returning import ReturnRules
from spillway.scaling.rules import ForecastRule, QueueRule, ScalingRules, StepRule, UtilisationRule, WindowRule
from spillway.windows import Iteration

Write = Callable[..., Path]

MINUTE = timedelta(minutes=1)
HOUR = timedelta(hours=1)


def test_without_the_block_pools_follow_the_queue_and_no_job_waits_or_goes_back(directory: Path) -> None:
    found = load(directory)
    assert found.scaling == NOT_SAID == replace(DEFAULT, forecast=None, waiting=None, returning=None)
    assert found.policy.waiting is None


@pytest.mark.parametrize("name", PRESETS)
def test_a_preset_is_named(directory: Path, write: Write, name: str) -> None:
    write("policy.yaml", ("scaling",), {"preset": name})
    found = load(directory)
    assert found.scaling == PRESETS[name]
    assert found.policy.waiting == PRESETS[name].waiting


CHANGED: dict[str, tuple[dict[str, Any], ScalingRules]] = {
    "numbers of utilisation, exact": (
        {"preset": "s0", "utilisation": {"out_above": "77%", "target": 0.7, "in_after": "1h"}},
        replace(
            S0,
            reactive=UtilisationRule(out_above=Fraction(77, 100), target=Fraction(7, 10), in_after=HOUR),
        ),
    ),
    "numbers of steps": (
        {"preset": "s2", "steps": {"queue": 3, "most": 20}, "cool_down_out": "1m"},
        replace(S2, reactive=StepRule(queue=3, most=20), cool_down_out=MINUTE),
    ),
    "s2 to the letter": ({"preset": "s2", "idle_release": None}, replace(S2, idle_release=None)),
    "a forecast": (
        {"preset": "thrifty", "forecast": {"quantile": "50%"}},
        replace(THRIFTY, forecast=ForecastRule(quantile=0.5)),
    ),
    "nothing that the preset has beside the queue": (
        {"forecast": None, "waiting": None, "returning": None, "queue": {"after": "0s", "within": "0s"}},
        replace(DEFAULT, forecast=None, waiting=None, returning=None, reactive=QueueRule()),
    ),
    "other numbers of waiting and returning": (
        {"waiting": {"everybody": "2m"}, "returning": {"least_saving": 5}},
        replace(
            DEFAULT,
            waiting=replace(DEFAULT.waiting or WaitRules(), everybody=2 * MINUTE),
            returning=replace(DEFAULT.returning or ReturnRules(), least_saving=Decimal(5)),
        ),
    ),
    "times and gaps": (
        {"idle_release": "20m", "cool_down_in": "5m", "largest_gap": "2m"},
        replace(DEFAULT, idle_release=20 * MINUTE, cool_down_in=5 * MINUTE, largest_gap=2 * MINUTE),
    ),
    "time rules": (
        {"window": {"nodes": 4, "lead": "12h"}, "release_hours": {"hours": "02:00-06:00", "time_zone": "Europe/Rome"}},
        replace(
            DEFAULT,
            window=WindowRule(iteration=Iteration(), nodes=4, lead=12 * HOUR),
            release_hours=OffPeak(begins=2 * HOUR, ends=6 * HOUR, time_zone="Europe/Rome"),
        ),
    ),
}


@pytest.mark.parametrize(("written", "rules"), CHANGED.values(), ids=CHANGED.keys())
def test_what_is_written_stands_in_place_of_the_preset(
    directory: Path, write: Write, written: Any, rules: ScalingRules
) -> None:
    write("policy.yaml", ("scaling",), written)
    assert load(directory).scaling == rules


def test_a_window_is_the_one_of_the_iteration(directory: Path, write: Write) -> None:
    with write("policy.yaml", ("scaling",), {"window": {}}).open("a", encoding="utf-8") as file:
        file.write("iteration: {days: 5, time_zone: Europe/Rome}\n")
    assert load(directory).scaling.window == WindowRule(iteration=Iteration(days=5, time_zone="Europe/Rome"))


def test_a_window_may_name_a_pool_that_is_scaled(directory: Path, write: Write) -> None:
    write("clusters.yaml", ("clusters", 1, "pools", 0, "scaled_by"), {"provider": "placeholders"})
    write("policy.yaml", ("scaling",), {"window": {"pool": "cloud/h100"}})
    assert load(directory).scaling.window == WindowRule(iteration=Iteration(), place=("cloud", "h100"))


def test_the_version_of_a_policy_may_be_said(directory: Path, write: Write) -> None:
    said = load(directory)
    write("policy.yaml", ("version",), 1)
    assert load(directory) == said
