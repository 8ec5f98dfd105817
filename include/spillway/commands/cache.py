"""``cache``: what sites that may not store core data keep of it, encrypted; seen and deleted."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from datetime import UTC, datetime

from spillway.commands.console import Console
from spillway.commands.installation import Installation, cluster, dataset
from spillway.commands.parsing import Parser, command, dry_run, group
from spillway.errors import ConfigError, SpillwayError
from spillway.errors.counts import counted
from spillway.model import Cluster, Dataset
from spillway.runs.services import Say, Services
from spillway.runs.sites import bucket
from spillway.stores.base import ObjectStore
from spillway.stores.cache_room import list_blocks, list_kept, prefix_in
from spillway.stores.encrypted_cache import key_of, prefix_of

HEADER = ("DATASET", "SITE", "BLOCKS", "BYTES", "LIMIT", "LAST USED")
FIELDS = ("dataset", "site", "blocks", "bytes", "limit_bytes", "used_at")
WITHDRAWN = "(no longer opted in)"
"""In the place of a name: what the blocks lie below is a hash of it with the key."""

NAMED = 5
"""So many objects that are no cache's are named; all of another bucket would be no help."""


def register(parser: Parser) -> None:
    """Add the words of the command."""
    commands = group(parser)
    command(commands, "ls", _ls, "how much of each dataset is kept at which site", json=True)
    text = "delete what a site keeps of a dataset, of what is no longer opted in, or of all"
    purge = command(commands, "purge", _purge, text, json=True)
    purge.add_argument("site", metavar="SITE")
    which = purge.add_mutually_exclusive_group()
    which.add_argument("dataset", metavar="DATASET", nargs="?", help="of this one only; without it all that is there")
    which.add_argument("--withdrawn", action="store_true", help="only of what is no longer opted in")
    dry_run(purge)


def _ls(installation: Installation, console: Console, options: argparse.Namespace) -> int:
    services, problems = installation.services(), list[str]()
    sites = services.configuration.clusters.values()
    found = [row for site in sites for row in _kept_at(services, site, problems.append)]
    for problem in problems:
        console.complain(problem)
    if options.json:
        console.data(found)
    else:
        shown = [row | {"dataset": row["dataset"] or WITHDRAWN} for row in found]
        console.table(HEADER, [[row[field] for field in FIELDS] for row in shown])
    return 1 if problems else 0


def _kept_at(services: Services, site: Cluster, complain: Say) -> Iterator[dict[str, object]]:
    """What the site keeps, by dataset, then what belongs to none; while a key is not known nobody knows the latter."""
    if site.object_store.cache_bucket is None:
        return
    wanted, known = _opted_in(services, site), dict[str, Dataset]()
    for one in wanted:
        try:
            known[_prefix(services, one)] = one
        except SpillwayError as problem:
            complain(f"{one.name} at {site.name}: {problem}")
    try:
        store = _store(services, site)
        there = {prefix_in(entry.key) for entry in list_kept(store)[0]}
        others = sorted(there - known.keys()) if len(known) == len(wanted) else []
        for prefix in (*known, *others):
            yield _facts(store, site, prefix, known.get(prefix))
    except SpillwayError as problem:
        complain(f"{site.name}: {problem}")


def _opted_in(services: Services, site: Cluster) -> list[Dataset]:
    """The datasets that may be kept there, by their declarations."""
    datasets = services.configuration.datasets.values()
    return [wanted for wanted in datasets if wanted.cache and not site.may_hold(wanted.strictest)]


def _facts(store: ObjectStore, site: Cluster, prefix: str, wanted: Dataset | None) -> dict[str, object]:
    """Of the blocks below the prefix; None for what belongs to no dataset that is opted in."""
    blocks = list_blocks(store, prefix)
    last = max((block.used_at for block in blocks), default=None)
    return {
        "dataset": None if wanted is None else wanted.name,
        "opted_in": wanted is not None,
        "site": site.name,
        "blocks": len(blocks),
        "bytes": sum(block.size_bytes for block in blocks),
        "limit_bytes": None if wanted is None or wanted.cache is None else wanted.cache.limit_bytes,
        "used_at": None if last is None else datetime.fromtimestamp(last, UTC).isoformat(timespec="seconds"),
    }


def _purge(installation: Installation, console: Console, options: argparse.Namespace) -> int:
    services = installation.services()
    site = cluster(services, options.site)
    store = _store(services, site)
    prefix = "" if options.dataset is None else _prefix(services, dataset(services, options.dataset))
    stays = {_prefix(services, wanted) for wanted in _opted_in(services, site)} if options.withdrawn else set()
    listed, strange = list_kept(store, prefix)
    kept = [entry for entry in listed if prefix_in(entry.key) not in stays]
    refused = {} if options.dry_run else store.delete([entry.key for entry in kept])
    going = [entry.size_bytes for entry in kept if entry.key not in refused]
    done = {"objects": len(going), "bytes": sum(going), "refused": len(refused), "strange": len(strange)}
    if options.json:
        console.data(done)
    else:
        what = f"{counted(done['objects'], 'object')}, {counted(done['bytes'], 'byte')}"
        console.say(f"{'would delete' if options.dry_run else 'deleted'} {what} from the cache of {site.name}")
    for key, reason in refused.items():
        console.complain(f"{key} stays: {reason}")
    if strange:
        named = ", ".join(strange[:NAMED]) + (", ..." if len(strange) > NAMED else "")
        console.complain(f"{counted(len(strange), 'object')} left alone that no cache has written: {named}")
    return 1 if refused or strange else 0


def _store(services: Services, site: Cluster) -> ObjectStore:
    declared = site.object_store
    if declared.cache_bucket is None:
        raise ConfigError("clusters.yaml", f"{site.name}.object_store.cache_bucket", "is not declared: it has no cache")
    return bucket(services.connect(declared.connection), declared.cache_bucket, site.name)


def _prefix(services: Services, wanted: Dataset) -> str:
    if wanted.cache is None:
        problem = (
            f"the dataset '{wanted.name}' has no cache; what is kept from before it had none goes with --withdrawn"
        )
        raise ConfigError("datasets.yaml", f"{wanted.name}.cache", problem)
    return prefix_of(key_of(services.connect(wanted.cache.connection).password or ""), wanted.name)
