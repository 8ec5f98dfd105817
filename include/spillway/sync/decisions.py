"""The action for each object; what the listings leave open is asked of the stores, a block of objects at a time."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import islice

from spillway.stores.base import ObjectStore
from spillway.sync.leaving import TagRules, bar_of, barred, concerns
from spillway.sync.plan import Match, PlannedObject
from spillway.threads import worker_threads

LOOK_UP_THREADS = 8
LOOK_UP_BLOCK = 1000


def planned_objects(
    matches: Iterator[Match],
    decide: Callable[[Match], PlannedObject],
    *,
    source: ObjectStore,
    destination: ObjectStore,
    tag_rules: TagRules | None,
    copies_too: bool,
    delete: bool,
) -> Iterator[PlannedObject]:
    """The plan, in the order of keys; tags are asked for last, and only where they can change an action.

    Args:
        copies_too: ask for the tags of what is at the destination as it should be, too.
        delete: an object whose tags keep it at its source goes from the destination.
    """

    def look_up(match: Match) -> PlannedObject:
        here = destination.head(match.key) or match.destination
        planned = decide(match := match._replace(destination=here))
        if planned.sure or here is None or here.sha256 is None:
            return planned
        return decide(match._replace(source=source.head(match.key) or match.source))

    def ask(match: Match, planned: PlannedObject) -> PlannedObject:
        planned = planned if planned.sure else look_up(match)
        if tag_rules is None or not concerns(tag_rules, planned, copies_too=copies_too):
            return planned
        bar = bar_of(source, planned.key, tag_rules)
        return planned if bar is None else barred(planned, bar, delete=delete)

    with worker_threads(LOOK_UP_THREADS, "compare") as pool:
        while block := list(islice(matches, LOOK_UP_BLOCK)):
            planned = [decide(match) for match in block]
            asked = [
                pool.submit(ask, match, decided)
                if not decided.sure or concerns(tag_rules, decided, copies_too=copies_too)
                else None
                for match, decided in zip(block, planned, strict=True)
            ]
            for decided, answer in zip(planned, asked, strict=True):
                yield decided if answer is None else answer.result()
