"""A candidate policy beside the live one: where jobs would have run, and how many nodes there would have been."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any

from spillway.model import PlacementPolicy
from spillway.runs.shadow_scaling import ScalingShadow, shadow_scaling
from spillway.runs.shadowing import Shadow, shadow
from spillway.scaling.rules import ScalingRules

if TYPE_CHECKING:
    from spillway.ledger import Ledger


@dataclass(frozen=True, slots=True, kw_only=True)
class Shadows:
    """What the candidate takes otherwise of both."""

    placement: Shadow
    scaling: ScalingShadow

    def data(self) -> dict[str, Any]:
        """All of it for a program; what is of scaling is under ``scaling``."""
        return {**self.placement.data(), "scaling": self.scaling.data()}

    def summary(self) -> dict[str, Any]:
        """As ``data``, without the differences themselves."""
        told = self.data()
        parts = {**told, "scaling": _but_differences(told["scaling"])}
        return _but_differences(parts)

    def told(self) -> str:
        """It for a person."""
        return f"{self.placement.told()}\n\n{self.scaling.told()}"


def shadows(
    ledger: Ledger, placement: PlacementPolicy, scaling: ScalingRules, *, since: datetime, until: datetime
) -> Shadows:
    """Decide by the candidate on all that is stored from ``since`` and before ``until``."""
    decisions, looks = ledger.decisions_between(since, until), ledger.looks_between(since, until)
    return Shadows(
        placement=shadow(decisions, placement, since=since, until=until),
        scaling=shadow_scaling(looks, scaling, since=since, until=until),
    )


def _but_differences(told: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in told.items() if key != "differences"}
