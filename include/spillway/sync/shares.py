"""One sync by many workers: one plans, each copies a range of keys, one merges what they did.

What a worker leaves for the next lies in the destination store, in a folder of the draft: the plan's rows, one list of
copies a share, one list of what became of them. The record comes with the merge, for the dataset as a whole. Nothing is
deleted.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import islice
from typing import Any

from spillway.codec import decode, encode
from spillway.errors import KeepsChanging, Missing, PreconditionFailed, SyncIncomplete
from spillway.model import SyncedObject
from spillway.stores.base import ObjectStore, read_all
from spillway.stores.entries import put_lines, read_lines
from spillway.sync.compare import compare_content
from spillway.sync.decisions import LOOK_UP_BLOCK, LOOK_UP_THREADS
from spillway.sync.drafts import OBJECT_BYTES, WeighedRows, draft_folder, ranges, remove_old_drafts
from spillway.sync.listing import Admit
from spillway.sync.manifest import StoredRecord, distrusted_on_failure, entries_key, load_record, stored_record
from spillway.sync.plan import PlannedObject
from spillway.sync.progress import OnProgress, Progress
from spillway.sync.report import BARRED, ObjectFate, ObjectOutcome, SyncReport, Tally
from spillway.sync.rows import Rows, planned_object
from spillway.sync.transfer import Copied, Transfer
from spillway.sync.work import Route, Wish, Work, carry_out, copy, finish, open_record, plan
from spillway.sync.workers import folders_among
from spillway.threads import worker_threads

SHARE_BYTES = 16 * 1024**3
"""A share is worth a worker of its own from so much on."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Share:
    """One worker's part of a divided sync: plain enough to travel to it.

    ``draft`` is a name that no other sync has, ``number`` counts from 0.
    """

    draft: str
    number: int
    of: int
    objects: int
    size_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class _Draft:
    """What the plan of a divided sync says beside its rows.

    ``record`` is the record's text as the plan left it.
    """

    record: str | None
    shares: int
    verified_at: datetime
    listed_destination: bool
    withheld: int
    counts: dict[str, int]
    failures: tuple[str, ...]
    barred: int = 0
    bytes_copied: int = 0


def divide(
    route: Route,
    *,
    now: datetime,
    workers: int,
    admit: Admit = lambda key: True,
    verify: bool = False,
    share_bytes: int = SHARE_BYTES,
    on_progress: OnProgress | None = None,
) -> tuple[SyncReport, tuple[Share, ...]]:
    """Plan a sync for several workers; what one worker alone does as well is done at once, and no share is left.

    Args:
        workers: the most shares.
        now, admit, verify, on_progress: as in ``sync_dataset``.
    Returns:
        The report of what is done or already known, and the shares that are to be copied before ``merge``.
    Raises:
        What ``sync_dataset`` raises; KeepsChanging after one try.
    """
    work = plan(route, Wish(now=now, verify=verify, admit=admit), Tally())
    weight = work.copy_bytes + len(work.copies) * OBJECT_BYTES
    wanted = min(workers, -(-weight // share_bytes))
    try:
        if wanted <= 1:
            carry_out(route, work, on_progress)
            return work.report(route, dry_run=False), ()
        open_record(route, work)
    except PreconditionFailed as problem:
        raise KeepsChanging(f"dataset '{route.dataset}'", "while it was synced") from problem
    _copy_folders(route, work, on_progress)
    draft = uuid.uuid4().hex
    folder = draft_folder(route.dataset, draft)
    put_lines(route.destination, f"{folder}kept.gz", work.kept)
    weighed: list[WeighedRows] = []
    for rows in ranges(work.copies, weight / wanted):
        weighed.append(WeighedRows(rows))
        put_lines(route.destination, f"{folder}copy-{len(weighed) - 1:03}.gz", weighed[-1])
    body = work.stored.body
    described = _Draft(
        record=None if body is None else body.decode(),
        shares=len(weighed),
        verified_at=work.verified_at,
        listed_destination=work.listed_destination,
        withheld=work.withheld,
        counts={fate.value: number for fate, number in work.tally.counts.items()},
        failures=tuple(map(_nameless, work.tally.failures)),
        barred=work.tally.objects_barred,
        bytes_copied=work.tally.bytes_copied,
    )
    text = json.dumps(encode(described)).encode()
    route.destination.put(f"{folder}draft.json", text, size_bytes=len(text))
    remove_old_drafts(route.destination, route.dataset)
    shares = tuple(
        Share(draft=draft, number=number, of=len(weighed), objects=part.objects, size_bytes=part.size_bytes)
        for number, part in enumerate(weighed)
    )
    return work.report(route, dry_run=False), shares


def _copy_folders(route: Route, work: Work, on_progress: OnProgress | None) -> None:
    """Copy at once the keys that are folders of others; no share holds any, so that no two of them get in their way."""
    folders = folders_among(row[0] for row in work.copies)
    if not folders:
        return
    rows, work.copies = work.copies, Rows(row for row in work.copies if row[0] in folders)
    with distrusted_on_failure(route.destination, route.dataset, lambda: work.stored):
        copy(route, work, on_progress)
    work.copies = Rows(row for row in rows if row[0] not in folders)


def copy_share(route: Route, share: Share, admit: Admit, on_progress: OnProgress | None = None) -> Tally:
    """Copy one share; the counts of what became of its objects.

    A share that was begun before goes on: what is there as a verified copy is not sent again. One that has ended says
    again how.

    Raises:
        Missing: there is no such draft.
        SyncIncomplete: objects failed that another try may copy, so the share has not ended.
        Unreachable, AccessDenied, StoreFull: as ``sync_dataset``.
    """
    store, name = route.destination, f"{draft_folder(route.dataset, share.draft)}%s-{share.number:03}"
    tally = Tally()
    if store.head(f"{name % 'done'}.gz") is not None:
        for row in read_lines(store, f"{name % 'done'}.gz"):
            tally.note(_outcome(row))
        return tally
    wanted = map(planned_object, map(tuple, read_lines(store, f"{name % 'copy'}.gz")))
    results, progress = Rows(), Progress(objects_total=share.objects, bytes_total=share.size_bytes)

    def note(copied: Copied) -> None:
        nonlocal progress
        tally.note(copied.outcome)
        progress = progress.after(copied.outcome.size_bytes)
        if on_progress is not None:
            on_progress(progress)
        key, fate, reason, size_bytes = copied.outcome
        results.add((key, fate.value, reason, size_bytes, None if copied.synced is None else tuple(copied.synced)))

    def left() -> Iterator[PlannedObject]:
        for planned, there in _looked_at(route, wanted, begun_before=_was_begun(store, name % "begun")):
            if there is not None:
                note(there)
            elif not admit(planned.key):
                reason = "it may no longer leave its source"
                note(Copied(outcome=ObjectOutcome(planned.key, ObjectFate.REFUSED, reason, planned.size_bytes)))
            else:
                yield planned

    with distrusted_on_failure(store, route.dataset):
        for copied in _transfer(route).run(left()):
            note(copied)
        if failed := tally.counts[ObjectFate.FAILED]:
            refused, first = tally.counts[ObjectFate.REFUSED], tally.failures[0]
            raise SyncIncomplete(route.dataset, store.name, failed=failed, refused=refused, first=first)
    put_lines(store, f"{name % 'done'}.gz", results)
    return tally


def _transfer(route: Route) -> Transfer:
    """A share may be copied long after it was planned, or again."""
    return Transfer(route.source, route.destination, route.under_way, tag_rules=route.tag_rules, planned_long_ago=True)


def _nameless(failure: str) -> str:
    """A failure as the draft may tell it: that lies at the destination, where some names may not go."""
    return f"an object {BARRED}the task that planned names it" if f": {BARRED}" in failure else failure


def merge(route: Route, draft: str) -> SyncReport:
    """Record for the whole dataset once every share is copied; the report of the whole sync, the same at each try.

    Raises:
        Missing: there is no such draft.
        SyncIncomplete: a share has not ended; nothing is recorded.
        KeepsChanging: another sync of the dataset changed the copy meanwhile.
    """
    store, folder = route.destination, draft_folder(route.dataset, draft)
    where = f"{folder}draft.json"
    planned = decode(_Draft, json.loads(read_all(store, where)), where)
    tally = Tally()
    tally.counts.update({ObjectFate(fate): number for fate, number in planned.counts.items()})
    tally.failures.extend(planned.failures)
    tally.objects_barred, tally.bytes_copied = planned.barred, planned.bytes_copied
    work = Work(
        stored=StoredRecord() if planned.record is None else stored_record(planned.record.encode(), where),
        verified_at=planned.verified_at,
        listed_destination=planned.listed_destination,
        withheld=planned.withheld,
        tally=tally,
        kept=Rows(map(tuple, read_lines(store, f"{folder}kept.gz"))),
        as_recorded=False,
        learned=True,
    )
    for number in range(planned.shares):
        _add_share(route, work, f"{folder}done-{number:03}.gz", f"share {number + 1} of {planned.shares}")
    recorded = load_record(store, route.dataset).record
    # Where an earlier try came that far, the record names the list of this very draft.
    if recorded is None or recorded.entries != entries_key(route.dataset, draft):
        try:
            with distrusted_on_failure(store, route.dataset, lambda: work.stored):
                finish(route, work, name=draft)
        except PreconditionFailed as problem:
            raise KeepsChanging(f"dataset '{route.dataset}'", "while it was synced") from problem
    return work.report(route, dry_run=False)


def _add_share(route: Route, work: Work, key: str, name: str) -> None:
    try:
        for row in read_lines(route.destination, key):
            outcome = _outcome(row)
            work.tally.note(outcome)
            if row[4] is not None:
                work.kept.add((outcome.key, *row[4]))
    except Missing as problem:
        why = f"{name} has not ended; run its task again, or the whole sync"
        raise SyncIncomplete(route.dataset, route.destination.name, failed=1, refused=0, first=why) from problem


def _outcome(row: Sequence[Any]) -> ObjectOutcome:
    key, fate, reason, size_bytes = row[:4]
    return ObjectOutcome(key, ObjectFate(fate), reason, size_bytes)


def _was_begun(store: ObjectStore, key: str) -> bool:
    """Leave a mark that this share has begun; whether there was one."""
    try:
        store.put(key, b"", size_bytes=0, if_absent=True)
    except PreconditionFailed:
        return True
    return False


def _looked_at(
    route: Route, wanted: Iterator[PlannedObject], *, begun_before: bool
) -> Iterator[tuple[PlannedObject, Copied | None]]:
    """Each object with what an earlier try has verified of it, or None where it is to be copied."""

    def look(planned: PlannedObject) -> Copied | None:
        there, here = planned.source, route.destination.head(planned.key)
        if there is None or here is None or not compare_content(there, here, None, source_name=route.source.name).equal:
            return None
        outcome = ObjectOutcome(planned.key, ObjectFate.COPIED, planned.reason, planned.size_bytes)
        return Copied(outcome=outcome, synced=SyncedObject(here.size_bytes, there.etag, here.etag, here.sha256))

    if not begun_before:
        yield from ((planned, None) for planned in wanted)
        return
    with worker_threads(LOOK_UP_THREADS, "compare") as pool:
        while block := list(islice(wanted, LOOK_UP_BLOCK)):
            yield from zip(block, pool.map(look, block), strict=True)
