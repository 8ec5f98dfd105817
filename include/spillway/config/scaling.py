"""What the block ``scaling`` of ``policy.yaml`` may hold: a preset, and numbers that stand in place of its own."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from datetime import timedelta
from decimal import Decimal
from fractions import Fraction
from typing import Annotated, Any, ClassVar

from pydantic import BeforeValidator, Field, model_validator

from spillway.config import notation
from spillway.config.schema import MOST, Count, Duration, Entry, HoursEntry, Lasting, Share
from spillway.errors import UnknownName
from spillway.scaling.presets import DEFAULT, PRESETS
from spillway.scaling.rules import ForecastRule, ReactiveRule, ScalingRules, StepRule, UtilisationRule, WindowRule
from spillway.windows import Iteration


class ReactiveEntry(Entry):
    """Numbers of one kind of reactive rule; shares are exact, and what they come to has to make sense."""

    kind: ClassVar[type[Any]]

    @model_validator(mode="after")
    def _makes_sense(self) -> ReactiveEntry:
        try:
            self.rule(self.kind())
        except ValueError as problem:
            raise notation.refused(str(problem)) from problem
        return self

    def rule(self, preset: Any) -> ReactiveRule:
        """The rule of the preset with these numbers."""
        said = self.model_dump(exclude_none=True)
        exact = {name: Fraction(value) if isinstance(value, Decimal) else value for name, value in said.items()}
        changed: ReactiveRule = replace(preset, **exact)
        return changed


class UtilisationEntry(ReactiveEntry):
    """Every key may be left out; the preset has the numbers."""

    kind = UtilisationRule
    out_above: Share | None = None
    out_after: Lasting | None = None
    target: Share | None = None
    in_below: Share | None = None
    in_after: Lasting | None = None


class StepsEntry(ReactiveEntry):
    """Every key may be left out; the preset has the numbers."""

    kind = StepRule
    out_from: Share | None = None
    out_after: Lasting | None = None
    queue: Count | None = None
    least: Count | None = None
    most: Count | None = None
    in_to: Share | None = None
    in_after: Lasting | None = None
    in_idle: Lasting | None = None


class ForecastEntry(Entry):
    """Every key may be left out; ``ForecastRule`` has the defaults."""

    quantile: Share | None = None
    ahead: Lasting | None = None

    def rule(self, preset: ForecastRule | None) -> ForecastRule:
        rule = preset or ForecastRule()
        quantile = rule.quantile if self.quantile is None else float(self.quantile)
        return ForecastRule(quantile=quantile, ahead=rule.ahead if self.ahead is None else self.ahead)


def _place(written: Any) -> tuple[str, str]:
    cluster, slash, pool = written.partition("/") if isinstance(written, str) else ("", "", "")
    if not (cluster and slash and pool):
        raise notation.refused(f"expected a pool as cluster/pool, got {written!r}")
    return cluster, pool


class WindowEntry(Entry):
    """Nodes for the windows of ``iteration``."""

    nodes: Annotated[int, Field(strict=True, ge=1, le=MOST)] = 10
    lead: Duration = timedelta(hours=24)
    pool: Annotated[tuple[str, str], BeforeValidator(_place)] | None = None

    def rule(self, iteration: Iteration) -> WindowRule:
        return WindowRule(iteration=iteration, nodes=self.nodes, lead=self.lead, place=self.pool)


def _preset(written: Any) -> str:
    if written not in PRESETS:
        raise notation.refused(str(UnknownName("preset", str(written), PRESETS)))
    return str(written)


class ScalingEntry(Entry):
    """Every key may be left out; what is null is switched off, what is not there is as the preset has it."""

    preset: Annotated[str, BeforeValidator(_preset)] = DEFAULT.preset
    utilisation: UtilisationEntry | None = None
    steps: StepsEntry | None = None
    idle_release: Lasting | None = None
    forecast: ForecastEntry | None = None
    window: WindowEntry | None = None
    release_hours: HoursEntry | None = None
    cool_down_out: Duration | None = None
    cool_down_in: Duration | None = None
    largest_gap: Lasting | None = None

    @model_validator(mode="after")
    def _of_its_preset(self) -> ScalingEntry:
        for key, kind in _KINDS.items():
            rule = PRESETS[self.preset].reactive
            if getattr(self, key) is not None and not isinstance(rule, kind):
                having = [name for name, rules in PRESETS.items() if isinstance(rules.reactive, kind)]
                raise notation.refused(
                    f"{key} is for preset {' or '.join(having)}, not for '{self.preset}'; leave it out"
                )
        return self

    def rules(self, iteration: Iteration) -> ScalingRules:
        """The preset with what is written here."""
        preset = PRESETS[self.preset]
        said: dict[str, Any] = {}
        for key in ("cool_down_out", "cool_down_in", "largest_gap"):
            if (value := getattr(self, key)) is not None:
                said[key] = value
        if (reactive := self.utilisation or self.steps) is not None:
            said["reactive"] = reactive.rule(preset.reactive)
        if "idle_release" in self.model_fields_set:
            said["idle_release"] = self.idle_release
        if "forecast" in self.model_fields_set:
            said["forecast"] = None if self.forecast is None else self.forecast.rule(preset.forecast)
        if self.window is not None:
            said["window"] = self.window.rule(iteration)
        if self.release_hours is not None:
            said["release_hours"] = self.release_hours.off_peak()
        return replace(preset, **said)


_KINDS: Mapping[str, type[UtilisationRule] | type[StepRule]] = {"utilisation": UtilisationRule, "steps": StepRule}
"""Which reactive rule each key changes the numbers of."""
