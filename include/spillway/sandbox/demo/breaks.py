"""Break exactly one mechanism, from outside: nothing in the product knows of it, and the proof must notice.

image       a layer in the on-premises registry is not what its digest promises
data        the dataset changes between the attempts
checkpoint  the newest committed checkpoint is damaged before the node is lost
fence       the run's HEAD is handed back to the first attempt while the second one runs
resume      what the first attempt committed is gone when the second one starts
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass

from spillway.checkpoints.layout import head_key, part_key
from spillway.checkpoints.store import CheckpointStore
from spillway.runs.services import Services
from spillway.sandbox.sample_image import REPOSITORY, TAG
from spillway.sandbox.settings import SandboxSettings
from spillway.stores.base import ObjectStore, read_all

BREAKS = ("image", "data", "checkpoint", "fence", "resume")


@dataclass(frozen=True, slots=True, kw_only=True)
class Scene:
    """What there is to break."""

    settings: SandboxSettings
    services: Services
    run: str = ""


def image(scene: Scene) -> None:
    """Flip one byte of a layer where the on-premises registry keeps it."""
    registry = scene.services.site("onprem").registry
    digest = registry.resolve(REPOSITORY, TAG)
    layers = json.loads(registry.manifest(REPOSITORY, str(digest)).body)["layers"]
    layer = layers[-1]["digest"].removeprefix("sha256:")
    file = next((scene.settings.state / "onprem" / "registry").rglob(f"sha256/{layer[:2]}/{layer}/data"))
    with file.open("r+b") as blob:
        blob.seek(file.stat().st_size // 2)
        byte = blob.read(1)
        blob.seek(-1, 1)
        blob.write(bytes([byte[0] ^ 0xFF]))


def data(scene: Scene) -> None:
    """Relabel every image of the first shard at the dataset's home."""
    store = scene.services.site("onprem").datasets
    key = "digits/shard-000.csv"
    lines = read_all(store, key).decode().splitlines()
    changed = "\n".join(f"{line.rpartition(',')[0]},0" for line in lines).encode() + b"\n"
    store.put(key, changed, size_bytes=len(changed))


def checkpoint(scene: Scene) -> None:
    """Overwrite a part of the newest committed step."""
    bucket = scene.services.site("onprem").checkpoints
    store = CheckpointStore(bucket, scene.run)
    head = store.head()
    assert head is not None and head.newest is not None
    part = store.manifest(head.newest).parts[0]
    garbage = b"\0" * part.size_bytes
    bucket.put(part_key(scene.run, part.sha256), garbage, size_bytes=len(garbage))


def fence(scene: Scene) -> None:
    """Write a HEAD that names the first attempt as the owner again."""
    bucket = scene.services.site("cloud").checkpoints
    head = json.loads(read_all(bucket, head_key(scene.run)))
    body = json.dumps(head | {"attempt": 1}).encode()
    bucket.put(head_key(scene.run), body, size_bytes=len(body))


def resume(scene: Scene) -> None:
    """Delete all that the run has committed, at both sites."""
    for site in ("onprem", "cloud"):
        bucket: ObjectStore = scene.services.site(site).checkpoints
        bucket.delete([info.key for info in bucket.list(f"{scene.run}/")])


BEFORE_START: dict[str, Callable[[Scene], None]] = {"image": image}
WHILE_FIRST_RUNS: dict[str, Callable[[Scene], None]] = {"data": data}
AFTER_FIRST_IS_LOST: dict[str, Callable[[Scene], None]] = {"checkpoint": checkpoint, "resume": resume}
WHILE_SECOND_RUNS: dict[str, Callable[[Scene], None]] = {"fence": fence}
