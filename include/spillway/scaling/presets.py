"""Whole sets of rules by name: those of the two texts, and the two of our own."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta

from spillway.scaling.rules import ForecastRule, QueueRule, ScalingRules, StepRule, UtilisationRule

S0 = ScalingRules(preset="s0", reactive=UtilisationRule(), cool_down_out=timedelta(minutes=3))
S2 = ScalingRules(preset="s2", reactive=StepRule(), idle_release=timedelta(hours=1), cool_down_out=timedelta(minutes=5))
"""With ``idle_release`` None it is the text to the letter: at 41-84 % on-premises idle nodes then stay for good."""
DEFAULT = ScalingRules(
    preset="default", reactive=QueueRule(), idle_release=timedelta(minutes=10), forecast=ForecastRule()
)
THRIFTY = ScalingRules(preset="thrifty", reactive=QueueRule(), idle_release=timedelta(minutes=10))

PRESETS: Mapping[str, ScalingRules] = {rules.preset: rules for rules in (S0, S2, DEFAULT, THRIFTY)}
