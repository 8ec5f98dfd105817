"""What a run has measured: the manifests of its committed steps, and those that retention left of pruned ones."""

from __future__ import annotations

from spillway.checkpoints.layout import age_order_of, decode_manifest, pruned_key
from spillway.checkpoints.parts import at_once
from spillway.checkpoints.store import CheckpointStore
from spillway.errors import CorruptCheckpoint, ForeignCheckpoint
from spillway.model import CheckpointManifest
from spillway.stores.base import read_all


def pruned_steps(checkpoints: CheckpointStore) -> frozenset[tuple[int, int]]:
    """(attempt, step) of every step that was committed and taken out of use."""
    folder = f"{checkpoints.run}/pruned/"
    orders = (age_order_of(info.key, folder) for info in checkpoints.store.list(folder))
    return frozenset(order for order in orders if order is not None)


def pruned_manifests(checkpoints: CheckpointStore) -> tuple[tuple[CheckpointManifest, ...], tuple[str, ...]]:
    """What is left of every pruned step, oldest first, and what is wrong with those that cannot be believed."""

    def read(order: tuple[int, int]) -> CheckpointManifest | str:
        attempt, step = order
        try:
            body = read_all(checkpoints.store, pruned_key(checkpoints.run, step, attempt))
            return decode_manifest(checkpoints.run, step, attempt, body)
        except (CorruptCheckpoint, ForeignCheckpoint) as problem:
            return str(problem)

    found = at_once(read, sorted(pruned_steps(checkpoints)))
    return (
        tuple(manifest for manifest in found if not isinstance(manifest, str)),
        tuple(problem for problem in found if isinstance(problem, str)),
    )


def copy_pruned(source: CheckpointStore, destination: CheckpointStore) -> None:
    """Bring what is left of the source's pruned steps to the destination, so that its loss curve has no gap."""
    there = destination.head()
    committed = {entry.age_order for entry in there.committed} if there else set()

    def copy(order: tuple[int, int]) -> None:
        key = pruned_key(source.run, step=order[1], attempt=order[0])
        destination.put_once(key, read_all(source.store, key))

    at_once(copy, sorted(pruned_steps(source) - pruned_steps(destination) - committed))
