"""Incremental, verified sync of a dataset from its home store to another site's store."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import partial

from spillway.errors import Missing, PreconditionFailed, ResidencyRefused
from spillway.model import ObjectInfo, Tier
from spillway.stores.base import ObjectStore
from spillway.sync.compare import Comparison, SyncedObject, SyncManifest, compare_content
from spillway.sync.manifest import OWN_PREFIX, load_manifest, save_manifest
from spillway.sync.plan import DELETE_SHARE_MAX, Action, PlannedObject, SyncPlan, plan_sync
from spillway.sync.report import ObjectFate, ObjectOutcome, SyncReport
from spillway.sync.transfer import SMALL_THREADS, Copied, Transfer

__all__ = ["SyncReport", "sync_dataset"]

log = logging.getLogger(__name__)

_PLANNED_FATES = {
    Action.COPY: ObjectFate.COPIED,
    Action.KEEP: ObjectFate.UNCHANGED,
    Action.DELETE: ObjectFate.DELETED,
    Action.REFUSE: ObjectFate.REFUSED,
}


def sync_dataset(
    *,
    source: ObjectStore,
    destination: ObjectStore,
    dataset: str,
    prefix: str,
    tier: Tier,
    home: str,
    site: str,
    delete: bool = False,
    delete_share_max: float = DELETE_SHARE_MAX,
    dry_run: bool = False,
) -> SyncReport:
    """Make the destination hold the dataset as the source has it; only what is new or changed is read and sent.

    Every copy is pinned to one version of the source and its bytes are verified on arrival. When all went well the
    verified state is recorded beside the data; an interrupted sync goes on where it was, at the next call.

    Args:
        prefix: of the dataset's keys, at both ends.
        tier, home, site: core data is refused at a ``site`` other than its ``home``.
        delete: also remove what the source no longer has, after every copy succeeded, within the guard.
        dry_run: only list and plan; the report then says what would happen.
    Raises:
        ResidencyRefused: before anything is listed at the destination.
        Missing: the source has no object under the prefix.
        DeletesRefused, IncompleteListing: before anything is changed.
        Unreachable, AccessDenied, StoreFull: a store went away, lets nothing in or is full; what was copied is kept.
        PreconditionFailed: other syncs of the same dataset recorded other states meanwhile, twice.
    """
    refuse_foreign_tier(dataset, tier=tier, home=home, site=site)
    try:
        fates = _Run(source, destination, dataset, prefix).sync(delete, delete_share_max, dry_run=dry_run)
    except PreconditionFailed as problem:
        # Another sync found other versions at the source; only what lies there now tells what is right.
        log.info("dataset %s is synced once more: %s", dataset, problem)
        fates = _Run(source, destination, dataset, prefix).sync(delete, delete_share_max, dry_run=dry_run)
    report = SyncReport(
        dataset=dataset,
        source=source.name,
        destination=destination.name,
        dry_run=dry_run,
        outcomes=tuple(fates[key] for key in sorted(fates)),
    )
    _log(report)
    return report


def _log(report: SyncReport) -> None:
    counts = ", ".join(f"{report.count(fate)} {fate}" for fate in ObjectFate)
    log.info(
        "dataset %s: %s -> %s%s: %s; %d bytes copied",
        report.dataset,
        report.source,
        report.destination,
        " (dry run)" if report.dry_run else "",
        counts,
        report.bytes_copied,
    )


def refuse_foreign_tier(dataset: str, *, tier: Tier, home: str, site: str) -> None:
    """Let core data be stored at its home only; every refusal is logged."""
    if tier is Tier.CORE and site != home:
        refusal = ResidencyRefused(f"dataset '{dataset}'", tier=tier, source=home, destination=site)
        log.warning("%s", refusal)
        raise refusal


def _listing(store: ObjectStore, prefix: str) -> dict[str, ObjectInfo]:
    # Spillway's own records are of no dataset: the same rule for both ends, or a delete would remove them.
    return {entry.key: entry for entry in store.list(prefix) if not entry.key.startswith(OWN_PREFIX)}


class _Run:
    """One sync: its ends, and the record that it started from."""

    def __init__(self, source: ObjectStore, destination: ObjectStore, dataset: str, prefix: str) -> None:
        self._source, self._destination, self._dataset, self._prefix = source, destination, dataset, prefix
        self._recorded = load_manifest(destination, dataset)
        recorded = self._recorded.manifest
        same = recorded is not None and (recorded.source, recorded.prefix) == (source.name, prefix)
        self._previous = recorded if same else None

    def sync(self, delete: bool, delete_share_max: float, *, dry_run: bool) -> dict[str, ObjectOutcome]:
        """What became of each object, or of a dry run would become, by key."""
        there = _listing(self._source, self._prefix)
        if not there and not delete:
            fix = "check the dataset's prefix, and that its source is mounted"
            raise Missing("dataset", self._dataset, f"{self._source.name}/{self._prefix}", fix=fix)
        here = _listing(self._destination, self._prefix)
        plan = self._plan(there, here, delete=delete, delete_share_max=delete_share_max)
        return {planned.key: _as_planned(planned) for planned in plan.objects} if dry_run else self._apply(plan)

    def _plan(
        self,
        there: dict[str, ObjectInfo],
        here: dict[str, ObjectInfo],
        *,
        delete: bool,
        delete_share_max: float,
    ) -> SyncPlan:
        """The plan, after asking for the facts of those objects that the listings leave undecided."""
        undecided = [key for key in there.keys() & here.keys() if self._compare(there[key], here[key]).equal is None]
        with ThreadPoolExecutor(SMALL_THREADS, thread_name_prefix="compare") as pool:
            for known_there, known_here in pool.map(lambda key: self._look_up(there[key], here[key]), undecided):
                there[known_there.key], here[known_here.key] = known_there, known_here
        return plan_sync(
            there.values(),
            here.values(),
            partial(compare_content, source_name=self._source.name),
            delete=delete,
            previous=self._previous,
            delete_share_max=delete_share_max,
        )

    def _compare(self, there: ObjectInfo, here: ObjectInfo) -> Comparison:
        return compare_content(there, here, self._synced(there.key), source_name=self._source.name)

    def _synced(self, key: str) -> SyncedObject | None:
        return self._previous.objects.get(key) if self._previous else None

    def _look_up(self, there: ObjectInfo, here: ObjectInfo) -> tuple[ObjectInfo, ObjectInfo]:
        here = self._destination.head(here.key) or here
        if self._compare(there, here).equal is None and here.sha256 is not None:
            there = self._source.head(there.key) or there
        return there, here

    def _apply(self, plan: SyncPlan) -> dict[str, ObjectOutcome]:
        """Copy, then delete, then record; what became of each object, by key."""
        outcomes = {planned.key: _as_planned(planned) for planned in plan.objects if planned.action is not Action.COPY}
        if not plan.changes_nothing:
            self._open_record()
        ended = Transfer(self._source, self._destination).run(plan.of(Action.COPY))
        copied = {copy.outcome.key: copy for copy in ended}
        outcomes |= {key: copy.outcome for key, copy in copied.items()}
        whole_so_far = not any(outcome.failed for outcome in outcomes.values())
        outcomes |= self._delete(plan.of(Action.DELETE), allowed=whole_so_far)
        if not any(outcome.failed for outcome in outcomes.values()):
            self._record(plan, copied)
        return outcomes

    def _delete(self, unwanted: tuple[PlannedObject, ...], *, allowed: bool) -> dict[str, ObjectOutcome]:
        if not unwanted:
            return {}
        if not allowed:
            reason = "not deleted, because not every copy succeeded"
            return {planned.key: _fate(planned, ObjectFate.FAILED, reason) for planned in unwanted}
        refused = self._destination.delete(planned.key for planned in unwanted)
        return {
            planned.key: _fate(planned, ObjectFate.FAILED, f"not deleted: {refused[planned.key]}")
            if planned.key in refused
            else _as_planned(planned)
            for planned in unwanted
        }

    def _open_record(self) -> None:
        if self._recorded.whole:
            standing = self._recorded.manifest or self._manifest({})
            self._recorded = save_manifest(self._destination, standing, over=self._recorded, whole=False)

    def _record(self, plan: SyncPlan, copied: Mapping[str, Copied]) -> None:
        objects = {key: copy.synced for key, copy in copied.items() if copy.synced is not None}
        for planned in plan.of(Action.KEEP):
            if planned.source is not None and planned.destination is not None:
                objects[planned.key] = self._kept(planned.source, planned.destination)
        manifest = self._manifest(objects)
        if not self._recorded.whole or self._recorded.manifest != manifest:
            save_manifest(self._destination, manifest, over=self._recorded, whole=True)

    def _kept(self, there: ObjectInfo, here: ObjectInfo) -> SyncedObject:
        synced = self._synced(there.key)
        return SyncedObject(
            size_bytes=there.size_bytes,
            source_etag=there.etag,
            destination_etag=here.etag,
            sha256=there.sha256 or here.sha256 or (synced.sha256 if synced else None),
        )

    def _manifest(self, objects: Mapping[str, SyncedObject]) -> SyncManifest:
        return SyncManifest(dataset=self._dataset, source=self._source.name, prefix=self._prefix, objects=objects)


def _as_planned(planned: PlannedObject) -> ObjectOutcome:
    return _fate(planned, _PLANNED_FATES[planned.action], planned.reason)


def _fate(planned: PlannedObject, fate: ObjectFate, reason: str) -> ObjectOutcome:
    return ObjectOutcome(key=planned.key, fate=fate, reason=reason, size_bytes=planned.size_bytes)
