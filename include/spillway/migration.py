"""Whether moving a run is worth it: how long a move takes, and move, stay or wait for the next checkpoint.

order to first resumed step = image + dataset + checkpoints / bandwidth      (while the run trains on)
                            + flush + last checkpoint / bandwidth + restart + lost steps    (the pause)

saving = GPUs * ((price here - price there) * (time left - what passes while it trains on)
                 - price here * flush - price there * (restart + lost steps)) - egress

While the last checkpoint is on its way no pod runs at either place, and nothing is paid for.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from decimal import Decimal
from enum import StrEnum

from spillway.errors import MoveRefused
from spillway.errors.counts import counted
from spillway.lines import GIBIBYTE
from spillway.model import Destination, Move, MoveEstimate

_HOUR = Decimal(timedelta(hours=1) // timedelta(microseconds=1))
_CENT = Decimal("0.01")


@dataclass(frozen=True, slots=True, kw_only=True)
class MoveFacts:
    """What is known of a run and of its way to the target; None is unknown.

    ``image_bytes``, ``dataset_bytes``, ``missing_checkpoint_bytes`` are what the target lacks, ``checkpoint_bytes`` the
    size of one checkpoint (the next one is taken to be as large as the newest). ``bandwidth_bytes_per_second`` is what
    the line carries that checkpoints take; those to the homes of image and dataset may carry something else. ``flush``
    is the slowest commit so far, ``grace`` what the pod is given for its last one. ``restart`` is from a pod's creation
    to its start. ``steps_at_risk`` are those since the newest commit, ``steps_left`` those to the end,
    ``steps_to_checkpoint`` those to the next commit of the schedule. Prices are of an hour of one of ``units``: GPUs,
    or cores; ``egress_price_per_gib`` is what the site that is left takes for checkpoints, ``brought_egress`` what the
    homes of image and dataset take for these, in money.
    """

    image_bytes: int | None = None
    dataset_bytes: int | None = None
    missing_checkpoint_bytes: int | None = None
    checkpoint_bytes: int | None = None
    bandwidth_bytes_per_second: float | None = None
    image_bytes_per_second: float | None = None
    dataset_bytes_per_second: float | None = None
    flush: timedelta | None = None
    grace: timedelta | None = None
    restart: timedelta | None = None
    seconds_per_step: float | None = None
    steps_at_risk: int | None = None
    steps_left: int | None = None
    steps_to_checkpoint: int | None = None
    units: Decimal | None = None
    price_here: Decimal | None = None
    price_there: Decimal | None = None
    egress_price_per_gib: Decimal | None = None
    brought_egress: Decimal | None = None


class Advice(StrEnum):
    MOVE = "move"
    STAY = "stay"
    WAIT = "wait for the next checkpoint"


@dataclass(frozen=True, slots=True, kw_only=True)
class MoveAdvice:
    """What the estimate speaks for, and why; ``saving`` is money, below 0 where the move costs more than it brings.

    ``next_checkpoint`` is how far that is which is to be waited for.
    """

    advice: Advice
    reason: str
    saving: Decimal | None = None
    next_checkpoint: timedelta | None = None


def estimate(facts: MoveFacts) -> MoveEstimate:
    """Every term of the way from the order to the first resumed step."""
    fits = _last_checkpoint_fits(facts)
    lost = timedelta() if fits else _steps(facts, facts.steps_at_risk)
    return MoveEstimate(
        beforehand={
            "image": _transfer(facts, facts.image_bytes, facts.image_bytes_per_second),
            "dataset": _transfer(facts, facts.dataset_bytes, facts.dataset_bytes_per_second),
            "checkpoints": _transfer(facts, facts.missing_checkpoint_bytes),
        },
        pause={
            "flush": facts.flush,
            "last_checkpoint": _transfer(facts, facts.checkpoint_bytes),
            "restart": facts.restart,
            "lost_steps": None if fits is None else lost,
        },
    )


def saving(facts: MoveFacts, expected: MoveEstimate) -> Decimal | None:
    """What the run costs where it is, less what it costs with the move; None where a part of that is unknown."""
    egress, paid = _egress(facts), {name: _hours(expected.pause[name]) for name in ("flush", "restart", "lost_steps")}
    ahead = [_hours(term) for term in expected.beforehand.values()]
    left = _hours(_steps(facts, facts.steps_left))
    here, there, units = facts.price_here, facts.price_there, facts.units
    if egress is None or here is None or there is None or units is None or left is None:
        return None
    known = {name: hours for name, hours in paid.items() if hours is not None}
    trained_on = [hours for hours in ahead if hours is not None]
    if len(known) < len(paid) or len(trained_on) < len(ahead):
        return None
    kept = max(Decimal(0), left - sum(trained_on))
    pause = here * known["flush"] + there * (known["restart"] + known["lost_steps"])
    return units * ((here - there) * kept - pause) - egress


def advise(facts: MoveFacts, expected: MoveEstimate) -> MoveAdvice:
    """Stay where the run is over sooner or the move costs more than it saves; wait where steps would be lost that the
    next checkpoint would keep; else move.

    What is not known speaks for nothing.
    """
    money = saving(facts, expected)
    left = _steps(facts, facts.steps_left)
    if left is not None and left <= expected.known:
        advice = Advice.STAY
        why = f"the run has {_seconds(left)} left where it is, the move takes at least {_seconds(expected.known)}"
    elif (ahead := _worth_waiting(facts)) is not None:
        advice = Advice.WAIT
        at_risk = _steps(facts, facts.steps_at_risk) or timedelta()
        why = (
            f"a last checkpoint does not fit the grace, so that {counted(facts.steps_at_risk or 0, 'step')} "
            f"({_seconds(at_risk)}) would be lost; the next checkpoint is {_seconds(ahead)} away"
        )
    elif money is not None and money <= 0:
        advice = Advice.STAY
        why = f"the move costs {-money.quantize(_CENT)} more than it saves in the {_seconds(left or timedelta())} left"
    else:
        advice = Advice.MOVE
        unknown = f"; not known: {', '.join(expected.unknown)}" if expected.unknown else ""
        saved = "" if money is None else f", and {money.quantize(_CENT)} saved"
        why = (
            f"about {_seconds(expected.known)} to the first resumed step, {_seconds(expected.known_pause)} of them "
            f"without training{saved}{unknown}"
        )
    wait = _worth_waiting(facts) if advice is Advice.WAIT else None
    return MoveAdvice(advice=advice, reason=why, saving=money, next_checkpoint=wait)


def _worth_waiting(facts: MoveFacts) -> timedelta | None:
    """How far the next checkpoint is, where it keeps more than the wait for it costs."""
    at_risk, ahead = _steps(facts, facts.steps_at_risk), _steps(facts, facts.steps_to_checkpoint)
    if _last_checkpoint_fits(facts) is not False or at_risk is None or ahead is None:
        return None
    return ahead if ahead < at_risk else None


def _egress(facts: MoveFacts) -> Decimal | None:
    """For the checkpoints that the target lacks, the last one, and what image and dataset take."""
    sizes = (facts.missing_checkpoint_bytes, facts.checkpoint_bytes)
    if facts.egress_price_per_gib is None or facts.brought_egress is None or sizes[0] is None or sizes[1] is None:
        return None
    return facts.brought_egress + facts.egress_price_per_gib * (sizes[0] + sizes[1]) / GIBIBYTE


def _hours(duration: timedelta | None) -> Decimal | None:
    return None if duration is None else Decimal(duration // timedelta(microseconds=1)) / _HOUR


def told(expected: MoveEstimate) -> str:
    """The estimate for people, a term each; what is unknown is said to be."""

    def terms(of: dict[str, timedelta | None]) -> str:
        return ", ".join(f"{name} {'unknown' if term is None else _seconds(term)}" for name, term in of.items())

    return (
        f"while it trains on: {terms(dict(expected.beforehand))}; in the pause: {terms(dict(expected.pause))}; "
        f"known together: {_seconds(expected.known)}"
    )


def _last_checkpoint_fits(facts: MoveFacts) -> bool | None:
    """Whether the checkpoint that the stop signal asks for is committed within the grace; None where not known."""
    if facts.steps_at_risk == 0:
        return True
    if facts.flush is None or facts.grace is None:
        return None
    return facts.flush < facts.grace


def _transfer(facts: MoveFacts, size_bytes: int | None, bytes_per_second: float | None = None) -> timedelta | None:
    rate = bytes_per_second or facts.bandwidth_bytes_per_second
    if size_bytes == 0:
        return timedelta()
    return None if size_bytes is None or not rate else timedelta(seconds=size_bytes / rate)


def _steps(facts: MoveFacts, steps: int | None) -> timedelta | None:
    if steps == 0:
        return timedelta()
    if steps is None or facts.seconds_per_step is None:
        return None
    return timedelta(seconds=steps * facts.seconds_per_step)


def _seconds(duration: timedelta) -> str:
    return f"{duration.total_seconds():.1f} s"


def same_move(known: Move, destination: Destination) -> Move:
    """The move that is under way, where it leads to where another order wants the run.

    Raises:
        MoveRefused: it leads elsewhere.
    """
    if destination.allows(known.target):
        return known
    target = f"{known.target.cluster}/{known.target.pool}/{known.target.billing}"
    raise MoveRefused(
        known.run,
        f"move {known.number} to {target} is under way ({known.state}), got an order to {destination}; one move at a "
        f"time: wait until it is over (`runs show {known.run}` tells), then order the next one",
        retry_helps=True,
    )
