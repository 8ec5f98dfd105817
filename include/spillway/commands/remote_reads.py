"""Whether the identity that pods of other sites read a core dataset with can do that, and nothing else."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from itertools import islice
from typing import Any

from spillway.commands.rights import PROBE
from spillway.config import Configuration
from spillway.errors import AccessDenied, PreconditionFailed, SpillwayError
from spillway.model import Dataset, Tier
from spillway.preflight import PROBE_PREFIX, Gap, remedy
from spillway.runs.services import Connect
from spillway.runs.sites import bucket
from spillway.stores.base import ObjectStore, list_data

KEYS_LOOKED_AT = 10_000
"""Below each prefix that may hold core objects: preflight is a look, not an inventory."""


def remote_gaps(dataset: Dataset, declared: Configuration, connect: Connect) -> Iterator[Gap]:
    """Gaps of the identity of a dataset's ``remote_read``: it is to read this dataset, and no core data of datasets
    that do not name it too, and to write no data. None where the dataset has no such identity.
    """
    if dataset.remote_read is None:
        return
    home, part = declared.clusters[dataset.home], f"dataset {dataset.name} (remote)"
    name, conn_id = home.object_store.dataset_bucket, dataset.remote_read
    try:
        theirs = bucket(connect(conn_id), name, home.name)
        mine = bucket(connect(home.object_store.connection), name, home.name)
        key = next((entry.key for entry in list_data(theirs, dataset.prefix)), None)
        if key is not None:
            next(iter(theirs.read(key, length=1)), b"")
        others = [one for one in declared.datasets.values() if one.home == home.name and one.remote_read != conn_id]
        wrong = [f"read core data of dataset '{one.name}'" for one in others if _reads(theirs, mine, one)]
        if _writes(theirs, mine, dataset.prefix):
            wrong.append(f"write to bucket {name}")
    except SpillwayError as problem:
        yield Gap(cluster=home.name, part=part, problem=problem.told, fix=remedy(problem, conn_id))
        return
    if key is None:
        unread = f"not checked whether the identity of Connection '{conn_id}' can read it: there is no object of it"
        yield Gap(cluster=home.name, part=part, problem=unread, fix="ask again when there is", checked=False)
    for may in wrong:
        yield Gap(
            cluster=home.name,
            part=part,
            problem=f"the identity of Connection '{conn_id}' can {may}",
            fix=f"let it list bucket {name} and read {dataset.prefix} in it, no more",
        )


def core_prefixes(dataset: Dataset) -> tuple[str, ...]:
    """The prefixes that make objects core, its own or those of rules; not where tags decide.

    To ask for each object's tags is more than a look.
    """
    prefixes = {dataset.prefix, *(rule.prefix for rule in dataset.rules)}
    return tuple(
        prefix for prefix in sorted(prefixes) if dataset.tier_of(prefix) is Tier.CORE and not dataset.asks_tags(prefix)
    )


def core_keys(dataset: Dataset, store: ObjectStore, *, of_each: int | None = None) -> Iterator[str]:
    """The keys of its core objects in a store, of the first ones below each of ``core_prefixes``.

    Args:
        of_each: how many of each prefix; None is all.
    """
    for prefix in core_prefixes(dataset):
        longer = tuple(rule.prefix for rule in dataset.rules if len(rule.prefix) > len(prefix))
        keys = (entry.key for entry in islice(list_data(store, prefix), KEYS_LOOKED_AT))
        yield from islice((key for key in keys if not key.startswith(longer)), of_each)


def may_read(store: ObjectStore, key: str) -> bool:
    """Whether the identity with which the store was opened is let read the object."""
    try:
        next(iter(store.read(key, length=1)), b"")
    except AccessDenied:
        return False
    return True


def _reads(theirs: ObjectStore, mine: ObjectStore, other: Dataset) -> bool:
    return any(may_read(theirs, key) for key in core_keys(other, mine, of_each=1))


def _writes(theirs: ObjectStore, mine: ObjectStore, prefix: str) -> bool:
    """Whether it may write beside the data, or among it: that is asked by a condition that nothing meets."""
    conditions: tuple[tuple[str, dict[str, Any]], ...]
    conditions = (("", {"if_absent": True}), (prefix, {"if_match": "0" * 32}))
    return any(_puts(theirs, mine, f"{below}{PROBE_PREFIX}{uuid.uuid4()}", **unless) for below, unless in conditions)


def _puts(theirs: ObjectStore, mine: ObjectStore, key: str, **condition: Any) -> bool:
    try:
        theirs.put(key, PROBE, size_bytes=len(PROBE), **condition)
    except AccessDenied:
        return False
    except PreconditionFailed:
        return True
    mine.delete([key])
    return True
