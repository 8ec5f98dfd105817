"""Incremental, verified sync of a dataset from its home store to another site's store."""

from __future__ import annotations

import logging
from collections.abc import Callable
from contextlib import nullcontext
from datetime import UTC, datetime

from spillway.errors import KeepsChanging, PreconditionFailed
from spillway.model import DELETE_SHARE_MAX, KeyScope
from spillway.stores.base import ObjectStore
from spillway.sync.leaving import TagRules
from spillway.sync.progress import OnProgress
from spillway.sync.report import ObjectFate, ObjectOutcome, SyncReport, Tally
from spillway.sync.transfer import UnderWay
from spillway.sync.work import Route, Wish, carry_out, plan

__all__ = ["SyncReport", "sync_dataset"]

log = logging.getLogger(__name__)

_TRIES = 2


def sync_dataset(
    *,
    source: ObjectStore,
    destination: ObjectStore,
    dataset: str,
    prefix: str,
    include: tuple[str, ...] = (),
    exclude: tuple[str, ...] = (),
    admit: Callable[[str], bool] = lambda key: True,
    tag_rules: TagRules | None = None,
    beside: tuple[str, ...] = (),
    delete: bool = False,
    delete_share_max: float = DELETE_SHARE_MAX,
    verify: bool = False,
    dry_run: bool = False,
    before_change: Callable[[], None] = lambda: None,
    under_way: UnderWay = nullcontext,
    on_outcome: Callable[[ObjectOutcome], None] | None = None,
    tell_unchanged: bool = True,
    on_progress: OnProgress | None = None,
    now: datetime | None = None,
) -> SyncReport:
    """Make the destination hold the dataset as the source has it; only what is new or changed is read and sent.

    Every copy is pinned to one version of the source and its bytes are verified on arrival. When all went well the
    verified state is recorded beside the data; an interrupted sync goes on where it was, at the next call. While that
    record is whole, fresh and of this source it stands in for the destination's listing.

    Args:
        prefix: of the dataset's keys, at both ends; a folder only with its slash.
        include, exclude: as in ``KeyScope``; what they leave out is neither copied nor deleted.
        admit: whether an object of that key may leave; one that may not is counted and named nowhere.
        tag_rules: what an object's tags must say before it may leave. While the plan is made they are asked for of what
            is about to be copied, and of what was copied before where both sides are compared. What becomes of those
            that may not leave tells the table of ``sync.leaving``.
        beside: the names of other records over the same keys; where something is changed they are not whole any more.
        delete: also remove what the source no longer has, after every copy succeeded, within the guard; both sides
            are listed for it.
        delete_share_max: the part of what is at the destination, in [0, 1], that may be deleted.
        verify: list and compare both sides whatever the record says.
        dry_run: only list and plan; the report then says what would happen.
        before_change: called when the plan is made and copies or deletes something; nothing is changed if it raises.
        under_way: as in ``Transfer``.
        on_outcome: given every object once, in the order of keys, when the sync has ended; those that are unchanged
            only with ``tell_unchanged``.
        on_progress: given the state of the copies, from the copying threads' owner.
        now: the present moment; the clock's where it is not given.
    Raises:
        Missing: the source has no object in scope.
        DeletesRefused, IncompleteListing: before anything is changed.
        Unreachable, AccessDenied, StoreFull: a store went away, lets nothing in or is full; what was copied is kept.
        KeepsChanging: other syncs of the same dataset recorded other states meanwhile, twice.
    """
    route = Route(
        source=source,
        destination=destination,
        dataset=dataset,
        scope=KeyScope(prefix=prefix, include=include, exclude=exclude),
        under_way=under_way,
        tag_rules=tag_rules,
        beside=beside,
    )
    for tried in range(1, _TRIES + 1):
        wish = Wish(
            now=now or datetime.now(UTC),
            delete=delete,
            delete_share_max=delete_share_max,
            verify=verify,
            admit=admit,
        )
        tally = Tally(keep=on_outcome is not None, keep_unchanged=tell_unchanged)
        work = plan(route, wish, tally)
        try:
            if dry_run:
                work.note_planned()
            else:
                if len(work.copies) or len(work.deletes):
                    before_change()
                carry_out(route, work, on_progress)
            break
        except PreconditionFailed as problem:
            # Another sync found other versions at the source; only what lies there now tells what is right.
            if tried == _TRIES:
                raise KeepsChanging(f"dataset '{dataset}'", f"while it was synced {_TRIES} times") from problem
            log.info("dataset %s is synced once more: %s", dataset, problem)
    if on_outcome is not None:
        for outcome in tally.outcomes():
            on_outcome(outcome)
    report = work.report(route, dry_run=dry_run)
    log_report(report)
    return report


def log_report(report: SyncReport) -> None:
    """One line of what was done."""
    counts = ", ".join(f"{report.count(fate)} {fate}" for fate in ObjectFate)
    log.info(
        "dataset %s: %s -> %s%s: %s; %d withheld; %d bytes copied",
        report.dataset,
        report.source,
        report.destination,
        " (dry run)" if report.dry_run else "",
        counts,
        report.objects_withheld,
        report.bytes_copied,
    )
