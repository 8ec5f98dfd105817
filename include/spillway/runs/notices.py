"""Tell of budgets that are nearly or wholly spent, of runs that cannot meet their deadline and of node pools.

Each once, and everybody is told who is to know.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import timedelta

from spillway.budget import notice_text, notice_title
from spillway.config import Configuration
from spillway.deadlines import late_text, late_title
from spillway.errors import SpillwayError
from spillway.model import Crossing, LateRun, Notice, NoticeTarget, ScalingAlert
from spillway.runs.deadline import late_runs
from spillway.runs.services import Say, Services

CLAIM = timedelta(minutes=15)
"""How long nobody else sends what somebody is sending; longer than any server takes to answer."""

Deliver = Callable[[NoticeTarget, "Message"], None]
"""Sends a message; raises SpillwayError where it has not arrived, and returns only where it has."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Message:
    """What is sent; ``identity`` is the same however often it is tried."""

    title: str
    text: str
    identity: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Delivered:
    """Notices that arrived, and those that did not."""

    delivered: tuple[Notice, ...] = ()
    failed: tuple[Notice, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Told:
    """What became of one look: crossings and late runs that are new, and notices that arrived or did not."""

    crossings: tuple[Crossing, ...]
    late: tuple[LateRun, ...] = ()
    delivered: tuple[Notice, ...] = ()
    failed: tuple[Notice, ...] = ()


def watch_budgets(services: Services, deliver: Deliver, say: Say, *, dry_run: bool = False) -> Told:
    """Put what is new on record and deliver every notice that has not arrived yet, each at most once a call.

    What does not arrive is tried again by the next call, also where this process dies in between: then when its claim
    is over. Only a process that dies after a server has taken a message and before that is on record lets it be sent
    twice, with the same identity.
    """
    ledger, policy, now = services.ledger, services.configuration.policy, services.clock()
    if dry_run:
        found, late = ledger.new_crossings(policy, now), late_runs(services)
        for about in _news(found, late):
            names = ", ".join(target.name for target in targets(services.configuration, about.department))
            say(f"would tell {names or 'nobody, for no target is declared'}: {title_of(about)}")
        return Told(crossings=found, late=late)

    def names_for(department: str) -> list[str]:
        return [target.name for target in targets(services.configuration, department)]

    found = ledger.note_crossings(policy, now, names_for)
    late = tuple(run for run in late_runs(services) if ledger.note_late(run, names_for))
    for about in _news(found, late):
        say(f"{title_of(about)}; to be told: {', '.join(names_for(about.department)) or 'nobody'}")
    sent = deliver_notices(services, deliver, say)
    return Told(crossings=found, late=late, delivered=sent.delivered, failed=sent.failed)


def deliver_notices(services: Services, deliver: Deliver, say: Say) -> Delivered:
    """Deliver every notice that has not arrived yet, each at most once; ``watch_budgets`` says what then happens."""
    ledger = services.ledger
    delivered: list[Notice] = []
    failed: list[Notice] = []
    declared = {target.name: target for target in services.configuration.notices}
    while (notice := ledger.claim_notice(services.clock(), CLAIM, but=failed)) is not None:
        if notice.target not in declared:
            gone = f"{notice.target} is not told, budgets.yaml does not declare it any more"
            ledger.close_notice(notice, services.clock(), problem=gone)
            say(f"{gone}: {title_of(notice.about)}")
            continue
        try:
            deliver(declared[notice.target], _message(services, notice))
        except SpillwayError as problem:
            ledger.not_delivered(notice, str(problem))
            say(f"{notice.target} could not be told ({notice.tries}. try): {problem}")
            failed.append(notice)
        else:
            ledger.close_notice(notice, services.clock())
            say(f"{notice.target} was told: {title_of(notice.about)}")
            delivered.append(notice)
    return Delivered(delivered=tuple(delivered), failed=tuple(failed))


def targets(configuration: Configuration, department: str | None) -> tuple[NoticeTarget, ...]:
    """Those who are told of the department; of all of them where what is told is of none."""
    return tuple(t for t in configuration.notices if not t.departments or department in t.departments)


def _news(found: Sequence[Crossing], late: Sequence[LateRun]) -> tuple[Crossing | LateRun, ...]:
    return (*found, *late)


def title_of(about: Crossing | LateRun | ScalingAlert) -> str:
    """One line for a subject."""
    if isinstance(about, ScalingAlert):
        return about.title
    return late_title(about) if isinstance(about, LateRun) else notice_title(about)


def text_of(about: Crossing | LateRun | ScalingAlert) -> str:
    """The message below it."""
    if isinstance(about, ScalingAlert):
        return about.text
    return late_text(about) if isinstance(about, LateRun) else notice_text(about)


def _message(services: Services, notice: Notice) -> Message:
    about = notice.about
    return Message(
        title=title_of(about),
        text=text_of(about),
        identity=f"{services.ledger.installation()}-{notice.number}-{notice.target}",
    )
