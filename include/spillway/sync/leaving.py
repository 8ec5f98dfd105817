"""Whether an object may leave its source by its tags, which no listing carries: each is asked for, or nothing moves.

what the tags say        no copy at the destination     a copy is there
it may leave             as planned                     as planned
it may not               withheld: counted, not named   refused by name; deleted where deletes are asked for
they cannot be read      refused by name                refused by name
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from spillway.errors import AccessDenied, KeyRefused, Missing, PreconditionFailed, RequestRefused
from spillway.model import ObjectInfo
from spillway.stores.base import ObjectStore
from spillway.sync.plan import Action, PlannedObject
from spillway.sync.report import BARRED

CORE_BY_TAGS = BARRED + "its tags do not say that it may leave"
_COPY_REMAINS = "; a copy of it is at the destination, --delete removes it (of a bucket with versions: the newest)"


@dataclass(frozen=True, slots=True, kw_only=True)
class TagRules:
    """``decide``: whether the object of a key may leave only by its tags; ``allow``: whether with these tags it may."""

    decide: Callable[[str], bool]
    allow: Callable[[str, Mapping[str, str]], bool]


class Bar(NamedTuple):
    """Why an object stays; unless ``known``, nobody could read its tags."""

    reason: str
    known: bool = True


def concerns(rules: TagRules | None, planned: PlannedObject, *, copies_too: bool) -> bool:
    """Whether the object's tags are to be asked for: it is about to be copied, or is, and copies are looked at too."""
    wanted = planned.action is Action.COPY or (copies_too and planned.action is Action.KEEP)
    return rules is not None and wanted and planned.source is not None and rules.decide(planned.key)


def bar_of(source: ObjectStore, key: str, rules: TagRules) -> Bar | None:
    """What keeps the object at its source; None where its tags let it leave.

    Raises:
        Unreachable: the source does not answer.
    """
    try:
        allowed = rules.allow(key, source.tags(key))
    except (AccessDenied, KeyRefused, RequestRefused) as problem:
        return Bar(f"{BARRED}its tags cannot be read, so it counts as core: {problem}", known=False)
    except Missing as problem:
        if problem.kind != "object":
            raise
        return Bar(f"{BARRED}it was deleted before its tags were read; run it again", known=False)
    return None if allowed else Bar(CORE_BY_TAGS)


def barred(planned: PlannedObject, bar: Bar, *, delete: bool) -> PlannedObject:
    """The action for an object that stays, by the table of this module."""
    if not bar.known:
        return planned._replace(action=Action.REFUSE, reason=bar.reason)
    if planned.destination is None:
        return planned._replace(action=Action.WITHHOLD, reason=bar.reason)
    if delete:
        return planned._replace(action=Action.DELETE, reason=bar.reason)
    return planned._replace(action=Action.REFUSE, reason=bar.reason + _COPY_REMAINS)


def bar_of_version(source: ObjectStore, found: ObjectInfo, rules: TagRules | None) -> Bar | None:
    """The same of a version that the plan has not seen; its tags count only if it is still there when they are read.

    Raises:
        PreconditionFailed: it was replaced meanwhile, so that nobody knows whose tags these are.
    """
    if rules is None or not rules.decide(found.key):
        return None
    bar = bar_of(source, found.key, rules)
    now = source.head(found.key) if bar is None else found
    if now is None or now.etag != found.etag:
        raise PreconditionFailed(source.name, found.key, f"its etag is {found.etag}")
    return bar
