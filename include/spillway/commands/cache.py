"""``cache``: what sites that may not store core data keep of it, encrypted; seen and deleted."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from datetime import UTC, datetime

from spillway.commands.console import Console
from spillway.commands.installation import Installation, cluster, dataset
from spillway.commands.parsing import Parser, command, dry_run, group
from spillway.errors import ConfigError, SpillwayError
from spillway.model import Cluster, Dataset
from spillway.runs.services import Services
from spillway.runs.sites import bucket
from spillway.stores.base import ObjectStore
from spillway.stores.cache_room import list_blocks, list_kept
from spillway.stores.encrypted_cache import key_of, prefix_of

HEADER = ("DATASET", "SITE", "BLOCKS", "BYTES", "LIMIT", "LAST USED")
FIELDS = ("dataset", "site", "blocks", "bytes", "limit_bytes", "used_at")

NAMED = 5
"""So many objects that are no cache's are named; all of another bucket would be no help."""


def register(parser: Parser) -> None:
    """Add the words of the command."""
    commands = group(parser)
    command(commands, "ls", _ls, "how much of each dataset is kept at which site", json=True)
    text = "delete what a site keeps of a dataset, or of all of them"
    purge = command(commands, "purge", _purge, text, json=True)
    purge.add_argument("site", metavar="SITE")
    purge.add_argument("dataset", metavar="DATASET", nargs="?", help="of this one only; without it all that is there")
    dry_run(purge)


def _ls(installation: Installation, console: Console, options: argparse.Namespace) -> int:
    services = installation.services()
    found, problems = [], 0
    for site, wanted in _pairs(services):
        try:
            found.append(_facts(services, site, wanted))
        except SpillwayError as problem:
            problems += 1
            console.complain(f"{wanted.name} at {site.name}: {problem}")
    if options.json:
        console.data(found)
    else:
        console.table(HEADER, [[row[field] for field in FIELDS] for row in found])
    return 1 if problems else 0


def _pairs(services: Services) -> Iterator[tuple[Cluster, Dataset]]:
    """Each site that keeps a dataset, by their declarations."""
    for site in services.configuration.clusters.values():
        for wanted in services.configuration.datasets.values():
            if site.object_store.cache_bucket and wanted.cache and not site.may_hold(wanted.strictest):
                yield site, wanted


def _facts(services: Services, site: Cluster, wanted: Dataset) -> dict[str, object]:
    assert wanted.cache is not None
    blocks = list_blocks(_store(services, site), _prefix(services, wanted))
    last = max((block.used_at for block in blocks), default=None)
    return {
        "dataset": wanted.name,
        "site": site.name,
        "blocks": len(blocks),
        "bytes": sum(block.size_bytes for block in blocks),
        "limit_bytes": wanted.cache.limit_bytes,
        "used_at": None if last is None else datetime.fromtimestamp(last, UTC).isoformat(timespec="seconds"),
    }


def _purge(installation: Installation, console: Console, options: argparse.Namespace) -> int:
    services = installation.services()
    site = cluster(services, options.site)
    store = _store(services, site)
    prefix = "" if options.dataset is None else _prefix(services, dataset(services, options.dataset))
    kept, strange = list_kept(store, prefix)
    refused = {} if options.dry_run else store.delete([entry.key for entry in kept])
    going = [entry.size_bytes for entry in kept if entry.key not in refused]
    done = {"objects": len(going), "bytes": sum(going), "refused": len(refused), "strange": len(strange)}
    if options.json:
        console.data(done)
    else:
        what = f"{done['objects']} objects, {done['bytes']} bytes"
        console.say(f"{'would delete' if options.dry_run else 'deleted'} {what} from the cache of {site.name}")
    for key, reason in refused.items():
        console.complain(f"{key} stays: {reason}")
    if strange:
        named = ", ".join(strange[:NAMED]) + (", ..." if len(strange) > NAMED else "")
        console.complain(f"{len(strange)} objects stay that no cache has written: {named}")
    return 1 if refused or strange else 0


def _store(services: Services, site: Cluster) -> ObjectStore:
    declared = site.object_store
    if declared.cache_bucket is None:
        raise ConfigError("clusters.yaml", f"{site.name}.object_store.cache_bucket", "is not declared: it has no cache")
    return bucket(services.connect(declared.connection), declared.cache_bucket, site.name)


def _prefix(services: Services, wanted: Dataset) -> str:
    if wanted.cache is None:
        problem = f"the dataset '{wanted.name}' has no cache; without a dataset all that is at the site is deleted"
        raise ConfigError("datasets.yaml", f"{wanted.name}.cache", problem)
    return prefix_of(key_of(services.connect(wanted.cache.connection).password or ""), wanted.name)
