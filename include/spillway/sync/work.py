"""The steps of a sync: plan, mark the record, copy, delete, record. What a step leaves for the next is rows."""

from __future__ import annotations

import time
from collections.abc import Iterable
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from datetime import datetime
from functools import partial
from itertools import islice

from spillway.errors import Missing
from spillway.model import DELETE_SHARE_MAX, KeyScope, SyncedObject, SyncRecord
from spillway.stores.base import ObjectStore
from spillway.sync.compare import compare_content
from spillway.sync.decisions import planned_objects
from spillway.sync.leaving import TagRules
from spillway.sync.listing import Admit, list_both
from spillway.sync.manifest import (
    StoredRecord,
    check_unchanged,
    distrust,
    distrusted_on_failure,
    remove_left_overs,
    save_record,
    write_entries,
)
from spillway.sync.plan import Action, PlannedObject, Sides, guard_deletes, plan_object
from spillway.sync.progress import OnProgress, Progress
from spillway.sync.report import ObjectFate, ObjectOutcome, SyncReport, Tally
from spillway.sync.rows import Row, Rows, planned_object, row_of
from spillway.sync.transfer import Transfer, UnderWay

_DELETE_BATCH = 1000
_DELETE_TRIES, _DELETE_PAUSE_SECONDS = 3, 0.5


@dataclass(frozen=True, slots=True, kw_only=True)
class Route:
    """A dataset and the stores that it goes between; ``beside``: other records that may be there of the same keys.

    ``under_way`` is as in ``Transfer``; ``tag_rules``: what its objects' tags must say, None where they say nothing.
    """

    source: ObjectStore
    destination: ObjectStore
    dataset: str
    scope: KeyScope
    under_way: UnderWay = nullcontext
    tag_rules: TagRules | None = None
    beside: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Wish:
    """What a sync is asked for, as ``sync_dataset`` explains it."""

    now: datetime
    delete: bool = False
    delete_share_max: float = DELETE_SHARE_MAX
    verify: bool = False
    admit: Admit = lambda key: True


@dataclass(slots=True, kw_only=True)
class Work:
    """A plan, and what has become of it so far.

    ``kept`` has a row ``(key, *SyncedObject)`` for each object that is verified to be there; copies join it.
    ``as_recorded`` says that they are those of the record, ``learned`` that the record lacks one of them.
    """

    stored: StoredRecord
    verified_at: datetime
    listed_destination: bool
    withheld: int
    tally: Tally
    kept: Rows = field(default_factory=Rows)
    copies: Rows = field(default_factory=Rows)
    deletes: Rows = field(default_factory=Rows)
    copy_bytes: int = 0
    as_recorded: bool = True
    learned: bool = False

    def note_planned(self) -> None:
        """Count what a dry run would do as if it were done."""
        for rows, fate in ((self.copies, ObjectFate.COPIED), (self.deletes, ObjectFate.DELETED)):
            for planned in map(planned_object, rows):
                self.tally.note(ObjectOutcome(planned.key, fate, planned.reason, planned.size_bytes))

    def report(self, route: Route, *, dry_run: bool) -> SyncReport:
        """The counts of all objects."""
        return SyncReport(
            dataset=route.dataset,
            source=route.source.name,
            destination=route.destination.name,
            dry_run=dry_run,
            listed_destination=self.listed_destination,
            counts=dict(self.tally.counts),
            bytes_copied=self.tally.bytes_copied,
            failures=tuple(self.tally.failures),
            objects_withheld=self.withheld,
            objects_barred=self.tally.objects_barred,
        )


def plan(route: Route, wish: Wish, tally: Tally) -> Work:
    """List, compare and decide; nothing is changed.

    Raises:
        Missing: the source has no object in scope.
        DeletesRefused, IncompleteListing: the plan must not be carried out.
    """
    listed = list_both(
        route.source,
        route.destination,
        route.dataset,
        route.scope,
        verify=wish.verify or wish.delete,
        admit=wish.admit,
        now=wish.now,
    )
    stored, both = listed.stored, listed.destination is not None
    recorded_at = wish.now if both or stored.record is None else stored.record.verified_at
    work = Work(stored=stored, verified_at=recorded_at, listed_destination=both, withheld=listed.withheld, tally=tally)
    if listed.unchanged:
        for row in listed.source:
            tally.note_settled(row)
        return work
    compare = partial(compare_content, source_name=route.source.name)
    sides = Sides()

    def settle(recorded: Row) -> None:
        tally.note_settled(recorded)
        work.kept.add(recorded)
        sides.source += 1
        sides.destination += 1

    for planned in planned_objects(
        # Where both sides are compared the tags of every copy are looked at: no etag tells that they have changed.
        listed.matches(None if both and route.tag_rules else settle),
        partial(plan_object, compare=compare, delete=wish.delete),
        source=route.source,
        destination=route.destination,
        tag_rules=route.tag_rules,
        copies_too=both,
        delete=wish.delete,
    ):
        if planned.action is Action.WITHHOLD:
            work.withheld += 1
            continue
        sides.count(planned)
        _sort(work, planned)
    here, there = sides.destination, sides.source
    guard_deletes(
        sides.deletes, at_source=there, at_destination=here, share_max=wish.delete_share_max, things="objects"
    )
    if not sides.source and not work.withheld:
        fix = "check the dataset's prefix and rules, and that its source is mounted"
        raise Missing("dataset", route.dataset, f"{route.source.name}/{route.scope.prefix}", fix=fix)
    usable = stored.record is not None and stored.record.whole and bool(stored.record.sample)
    work.as_recorded &= usable and len(work.kept) == len(listed.recorded)
    return work


def _sort(work: Work, planned: PlannedObject) -> None:
    """Put one planned object where its step finds it."""
    action, there, here = planned.action, planned.source, planned.destination
    if action is Action.COPY:
        work.copies.add(row_of(planned))
        work.copy_bytes += planned.size_bytes
    elif action is Action.DELETE:
        work.deletes.add(row_of(planned))
    else:
        fate = ObjectFate.REFUSED if action is Action.REFUSE else ObjectFate.UNCHANGED
        work.tally.note(ObjectOutcome(planned.key, fate, planned.reason, planned.size_bytes))
        # A copy that should not be there makes the record one of a copy that is not whole.
        work.learned |= action is Action.REFUSE and here is not None
    if action is Action.KEEP and there is not None and here is not None:
        before = planned.synced
        known = before.sha256 if before else None
        synced = SyncedObject(there.size_bytes, there.etag, here.etag, there.sha256 or here.sha256 or known)
        work.kept.add((planned.key, *synced))
        if synced != before:
            work.as_recorded, work.learned = False, True
    else:
        work.as_recorded = False


def carry_out(route: Route, work: Work, on_progress: OnProgress | None = None) -> None:
    """All that follows the plan, by one worker.

    Raises:
        PreconditionFailed: another sync recorded something else meanwhile.
    """
    open_record(route, work)
    with distrusted_on_failure(route.destination, route.dataset, lambda: work.stored):
        copy(route, work, on_progress)
        finish(route, work)


def open_record(route: Route, work: Work) -> None:
    """Mark the copy as not whole before it is changed, and those that are recorded beside it: they share objects.

    Raises:
        PreconditionFailed: another sync has begun or ended since the plan was made.
    """
    changes = len(work.copies) or len(work.deletes)
    for record in route.beside if changes else ():
        distrust(route.destination, record)
    if work.stored.record is not None and work.stored.whole and changes:
        opened = replace(work.stored.record, whole=False)
        work.stored = save_record(route.destination, opened, over=work.stored)


def copy(route: Route, work: Work, on_progress: OnProgress | None = None) -> None:
    """Copy what the plan copies, and note what became of each."""
    progress = Progress(objects_total=len(work.copies), bytes_total=work.copy_bytes)
    transfer = Transfer(route.source, route.destination, route.under_way, tag_rules=route.tag_rules)
    for copied in transfer.run(map(planned_object, work.copies)):
        work.tally.note(copied.outcome)
        if copied.synced is not None:
            work.kept.add((copied.outcome.key, *copied.synced))
            work.learned = True
        progress = progress.after(copied.outcome.size_bytes)
        if on_progress is not None:
            on_progress(progress)


def finish(route: Route, work: Work, *, name: str | None = None) -> None:
    """Delete what is to go, then record what is there; neither while something is short of being copied.

    Args:
        name: of the list of the copy's objects, as in ``write_entries``.
    Raises:
        PreconditionFailed: another sync recorded something else meanwhile.
    """
    if len(work.deletes):
        check_unchanged(route.destination, route.dataset, work.stored)
        _delete(route.destination, work)
    record = SyncRecord(
        dataset=route.dataset,
        source=route.source.name,
        scope=route.scope,
        whole=True,
        entries="",
        objects=0,
        size_bytes=0,
        versions="",
        verified_at=work.verified_at,
    )
    before = work.stored.record
    entries = ((row[0], SyncedObject(*row[1:])) for row in work.kept)
    if work.tally.failures:
        if work.learned:
            known = write_entries(route.destination, record, entries, name=name).entries
            if before is not None and (before.source, before.scope) == (record.source, record.scope):
                record = before
            record = replace(record, whole=False, known=known)
            work.stored = save_record(route.destination, record, over=work.stored)
            remove_left_overs(route.destination, work.stored)
    elif not work.as_recorded:
        record = write_entries(route.destination, record, entries, name=name)
        work.stored = save_record(route.destination, record, over=work.stored)
        remove_left_overs(route.destination, work.stored)
    elif work.listed_destination and before is not None:
        verified = replace(before, verified_at=work.verified_at)
        save_record(route.destination, verified, over=work.stored)


def _delete(destination: ObjectStore, work: Work) -> None:
    """Delete them, unless something is short of being copied: then they wait for it, or for ever as it does."""
    counts = work.tally.counts
    unwanted = map(planned_object, work.deletes)
    if counts[ObjectFate.FAILED] or counts[ObjectFate.REFUSED]:
        fate = ObjectFate.FAILED if counts[ObjectFate.FAILED] else ObjectFate.REFUSED
        for planned in unwanted:
            reason = "not deleted, because not every copy succeeded"
            work.tally.note(ObjectOutcome(planned.key, fate, reason, planned.size_bytes))
        return
    while batch := list(islice(unwanted, _DELETE_BATCH)):
        refused = _refused(destination, [planned.key for planned in batch])
        for planned in batch:
            failed = planned.key in refused
            fate = ObjectFate.FAILED if failed else ObjectFate.DELETED
            reason = f"not deleted: {refused[planned.key]}" if failed else planned.reason
            work.tally.note(ObjectOutcome(planned.key, fate, reason, planned.size_bytes))


def _refused(destination: ObjectStore, keys: Iterable[str]) -> dict[str, str]:
    """Delete the keys; those that are still refused after some tries, with the reasons."""
    for tried in range(_DELETE_TRIES):
        if tried:
            time.sleep(_DELETE_PAUSE_SECONDS * tried)
        refused = dict(destination.delete(keys))
        if not refused:
            break
        keys = list(refused)
    return refused
