"""What the block ``scaling`` of ``policy.yaml`` may hold: a preset, and numbers that stand in place of its own."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from fractions import Fraction
from typing import Annotated, Any, ClassVar

from pydantic import BeforeValidator, Field, model_validator

from spillway.config import notation
from spillway.config.schema import MOST, Amount, Count, Duration, Entry, HoursEntry, Lasting
from spillway.errors import UnknownName
from spillway.model import WaitRules
from spillway.scaling.presets import DEFAULT, PRESETS
from spillway.scaling.returning import ReturnRules
from spillway.scaling.rules import ForecastRule, QueueRule, ScalingRules, StepRule, UtilisationRule, WindowRule
from spillway.windows import Iteration


def _exact(written: Any) -> Fraction:
    return Fraction(notation.share(written))


def _quantile(written: Any) -> float:
    return float(notation.share(written))


ExactShare = Annotated[Fraction, BeforeValidator(_exact)]


class Numbers(Entry):
    """Numbers of one kind of rule, which stand in place of those of a preset; together they have to make sense."""

    kind: ClassVar[type[Any]]

    @model_validator(mode="after")
    def _makes_sense(self) -> Numbers:
        try:
            self.rule(None)
        except ValueError as problem:
            raise notation.refused(str(problem)) from problem
        return self

    def rule(self, preset: Any) -> Any:
        """The rule of the preset with these numbers; one of its kind's own defaults where the preset has none."""
        said = {name: value for name, value in dict(self).items() if value is not None}
        return replace(preset or self.kind(), **said)


class UtilisationEntry(Numbers):
    kind = UtilisationRule
    out_above: ExactShare | None = None
    out_after: Lasting | None = None
    target: ExactShare | None = None
    in_below: ExactShare | None = None
    in_after: Lasting | None = None


class StepsEntry(Numbers):
    kind = StepRule
    out_from: ExactShare | None = None
    out_after: Lasting | None = None
    queue: Count | None = None
    least: Count | None = None
    most: Count | None = None
    in_to: ExactShare | None = None
    in_after: Lasting | None = None
    in_idle: Lasting | None = None


class QueueEntry(Numbers):
    kind = QueueRule
    after: Duration | None = None
    within: Duration | None = None


class ForecastEntry(Numbers):
    kind = ForecastRule
    quantile: Annotated[float | None, BeforeValidator(_quantile)] = None
    ahead: Lasting | None = None


class WaitingEntry(Numbers):
    kind = WaitRules
    everybody: Duration | None = None
    from_gpus: Count | None = None
    from_gpu_hours: Amount | None = None
    share: Amount | None = None
    longest: Duration | None = None


class ReturningEntry(Numbers):
    kind = ReturnRules
    after: Duration | None = None
    least_saving: Amount | None = None


class WindowEntry(Entry):
    """Nodes for the windows of ``iteration``."""

    nodes: Annotated[int, Field(strict=True, ge=1, le=MOST)] = 10
    lead: Duration = timedelta(hours=24)
    pool: Annotated[tuple[str, str], BeforeValidator(notation.pool)] | None = None

    def rule(self, iteration: Iteration) -> WindowRule:
        return WindowRule(iteration=iteration, nodes=self.nodes, lead=self.lead, place=self.pool)


def _preset(written: Any) -> str:
    if not isinstance(written, str) or written not in PRESETS:
        raise notation.refused(str(UnknownName("preset", str(written), PRESETS)))
    return str(written)


class ScalingEntry(Entry):
    """Every key may be left out; what is null is switched off, what is not there is as the preset has it."""

    preset: Annotated[str, BeforeValidator(_preset)] = DEFAULT.preset
    utilisation: UtilisationEntry | None = None
    steps: StepsEntry | None = None
    queue: QueueEntry | None = None
    idle_release: Lasting | None = None
    forecast: ForecastEntry | None = None
    waiting: WaitingEntry | None = None
    returning: ReturningEntry | None = None
    window: WindowEntry | None = None
    release_hours: HoursEntry | None = None
    cool_down_out: Duration = timedelta()
    cool_down_in: Duration = timedelta()
    largest_gap: Lasting = timedelta()

    @model_validator(mode="after")
    def _of_its_preset(self) -> ScalingEntry:
        for key in _REACTIVE:
            numbers: Numbers | None = getattr(self, key)
            if numbers is not None and not isinstance(PRESETS[self.preset].reactive, numbers.kind):
                having = [name for name, rules in PRESETS.items() if isinstance(rules.reactive, numbers.kind)]
                raise notation.refused(
                    f"{key} is for {' and '.join(having)}, not for preset '{self.preset}'; leave it out"
                )
        return self

    def rules(self, iteration: Iteration) -> ScalingRules:
        """The preset with what is written here."""
        preset, said = PRESETS[self.preset], dict[str, Any]()
        for key in self.model_fields_set - {"preset", *_REACTIVE}:
            value = getattr(self, key)
            said[key] = value.rule(getattr(preset, key)) if isinstance(value, Numbers) else value
        for key in _REACTIVE:
            if (numbers := getattr(self, key)) is not None:
                said["reactive"] = numbers.rule(preset.reactive)
        if self.window is not None:
            said["window"] = self.window.rule(iteration)
        if self.release_hours is not None:
            said["release_hours"] = self.release_hours.off_peak()
        return replace(preset, **said)


_REACTIVE = ("utilisation", "steps", "queue")
"""The keys of numbers of a reactive rule; each preset has one rule of one kind."""
