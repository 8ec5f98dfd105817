"""Record which objects of a dataset are of a part of it, where they lie already: whoever reads the part reads these."""

from __future__ import annotations

from datetime import datetime

from spillway.errors import Missing
from spillway.model import KeyScope, ObjectInfo, SyncedObject, SyncRecord
from spillway.stores.base import ObjectStore, list_data
from spillway.sync.decisions import planned_objects
from spillway.sync.leaving import TagRules
from spillway.sync.listing import Admit
from spillway.sync.manifest import is_recorded_version, load_record, remove_left_overs, save_record, write_entries
from spillway.sync.plan import Action, Match, PlannedObject
from spillway.sync.report import ObjectFate, ObjectOutcome, SyncReport, Tally
from spillway.sync.rows import Rows


def record_part(
    store: ObjectStore, record: str, scope: KeyScope, *, admit: Admit, tag_rules: TagRules | None, now: datetime
) -> SyncReport:
    """Record the objects of the part by their versions; nothing is moved, and nothing is written where all is recorded.

    The whole dataset is listed, and every object whose tags decide is asked for them. An object that is replaced
    afterwards is of another version, so it is not read before it was looked at again.

    Args:
        record: the name of the part.
        admit, tag_rules: which objects are of it, as in ``sync_dataset``.
    Returns:
        The objects of the part as unchanged, those of the rest as withheld. Nothing is recorded where there are
        failures: objects whose tags cannot be read.
    Raises:
        Missing: no object is of the part.
        PreconditionFailed: somebody else recorded other objects at the same moment.
    """
    part, tally, withheld = Rows(), Tally(), 0
    for planned in planned_objects(
        (Match(key, _found(key, *facts)) for key, *facts in _listed(store, scope)),
        lambda match: _decide(match, admit),
        source=store,
        destination=store,
        tag_rules=tag_rules,
        copies_too=False,
        delete=False,
    ):
        if planned.action is Action.COPY and planned.source is not None:
            part.add((planned.key, planned.source.size_bytes, planned.source.etag, planned.source.sha256))
            tally.note(ObjectOutcome(planned.key, ObjectFate.UNCHANGED, planned.reason, planned.size_bytes))
        elif planned.action is Action.REFUSE:
            tally.note(ObjectOutcome(planned.key, ObjectFate.REFUSED, planned.reason, planned.size_bytes))
        else:
            withheld += 1
    if not len(part) and not tally.failures:
        fix = "check the rules of the dataset, and whether any object is what they call public"
        raise Missing("dataset", record, f"{store.name}/{scope.prefix}", fix=fix)
    if not tally.failures:
        _save(store, record, scope, part, now)
    return SyncReport(
        dataset=record,
        source=store.name,
        destination=store.name,
        dry_run=False,
        listed_destination=True,
        counts=dict(tally.counts),
        bytes_copied=0,
        failures=tuple(tally.failures),
        objects_withheld=withheld,
        objects_barred=tally.objects_barred,
    )


def _listed(store: ObjectStore, scope: KeyScope) -> Rows:
    """All objects of the dataset in the order of keys."""
    found = (entry for entry in list_data(store, scope.prefix) if scope.holds(entry.key))
    return Rows((entry.key, entry.size_bytes, entry.etag, entry.sha256) for entry in found)


def _found(key: str, size_bytes: int, etag: str, sha256: str | None) -> ObjectInfo:
    return ObjectInfo(key=key, size_bytes=size_bytes, etag=etag, sha256=sha256)


def _decide(match: Match, admit: Admit) -> PlannedObject:
    if admit(match.key):
        return PlannedObject(match.key, Action.COPY, "is of the part", match.source, None)
    return PlannedObject(match.key, Action.WITHHOLD, "is not of the part", match.source, None)


def _save(store: ObjectStore, name: str, scope: KeyScope, part: Rows, now: datetime) -> None:
    stored = load_record(store, name)
    before = stored.record
    if before is not None and before.whole and before.scope == scope and is_recorded_version(part, before):
        return
    made = SyncRecord(
        dataset=name,
        source=store.name,
        scope=scope,
        whole=True,
        entries="",
        objects=0,
        size_bytes=0,
        versions="",
        verified_at=now,
    )
    entries = ((key, SyncedObject(size, etag, etag, sha256)) for key, size, etag, sha256 in part)
    remove_left_overs(store, save_record(store, write_entries(store, made, entries), over=stored))
