"""Whole sets of rules by name: those of the two texts, and the two of our own."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from decimal import Decimal

from spillway.model import WaitRules
from spillway.scaling.returning import ReturnRules
from spillway.scaling.rules import QueueRule, ScalingRules, StepRule, UtilisationRule

S0 = ScalingRules(preset="s0", reactive=UtilisationRule(), cool_down_out=timedelta(minutes=3))
S2 = ScalingRules(preset="s2", reactive=StepRule(), idle_release=timedelta(hours=1), cool_down_out=timedelta(minutes=5))
"""With ``idle_release`` None it is the text to the letter: at 41-84 % on-premises idle nodes then stay for good."""
DEFAULT = ScalingRules(
    preset="default",
    reactive=QueueRule(after=timedelta(minutes=1), within=timedelta(minutes=7, seconds=30)),
    idle_release=timedelta(minutes=5),
    waiting=WaitRules(from_gpu_hours=Decimal(100), share=Decimal(1)),
    returning=ReturnRules(),
)
"""Of twenty jobs nineteen wait no longer than 10 minutes: only the few that take 100 GPU-hours or more wait longer."""
THRIFTY = ScalingRules(
    preset="thrifty",
    reactive=QueueRule(within=timedelta(minutes=7, seconds=30)),
    idle_release=timedelta(minutes=5),
    waiting=WaitRules(everybody=timedelta(minutes=5), from_gpu_hours=Decimal(32), share=Decimal(1)),
    returning=ReturnRules(),
)

PRESETS: Mapping[str, ScalingRules] = {rules.preset: rules for rules in (S0, S2, DEFAULT, THRIFTY)}
