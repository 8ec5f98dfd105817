"""What the scaler goes by: values that a preset names and a policy file may change one by one."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from fractions import Fraction

from spillway.model import OffPeak, WaitRules
from spillway.scaling.returning import ReturnRules
from spillway.windows import Iteration


@dataclass(frozen=True, slots=True, kw_only=True)
class UtilisationRule:
    """Cloud nodes by how busy they are: more above ``out_above``, fewer below ``in_below``, to reach ``target``.

    Each has to be so without a break for ``out_after`` and ``in_after``.

    Raises:
        ValueError: ``target`` is not above 0, as no number of GPUs makes work take none of them; or it does not lie
            between the other two, so that a change would bring about the next one.
    """

    out_above: Fraction = Fraction(80, 100)
    out_after: timedelta = timedelta(minutes=3)
    target: Fraction = Fraction(70, 100)
    in_below: Fraction = Fraction(30, 100)
    in_after: timedelta = timedelta(minutes=30)

    def __post_init__(self) -> None:
        if self.target <= 0:
            raise ValueError(f"expected a target above 0, got {self.target}")
        if not self.in_below < self.target <= self.out_above:
            bounds = ", ".join(f"{float(share):g}" for share in (self.in_below, self.target, self.out_above))
            raise ValueError(f"expected in_below < target <= out_above, got {bounds}")


@dataclass(frozen=True, slots=True, kw_only=True)
class StepRule:
    """Cloud nodes in steps, by how busy on-premises is and what waits.

    Out: on-premises at ``out_from`` or above for ``out_after``, and ``queue`` jobs wait or what waits fills a smallest
    step. A step has as many nodes as the GPUs need that wait, at least ``least``, at most ``most``. In: on-premises at
    ``in_to`` or below for ``in_after``, the nodes that are idle for ``in_idle``.

    Raises:
        ValueError: a step has no sense, or ``in_to`` is not below ``out_from``.
    """

    out_from: Fraction = Fraction(85, 100)
    out_after: timedelta = timedelta(minutes=5)
    queue: int = 5
    least: int = 5
    most: int = 10
    in_to: Fraction = Fraction(40, 100)
    in_after: timedelta = timedelta(minutes=10)
    in_idle: timedelta = timedelta(hours=1)

    def __post_init__(self) -> None:
        if not 1 <= self.least <= self.most:
            raise ValueError(f"expected 1 <= least <= most, got {self.least} and {self.most}")
        if not self.in_to < self.out_from:
            raise ValueError(f"expected in_to < out_from, got {float(self.in_to):g} and {float(self.out_from):g}")


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueRule:
    """Nodes for what waits, as soon as it waits; what nobody needs leaves by ``ScalingRules.idle_release``.

    ``after``: no nodes for what has waited for less than this; it takes any room that there is. ``within``: none for
    what on-premises is thought to have room for so soon; about the time that a node boots.
    """

    after: timedelta = timedelta()
    within: timedelta = timedelta()


ReactiveRule = UtilisationRule | StepRule | QueueRule


@dataclass(frozen=True, slots=True, kw_only=True)
class ForecastRule:
    """Nodes for the demand that the ``quantile`` of a forecast sees within ``ahead``: about the time a node boots."""

    quantile: float = 0.9
    ahead: timedelta = timedelta(minutes=15)


@dataclass(frozen=True, slots=True, kw_only=True)
class WindowRule:
    """``nodes`` more from ``lead`` before each window of the iteration until it ends, at the pool ``place``.

    ``place`` is a (cluster, pool); None: the cheapest one.
    """

    iteration: Iteration
    nodes: int = 10
    lead: timedelta = timedelta(hours=24)
    place: tuple[str, str] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ScalingRules:
    """Declared policy of scaling; ``preset`` is the one that it began with.

    ``idle_release``: a node that nobody needs leaves after so long without a pod, whatever the reactive rule says;
    None: only as that rule says. ``release_hours``: hours of every day in which idle nodes leave at once; their prices
    say nothing here. ``cool_down_out`` and ``cool_down_in``: how long after a pool grew it does not grow
    again, and after it grew or shrank it does not shrink; time rules and people do not wait. ``largest_gap``: measured
    points that lie further apart leave a gap, in which no condition holds.
    ``waiting``: how long jobs wait for on-premises before they buy, None: they do not. ``returning``: when runs go back
    there, None: they do not.
    """

    preset: str
    reactive: ReactiveRule
    idle_release: timedelta | None = None
    forecast: ForecastRule | None = None
    window: WindowRule | None = None
    release_hours: OffPeak | None = None
    cool_down_out: timedelta = timedelta()
    cool_down_in: timedelta = timedelta()
    largest_gap: timedelta = timedelta(seconds=90)
    waiting: WaitRules | None = None
    returning: ReturnRules | None = None
