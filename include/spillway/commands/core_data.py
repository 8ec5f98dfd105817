"""Core data out of place, found by looking: stored where it may not be, or readable by who must be refused."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import islice

from spillway.commands.remote_reads import KEYS_LOOKED_AT, core_keys, core_prefixes, may_read, remote_gaps
from spillway.config import Configuration
from spillway.errors import AccessDenied, RequestRefused, SpillwayError
from spillway.errors.counts import counted
from spillway.model import Cluster, Dataset, Tier
from spillway.preflight import Gap, remedy
from spillway.runs.services import Connect
from spillway.runs.sites import bucket
from spillway.stores.base import list_data


def core_data_gaps(declared: Configuration, connect: Connect) -> Iterator[Gap]:
    """Core objects at sites that may not store them, and identities of or towards such sites that can read any.

    Also identities for public data that cannot read any, or no tags where these decide. Only lists, and reads one byte
    or the tags of one object each.
    """
    foreign = [cluster for cluster in declared.clusters.values() if not cluster.may_hold(Tier.CORE)]
    core = [dataset for dataset in declared.datasets.values() if dataset.strictest is Tier.CORE]
    for cluster in foreign:
        yield from _stored_gaps(cluster, core, connect)
    for dataset in declared.datasets.values():
        yield from _public_gaps(dataset, declared.clusters[dataset.home], connect)
        if foreign:
            yield from _tag_gaps(dataset, declared.clusters[dataset.home], connect)
        yield from remote_gaps(dataset, declared, connect)
    for home in declared.clusters.values() if foreign else ():
        held = [dataset for dataset in core if dataset.home == home.name]
        if held:
            yield from _home_gaps(home, foreign, held, connect)


def _home_gaps(home: Cluster, foreign: list[Cluster], held: list[Dataset], connect: Connect) -> Iterator[Gap]:
    store, names = home.object_store, ", ".join(sorted(cluster.name for cluster in foreign))
    try:
        objects = bucket(connect(store.connection), store.dataset_bucket, home.name)
        keys = {dataset.name: tuple(core_keys(dataset, objects, of_each=1)) for dataset in held}
    except SpillwayError:
        return  # the mover's own gap tells it
    none = not any(keys.values())
    untried = [dataset.name for dataset in held if not keys[dataset.name] and (none or core_prefixes(dataset))]
    if untried:
        problem = f"not checked who can read core data: there is no object of {', '.join(untried)} to try with"
        yield _unknown(home.name, "identities", problem, "ask again when there is")
    if none:
        return
    if store.public_connection is None:
        problem = f"what goes to {names} is read with Connection '{store.connection}', which can read core data too"
        fix = "make an identity that can read public datasets only, and name it as object_store.public_connection"
        yield _unknown(home.name, "identities", problem, fix)
    else:
        yield from _tried(home, home.name, store.public_connection, f"mover to {names}", keys, connect)
    if store.public_pod_connection is not None:
        yield from _tried(home, home.name, store.public_pod_connection, "pods of public parts", keys, connect)
    for cluster in foreign:
        for connection, who in (
            (cluster.object_store.connection, "mover"),
            (cluster.object_store.pod_connection, "pods"),
            (cluster.object_store.cache_connection, "pods (cache)"),
        ):
            if connection is not None:
                yield from _tried(home, cluster.name, connection, who, keys, connect)


def _public_gaps(dataset: Dataset, home: Cluster, connect: Connect) -> Iterator[Gap]:
    """Whether the identities for public data read this dataset's; one that is refused everything would move nothing."""
    store = home.object_store
    for conn_id in (store.public_connection, store.public_pod_connection):
        if conn_id is not None and Tier.PUBLIC in dataset.tiers:
            yield from _public_gap(dataset, home, conn_id, connect)


def _public_gap(dataset: Dataset, home: Cluster, conn_id: str, connect: Connect) -> Iterator[Gap]:
    try:
        objects = bucket(connect(conn_id), home.object_store.dataset_bucket, home.name)
        looked_at = islice(list_data(objects, dataset.prefix), KEYS_LOOKED_AT)
        key = next((entry.key for entry in looked_at if dataset.tier_of(entry.key) is Tier.PUBLIC), None)
        if key is not None:
            next(iter(objects.read(key, length=1)), b"")
    except SpillwayError as problem:
        yield Gap(
            cluster=home.name,
            part=f"dataset {dataset.name} (public)",
            problem=problem.told,
            fix=remedy(problem, conn_id),
        )


def _tag_gaps(dataset: Dataset, home: Cluster, connect: Connect) -> Iterator[Gap]:
    """Whether whoever reads what goes to a site without core data may read the tags that decide of it."""
    if not dataset.has_tag_rules:
        return
    store, part = home.object_store, f"dataset {dataset.name} (tags)"
    conn_id = store.public_connection or store.connection
    try:
        objects = bucket(connect(conn_id), store.dataset_bucket, home.name)
        looked_at = islice(list_data(objects, dataset.prefix), KEYS_LOOKED_AT)
        key = next((entry.key for entry in looked_at if dataset.asks_tags(entry.key)), None)
        if key is None:
            problem = "not checked whether tags can be read: there is no object to try with"
            yield _unknown(home.name, part, problem, "ask again when there is")
        else:
            objects.tags(key)
    except AccessDenied as problem:
        fix = f"let the identity of Connection '{conn_id}' read tags (s3:GetObjectTagging) below {dataset.prefix}"
        yield Gap(cluster=home.name, part=part, problem=problem.told, fix=fix)
    except RequestRefused as problem:
        fix = "give its rules prefixes instead of tags: until then nothing that tags decide of leaves"
        yield Gap(cluster=home.name, part=part, problem=problem.told, fix=fix)
    except SpillwayError as problem:
        yield Gap(cluster=home.name, part=part, problem=problem.told, fix=remedy(problem, conn_id))


def _stored_gaps(site: Cluster, core: list[Dataset], connect: Connect) -> Iterator[Gap]:
    """What lies at a site without core data and is core by now, whoever brought it there and when."""
    bucket_name = site.object_store.dataset_bucket
    try:
        store = bucket(connect(site.object_store.connection), bucket_name, site.name)
        found = {dataset.name: set(core_keys(dataset, store)) for dataset in core}
    except SpillwayError:
        return  # the mover's own gap tells it
    for name, keys in found.items():
        if keys:
            yield Gap(
                cluster=site.name,
                part=f"bucket {bucket_name}",
                problem=f"it holds {counted(len(keys), 'core object')} of dataset '{name}', which may not be there",
                fix="they were copied before they became core, or past Spillway: remove them, all versions",
            )


def _tried(
    home: Cluster, site: str, conn_id: str, who: str, keys: Mapping[str, Sequence[str]], connect: Connect
) -> Iterator[Gap]:
    """A gap where this identity, at the store of the core objects' home, is not refused to read one of them.

    Args:
        keys: of core objects, by the name of their dataset.
    """
    part, readable = f"identity of {who}", list[str]()
    try:
        identity, address = connect(conn_id), connect(home.object_store.connection)
        as_them = replace(address, conn_id=conn_id, login=identity.login, password=identity.password)
        store = bucket(as_them, home.object_store.dataset_bucket, home.name)
        for dataset, some in keys.items():
            if any(may_read(store, key) for key in some):
                readable.append(dataset)
    except SpillwayError as problem:
        yield _unknown(site, part, f"not checked whether it can read core data: {problem.told}", "ask again")
    if readable:
        yield Gap(
            cluster=site,
            part=part,
            problem=f"the identity of Connection '{conn_id}' can read core data of {home.name}: {', '.join(readable)}",
            fix=f"let it read public datasets only, in bucket {home.object_store.dataset_bucket} of {home.name}; where "
            "the store's rules cannot except a core folder, keep it outside every public dataset",
        )


def _unknown(site: str, part: str, problem: str, fix: str) -> Gap:
    return Gap(cluster=site, part=part, problem=problem, fix=fix, checked=False)
