"""One door between sites: whatever copies from one to another is called behind ``open_route`` and nowhere else."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
LIBRARY = ROOT / "include" / "spillway"

DOOR = {
    LIBRARY / "runs" / name
    for name in (
        "moving_checkpoints.py",
        "moving_datasets.py",
        "moving_images.py",
        "sharing.py",
    )
}
MOVERS = ("checkpoints", "images", "registries", "stores", "sync")
"""The packages that read and store bytes: of what they have, callers import only what is named here."""
COPIERS = frozenset({
    "checkpoints.replicate.replicate", "images.mirror.mirror", "images.repository.mirror_tags",
    "sync.execute.sync_dataset", "sync.shares.copy_share", "sync.shares.divide", "sync.shares.merge",
})  # fmt: skip
"""What copies from one store to another that are both given to it; for the door only."""
HARMLESS = frozenset({
    "checkpoints.curve.loss_curve", "checkpoints.history.pruned_manifests", "checkpoints.history.pruned_steps",
    "checkpoints.layout.CommittedStep", "checkpoints.layout.Head", "checkpoints.parts.drafts_folder",
    "checkpoints.layout.progress_key", "checkpoints.parts.missing_files",
    "checkpoints.progress.Progress", "checkpoints.progress.lasting", "checkpoints.progress.read_progress",
    "checkpoints.progress.said",
    "checkpoints.progress.step_told", "checkpoints.prune.PruneReport",
    "checkpoints.prune.prune", "checkpoints.replicate.ReplicationReport", "checkpoints.replicate.missing_bytes",
    "checkpoints.retention.metric_of",
    "checkpoints.store.CheckpointStore", "checkpoints.store.ResumePoint",
    "images.gate.require_environment", "images.gate.require_image", "images.mirror.MirrorReport",
    "images.mirror.named_digest", "images.mirror.tree_digests", "images.plan.TagAction", "images.plan.attached_to",
    "images.reference.ImageReference", "images.report.RepositoryReport", "images.report.TagFate",
    "images.report.require_complete", "images.report.summary", "images.repository.RepositoryPlan",
    "images.repository.plan_repository", "images.sides.PARALLEL_TAGS",
    "registries.base.ImageRegistry", "registries.digest.label", "registries.http.HttpRegistry",
    "registries.limited.LimitedRegistry",
    "stores.http_pool.Origin", "stores.encrypted_cache.key_of", "stores.encrypted_cache.prefix_of",
    "stores.cache_room.list_blocks", "stores.cache_room.list_kept", "stores.cache_room.prefix_in",
    "stores.base.ObjectStore", "stores.base.list_data", "stores.limited.LimitedStore", "stores.rate.RateLimit",
    "stores.entries.read_copy", "stores.patience.AWAY_SECONDS", "stores.s3.open_store",
    "sync.leaving.TagRules", "sync.listing.Admit", "sync.manifest.load_record", "sync.manifest.manifest_key",
    "sync.manifest.verified_copies", "sync.parts.record_part", "sync.progress.Expect", "sync.progress.Moving",
    "sync.progress.OnProgress", "sync.progress.PROGRESS_SECONDS", "sync.progress.Paced", "sync.report.ObjectFate",
    "sync.report.ObjectOutcome", "sync.report.SyncReport", "sync.report.summary", "sync.shares.SHARE_BYTES",
    "sync.shares.Share", "sync.transfer.UnderWay", "sync.work.Route",
})  # fmt: skip
"""Words, reports, what opens, reads or clears one site, and checkpoints, whose methods that store are listed below."""
METHODS = frozenset({
    "adopt", "bring", "commit", "copy_blob", "mount_blob", "put", "put_blob", "put_manifest", "put_once", "receive",
})  # fmt: skip
"""Methods of stores, registries and checkpoint stores that store bytes."""
NAMES = frozenset(copier.rpartition(".")[2] for copier in COPIERS)
PROBING = ("preflight/sites.py", "commands/remote_reads.py", "commands/rights.py")
ONE_SITE_ONLY = {LIBRARY / name: {"put"} for name in PROBING}
"""Each writes a probe of its own to one site."""
CALLERS = [
    *(file for folder in ("runs", "commands", "preflight") for file in sorted((LIBRARY / folder).rglob("*.py"))),
    *(LIBRARY / name for name in ("__main__.py", "observe.py")),
    *sorted((ROOT / "plugins").rglob("*.py")),
    *sorted((ROOT / "dags").rglob("*.py")),
]


def called(tree: ast.AST) -> Iterator[tuple[str, ast.Call]]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Call):
            name = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
            yield name, node


def copies(tree: ast.AST) -> list[ast.Call]:
    """The calls of what copies; a function of the file's own that has such a name is another one."""
    own = {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)}
    return [call for name, call in called(tree) if name in (NAMES | METHODS) - own]


def behind_the_door(tree: ast.AST) -> set[ast.Call]:
    """The calls inside ``with open_route(...) as route`` whose two ends are those of that route."""
    found: set[ast.Call] = set()
    for block in ast.walk(tree):
        if not isinstance(block, ast.With) or [name for name, _ in called(block.items[0])] != ["open_route"]:
            continue
        found.update(call for call in copies(block) if ends(block, call) == ["destination", "source"])
    return found


def ends(block: ast.With, call: ast.Call) -> list[str]:
    """Which ends of the block's route the call is given, by itself or by a name that the block took from the route."""
    taken = {
        name.id: node.value
        for node in ast.walk(block)
        if isinstance(node, ast.Assign)
        for name in ast.walk(node.targets[0])
        if isinstance(name, ast.Name)
    }
    given = [*call.args[:2], *(word.value for word in call.keywords if word.arg in {"source", "destination"})]
    text = " ".join(ast.unparse(taken.get(getattr(value, "id", ""), value)) for value in given)
    route = ast.unparse(block.items[0].optional_vars or ast.Constant(None))
    if f"{route}.checkpoints(" in text:
        return ["destination", "source"]
    return [end for end in ("destination", "source") if f"{route}.{end}." in text]


def mentioned(tree: ast.AST) -> Iterator[str]:
    """What may copy and is imported, from wherever, called, or handed on as a value."""
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "spillway":
            for name in node.names:
                full = f"{node.module}.{name.name}".removeprefix("spillway.")
                if name.name in NAMES or (full.split(".")[0] in MOVERS and full not in HARMLESS):
                    yield full
        elif isinstance(node, ast.Import):
            yield from (name.name for name in node.names if name.name.split(".")[0] == "spillway")
        elif isinstance(node, ast.Attribute) and node.attr in NAMES | METHODS:
            yield node.attr


def test_nothing_copies_between_sites_but_behind_the_door() -> None:
    elsewhere = {
        f"{file.relative_to(ROOT)}: {name}"
        for file in CALLERS
        for name in mentioned(ast.parse(file.read_text()))
        if name not in (COPIERS if file in DOOR else ONE_SITE_ONLY.get(file, set()))
    }
    assert not elsewhere


def test_whatever_copies_gets_both_ends_from_the_route_that_was_opened_for_it() -> None:
    trees = [ast.parse(file.read_text()) for file in DOOR]
    every = [call for tree in trees for call in copies(tree)]
    assert {ast.unparse(call.func) for call in every} == NAMES
    behind = {call for tree in trees for call in behind_the_door(tree)}
    assert not {ast.unparse(call) for call in set(every) - behind}


def test_not_even_behind_the_door_is_what_copies_known_by_another_name() -> None:
    aliased = {
        f"{file.name}: {name.name} as {name.asname}"
        for file in DOOR
        for node in ast.walk(ast.parse(file.read_text()))
        if isinstance(node, ast.ImportFrom)
        for name in node.names
        if name.asname and name.name in NAMES
    }
    assert not aliased


def test_the_check_sees_a_copy_past_the_door() -> None:
    past = """
with open_route(services, shipment) as route:
    sync_dataset(source=route.source.datasets, destination=services.site("cloud").datasets)
    mirror(route.source.registry, route.destination.registry)
here, there = stores
replicate(here, there)
"""
    tree = ast.parse(past)
    assert [ast.unparse(call.func) for call in copies(tree) if call in behind_the_door(tree)] == ["mirror"]
    assert len(copies(tree)) == 3
    handed_on = """
from spillway.images.mirror import mirror as quietly
later = partial(store.put, "key")
"""
    assert list(mentioned(ast.parse(handed_on))) == ["images.mirror.mirror", "put"]
    below = """
from spillway import sync
from spillway.runs.moving_checkpoints import replicate
from spillway.sync.transfer import Transfer
from spillway.sync.work import Work, copy, finish
from spillway.sync.report import SyncReport
import spillway.sync.drafts
for copied in Transfer(site("onprem").datasets, site("cloud").datasets).run(wanted):
    CheckpointStore(site("cloud").checkpoints, run).bring(step=2, attempt=1, rank=0, parts=parts)
"""
    assert sorted(mentioned(ast.parse(below))) == [
        "bring", "runs.moving_checkpoints.replicate", "spillway.sync.drafts", "sync", "sync.transfer.Transfer",
        "sync.work.Work", "sync.work.copy", "sync.work.finish",
    ]  # fmt: skip
