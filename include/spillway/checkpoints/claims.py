"""Who may touch which part: writers claim the parts of a step they are committing, a sweep says what it deletes.

A part's key follows from its bytes, so a writer may need again what a sweep is about to delete. Each says first what it
is going to do and then looks at the other: a writer writes its claim, then reads SWEEP; a sweep writes SWEEP, then
reads the claims. Whatever the order, one of them sees the other: the sweep leaves claimed parts alone, and the writer
waits until the parts that it needs are gone, and sends them again. No clock decides, but over what a killed process
leaves behind: SWEEP counts for ``SWEEP_LIFE``, a claim of a step that nobody committed for ``CLAIM_LIFE``. A writer
goes by the store's clock: a pod's own may be wrong.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from spillway.checkpoints.layout import Head, age_order_of, claim_key, sweep_key
from spillway.checkpoints.parts import at_once
from spillway.codec import decode, encode, from_json
from spillway.errors import ConfigError, CorruptCheckpoint, Missing, PreconditionFailed, SpillwayError
from spillway.model import CheckpointPart
from spillway.stores.base import ObjectStore, read_all

SWEEP_LIFE = timedelta(minutes=5)
"""A sweep deletes within a fifth of this after its SWEEP, so an older one is of a process that is dead."""

CLAIM_LIFE = timedelta(hours=24)
"""No commit takes longer."""

_POLL_SECONDS = 0.2


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim:
    """The parts of a step that is being committed."""

    parts: tuple[CheckpointPart, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Sweep:
    """The parts, by sha256, that ``by`` deletes now."""

    by: str
    parts: tuple[str, ...]


def claim_parts(
    store: ObjectStore, run: str, parts: tuple[CheckpointPart, ...], *, step: int, attempt: int, rank: int = 0
) -> None:
    """From now on no sweep takes these parts away, and none that began before still does.

    What the same rank has claimed of the step before stays claimed.
    """
    key = claim_key(run, step, attempt, rank)
    try:
        _put(store, key, encode(Claim(parts=parts)), if_absent=True)
    except PreconditionFailed:
        before = None
        with suppress(CorruptCheckpoint):  # it says nothing, and nobody sweeps while it lies there
            before = _claim(store, run, key)
        claimed = dict.fromkeys((*(before.parts if before else ()), *parts))
        _put(store, key, encode(Claim(parts=tuple(claimed))))
    _wait_for_sweep(store, run, parts, claim=key)


def drop_claim(store: ObjectStore, run: str, step: int, attempt: int, *, of_all_ranks: bool = False) -> None:
    """Forget the claim of a step that is committed; where that is not possible, a sweep does it."""
    key = claim_key(run, step, attempt)
    with suppress(SpillwayError):
        others = [info.key for info in store.list(key.removesuffix(".json") + "-")] if of_all_ranks else []
        store.delete([key, *others])


def claimed_parts(store: ObjectStore, run: str, head: Head, now: datetime) -> Iterator[str]:
    """The sha256 of every part that somebody may still commit.

    Raises:
        CorruptCheckpoint: a claim cannot be read, so that nobody knows.
    """
    for claim in at_once(lambda key: _claim(store, run, key), _living_claims(store, run, head, now)):
        yield from (part.sha256 for part in (claim.parts if claim else ()))


def dead_claims(store: ObjectStore, run: str, head: Head, now: datetime) -> frozenset[str]:
    """The keys of claims that nobody will commit any more."""
    return frozenset(info.key for info in store.list(_folder(run))) - set(_living_claims(store, run, head, now))


def _living_claims(store: ObjectStore, run: str, head: Head, now: datetime) -> Iterator[str]:
    """A step that is not newer than the newest committed one can never be committed: HEAD only goes forward."""
    for info in store.list(_folder(run)):
        order = age_order_of(info.key, _folder(run))
        passed = order is not None and head.newest is not None and order <= head.newest.age_order
        if not passed and not (info.modified_at and now - info.modified_at > CLAIM_LIFE):
            yield info.key


def _wait_for_sweep(store: ObjectStore, run: str, parts: Iterable[CheckpointPart], *, claim: str) -> None:
    """Return when none of the parts is being deleted; to be called after the claim and before looking for them.

    Args:
        claim: the key of the claim that was written just now; its time at the store is now.
    """
    mine, began = {part.sha256 for part in parts}, time.monotonic()
    while (info := store.head(sweep_key(run))) is not None and mine & set(_doomed(store, run)):
        claimed = store.head(claim)
        age = timedelta(seconds=time.monotonic() - began)
        if claimed and claimed.modified_at and info.modified_at:
            age += claimed.modified_at - info.modified_at
        if age > SWEEP_LIFE:
            return
        time.sleep(_POLL_SECONDS)


def _doomed(store: ObjectStore, run: str) -> tuple[str, ...]:
    sweep = read_sweep(store, run)
    return () if sweep is None else sweep.parts


def read_sweep(store: ObjectStore, run: str) -> Sweep | None:
    """What is being deleted at this moment, None where nothing is.

    Raises:
        CorruptCheckpoint: SWEEP cannot be read.
    """
    found: Sweep | None = _read(store, run, sweep_key(run), Sweep)
    return found


def write_sweep(store: ObjectStore, run: str, sweep: Sweep, *, replacing: str | None) -> None:
    """Announce deletes. ``replacing`` is the etag of a dead sweep's announcement.

    Raises:
        PreconditionFailed: somebody else is sweeping.
    """
    _put(store, sweep_key(run), encode(sweep), if_absent=replacing is None, if_match=replacing)


def _folder(run: str) -> str:
    return f"{run}/claims/"


def _claim(store: ObjectStore, run: str, key: str) -> Claim | None:
    found: Claim | None = _read(store, run, key, Claim)
    return found


def _read(store: ObjectStore, run: str, key: str, kind: type[Any]) -> Any:
    try:
        return decode(kind, from_json(read_all(store, key)), key)
    except Missing:
        return None
    except (ValueError, ConfigError) as problem:
        raise CorruptCheckpoint(run, None, f"{store.name}: {key} cannot be read: {problem}") from problem


def _put(store: ObjectStore, key: str, data: Mapping[str, Any], **conditions: Any) -> None:
    body = json.dumps(data).encode()
    store.put(key, body, size_bytes=len(body), content_type="application/json", **conditions)
