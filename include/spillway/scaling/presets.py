"""Whole sets of rules by name: those of the two texts, and the two of our own."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from datetime import timedelta
from decimal import Decimal

from spillway.model import WaitRules
from spillway.scaling.returning import ReturnRules
from spillway.scaling.rules import ForecastRule, QueueRule, ScalingRules, StepRule, UtilisationRule

S0 = ScalingRules(preset="s0", reactive=UtilisationRule(), cool_down_out=timedelta(minutes=3))
S2 = ScalingRules(preset="s2", reactive=StepRule(), idle_release=timedelta(hours=1), cool_down_out=timedelta(minutes=5))
"""With ``idle_release`` None it is the text to the letter: at 41-84 % on-premises idle nodes then stay for good."""
DEFAULT = ScalingRules(
    preset="default",
    reactive=QueueRule(within=timedelta(minutes=7, seconds=30)),
    idle_release=timedelta(minutes=2),
    forecast=ForecastRule(quantile=0.05),
    waiting=WaitRules(from_gpus=8, from_gpu_hours=Decimal(100), share=Decimal(4), longest=timedelta(hours=72)),
    returning=ReturnRules(after=timedelta(minutes=10)),
)
"""Of twenty jobs nineteen wait no longer than 10 minutes: only the few wide ones that take long wait longer.

The quantile of its forecast is one that nearly always comes true: nodes for more than that idle more than they help.
"""
THRIFTY = replace(
    DEFAULT,
    preset="thrifty",
    waiting=WaitRules(from_gpus=8, from_gpu_hours=Decimal(400), share=Decimal(4), longest=timedelta(hours=240)),
)
"""The mean time to completion hardly grows: fewer jobs wait than by ``DEFAULT``, but longer."""

PRESETS: Mapping[str, ScalingRules] = {rules.preset: rules for rules in (S0, S2, DEFAULT, THRIFTY)}
