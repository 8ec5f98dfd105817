"""Spot that comes and goes, by seed, and what a job costs in it under a policy and with perfect foresight.

The stretches are log-normal with the means and medians that were measured in public zones. Time is in steps of six
minutes, money in GPU-hours of on-demand.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from enum import StrEnum

import numpy as np

from spillway.deadlines import Pace, pace, spare
from spillway.model import Schedule
from spillway.replay.spot import Stretch, Zone

STEP = timedelta(minutes=6)
BEGAN = datetime(2026, 1, 5, tzinfo=UTC)
SPOT_PRICE = 0.3
RESTART_STEPS = 2

ZONES: Sequence[tuple[float, float, float, float]] = (
    (1.69, 0.54, 1.48, 0.49),
    (2.05, 0.70, 1.66, 0.54),
    (1.56, 0.49, 2.26, 0.54),
    (1.98, 0.70, 4.26, 1.08),
    (1.80, 0.38, 5.68, 0.87),
    (0.81, 0.38, 6.06, 1.03),
    (1.10, 0.38, 10.40, 1.41),
    (1.07, 0.33, 2.70, 1.17),
    (2.01, 0.42, 3.47, 0.58),
    (2.21, 0.75, 1.78, 0.42),
)
"""Hours for which spot is away, mean and median, and for which it is there: V100 zones with 45 to 90 % of the time."""


class Mode(StrEnum):
    IDLE = "idle"
    SPOT = "spot"
    ON_DEMAND = "on-demand"


Policy = Callable[[Schedule, datetime, bool, Mode], Mode]
"""What to do in the next step, from the schedule, whether there is spot, and what was done in the last one."""


def availability(zone: tuple[float, float, float, float], steps: int, seed: int) -> list[bool]:
    """Whether there is spot, step by step."""
    down_mean, down_median, up_mean, up_median = zone
    known = Zone(
        up=Stretch(mean_hours=up_mean, median_hours=up_median),
        down=Stretch(mean_hours=down_mean, median_hours=down_median),
    )
    stretches, found = known.stretches(random.Random(seed)), list[bool]()
    while len(found) < steps:
        there, hours = next(stretches)
        found += [there] * max(1, round(hours * (timedelta(hours=1) / STEP)))
    return found[:steps]


def cost_of(policy: Policy, work: int, spot: Sequence[bool]) -> float | None:
    """What the job costs whose work and deadline are so many steps; None where it misses the deadline."""
    mode, done, starting, cost = Mode.IDLE, 0, 0, 0.0
    for step, there in enumerate(spot):
        if done >= work:
            break
        wanted = policy(schedule_at(work, done, len(spot)), BEGAN + step * STEP, there, mode)
        if wanted is Mode.SPOT and not there:
            wanted = Mode.IDLE
        starting = RESTART_STEPS if wanted is not mode else starting
        mode = wanted
        cost += {Mode.IDLE: 0.0, Mode.SPOT: SPOT_PRICE, Mode.ON_DEMAND: 1.0}[mode]
        if mode is not Mode.IDLE and starting:
            starting -= 1
        elif mode is not Mode.IDLE:
            done += 1
    return cost * (STEP / timedelta(hours=1)) if done >= work else None


def steps_of_product(work: int, spot: Sequence[bool], *, commit_every: int, bring: int) -> tuple[int | None, int]:
    """After how many steps the job is done that is placed and watched as the product does it, and how often it moved.

    On spot it keeps what it has committed, every so many steps; it is asked to end only for a move, which it commits
    for. None where it misses the deadline.

    Args:
        bring: steps that bringing the job's data to on-demand takes, once.
    """
    mode, done, committed, starting, moves = Mode.IDLE, 0, 0, 0, 0
    leaving = False
    for step, there in enumerate(spot):
        if done >= work:
            return step, moves
        if mode is Mode.SPOT and not there:
            mode, done, leaving = Mode.IDLE, committed, False
        schedule, now = replace(schedule_at(work, committed, len(spot)), moved=moves > 0), BEGAN + step * STEP
        if mode is Mode.IDLE:
            stands = pace(schedule, now, move=bring * STEP)
            if stands is Pace.LATE or (stands is Pace.BEHIND and not there):
                mode, starting, bring = Mode.ON_DEMAND, bring + RESTART_STEPS, 0
            elif there:
                mode, starting = Mode.SPOT, RESTART_STEPS
        elif mode is Mode.SPOT and leaving and not bring:
            mode, starting, committed, moves, leaving = Mode.ON_DEMAND, RESTART_STEPS, done, moves + 1, False
        elif mode is Mode.SPOT:
            leaving = leaving or spare(schedule, now, (bring + RESTART_STEPS) * STEP) <= timedelta()
            bring -= leaving and bring > 0
        if mode is not Mode.IDLE and starting:
            starting -= 1
        elif mode is not Mode.IDLE:
            done += 1
            committed = done if mode is Mode.ON_DEMAND or done % commit_every == 0 else committed
    return (len(spot) if done >= work else None), moves


def half_way(schedule: Schedule, now: datetime, there: bool, mode: Mode) -> Mode:
    """What ``deadlines.pace`` says, and spot is kept while it is there."""
    stands = pace(schedule, now, on_demand=mode is Mode.ON_DEMAND)
    if stands is Pace.LATE or (stands is Pace.BEHIND and not there):
        return Mode.ON_DEMAND
    return Mode.SPOT if there else Mode.IDLE


def greedy(schedule: Schedule, now: datetime, there: bool, mode: Mode) -> Mode:
    """Spot or nothing until the last moment."""
    if pace(schedule, now) is Pace.LATE:
        return Mode.ON_DEMAND
    return Mode.SPOT if there else Mode.IDLE


def always_on_demand(schedule: Schedule, now: datetime, there: bool, mode: Mode) -> Mode:
    return Mode.ON_DEMAND


def gap_ratio(slack: float, seeds: Sequence[int], *, work: int = 400) -> float:
    """How many times as far greedy is from the cheapest as ``half_way``, over all zones, for a job of forty hours.

    Args:
        slack: the time until the deadline by the work.
    """
    windows = [availability(zone, int(work * slack), seed) for zone in ZONES for seed in seeds]
    best = sum(cheapest(work, spot) for spot in windows)
    costs = [[cost_of(policy, work, spot) for spot in windows] for policy in (greedy, half_way)]
    by_greedy, by_half_way = (sum(cost for cost in found if cost is not None) for found in costs)
    assert all(cost is not None for found in costs for cost in found), "a deadline was missed"
    return (by_greedy - best) / (by_half_way - best)


def schedule_at(work: int, done: int, deadline: int) -> Schedule:
    return Schedule(
        began_at=BEGAN,
        deadline=BEGAN + deadline * STEP,
        work=work * STEP,
        done=done * STEP,
        restart=RESTART_STEPS * STEP,
    )


def cheapest(work: int, spot: Sequence[bool]) -> float:
    """The least that the job can cost by its deadline for whoever knows beforehand when there is spot."""
    modes = [Mode.IDLE, *((mode, left) for mode in (Mode.SPOT, Mode.ON_DEMAND) for left in range(RESTART_STEPS + 1))]
    ahead = {mode: np.concatenate([np.zeros(1), np.full(work, np.inf)]) for mode in modes}  # by the work that is left
    for there in reversed(spot):
        now = {}
        for mode in modes:
            options = [ahead[Mode.IDLE]]
            for kind, price in ((Mode.SPOT, SPOT_PRICE), (Mode.ON_DEMAND, 1.0)):
                if kind is Mode.SPOT and not there:
                    continue
                left = mode[1] if isinstance(mode, tuple) and mode[0] is kind else RESTART_STEPS
                after = ahead[kind, left - 1] if left else _shifted(ahead[kind, 0])
                options.append(price + after)
            now[mode] = np.minimum.reduce(options)
            now[mode][0] = 0.0
        ahead = now
    return float(ahead[Mode.IDLE][work]) * (STEP / timedelta(hours=1))


def _shifted(costs: np.ndarray) -> np.ndarray:
    """With one step of the work done."""
    return np.concatenate([costs[:1], costs[:-1]])
