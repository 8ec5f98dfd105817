"""Whether caches can be used: their keys, and the identity that pods reach a site's with, which is to reach no more."""

from __future__ import annotations

import uuid
from collections.abc import Iterator

from spillway.commands.rights import HARM, LIST, MISS, rights, words
from spillway.config import Configuration
from spillway.errors import SpillwayError
from spillway.model import Cluster
from spillway.preflight import PROBE_PREFIX, Gap, remedy
from spillway.runs.services import Connect
from spillway.runs.sites import bucket
from spillway.stores.encrypted_cache import key_of


def cache_gaps(declared: Configuration, connect: Connect) -> Iterator[Gap]:
    """Keys that are none, and identities that can do less in their site's cache than pods do, or anything beside it."""
    for dataset in declared.datasets.values():
        if dataset.cache is not None:
            conn_id = dataset.cache.connection
            try:
                key_of(connect(conn_id).password or "")
            except SpillwayError as problem:
                part = f"dataset {dataset.name} (cache)"
                yield Gap(cluster=dataset.home, part=part, problem=problem.told, fix=remedy(problem, conn_id))
    for site in declared.clusters.values():
        store = site.object_store
        if store.cache_bucket is not None and store.cache_connection is not None:
            yield from _too_little(site, store.cache_bucket, store.cache_connection, connect)
            for other in (store.dataset_bucket, store.checkpoint_bucket):
                yield from _too_much(site, other, store.cache_connection, connect)


def _too_little(site: Cluster, name: str, conn_id: str, connect: Connect) -> Iterator[Gap]:
    part = f"bucket {name} (cache)"
    try:
        store = bucket(connect(conn_id), name, site.name)
        may = rights(store, store, _probe())
    except SpillwayError as problem:
        yield Gap(cluster=site.name, part=part, problem=problem.told, fix=remedy(problem, conn_id))
        return
    lacking = {LIST, MISS, *HARM} - may
    if lacking:
        what = words(lacking) or "learn that there is none of"
        yield Gap(
            cluster=site.name,
            part=part,
            problem=f"the identity of Connection '{conn_id}' cannot {what} objects there",
            fix=f"let it list bucket {name}, read, write and delete in it: else nothing is kept, or no room is made",
        )


def _too_much(site: Cluster, name: str, conn_id: str, connect: Connect) -> Iterator[Gap]:
    part, who = f"bucket {name} (cache)", f"the identity of Connection '{conn_id}', which is for the cache,"
    mover = site.object_store.connection
    key = _probe()
    try:
        mine = bucket(connect(mover), name, site.name)
        mine.head(key)
    except SpillwayError:
        return  # the mover's own gap tells it
    try:
        may = words(rights(bucket(connect(conn_id), name, site.name), mine, key))
    except SpillwayError as problem:
        unknown = f"not checked what {who} can do there: {problem.told}"
        yield Gap(cluster=site.name, part=part, problem=unknown, fix=remedy(problem, mover), checked=False)
        return
    if may:
        fix = f"let it reach bucket {site.object_store.cache_bucket} alone: pods that read core data elsewhere have it"
        yield Gap(cluster=site.name, part=part, problem=f"{who} can {may} objects there", fix=fix)


def _probe() -> str:
    return f"{PROBE_PREFIX}{uuid.uuid4()}"
