"""The checks that the evidence must pass. Each one looks at the stores and registries, not at what the run says."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from spillway.checkpoints.store import CheckpointStore
from spillway.errors import CheckpointConflict, Fenced, SpillwayError
from spillway.runs.services import Services
from spillway.sandbox.sample_data import digits_shards
from spillway.sandbox.sample_image import REPOSITORY
from spillway.sandbox.sites import SHARDS
from spillway.stores.base import read_all


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """One mechanism and whether it held; ``detail`` says what was seen."""

    name: str
    ok: bool
    detail: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    """What the story noted while it went on, beside the run's own evidence."""

    newest_step_at_loss: int | None
    zombie_refused: bool | None
    image_digest: str | None
    reference_loss: tuple[tuple[int, float], ...]
    total_steps: int


def check_all(services: Services, evidence: Mapping[str, Any], facts: Facts) -> tuple[Check, ...]:
    """Every check, in the order in which the mechanisms are needed; one that cannot be made has failed."""
    found = []
    for name, check in CHECKS.items():
        try:
            ok, detail = check(services, evidence, facts)
        except (SpillwayError, KeyError, IndexError, StopIteration) as problem:
            ok, detail = False, f"{type(problem).__name__}: {problem}"
        found.append(Check(name=name, ok=ok, detail=detail))
    return tuple(found)


def _image(services: Services, evidence: Mapping[str, Any], facts: Facts) -> tuple[bool, str]:
    """Both sites hold the same digest, every blob is what its digest promises, every pod ran it."""
    for name in services.configuration.clusters:
        registry = services.site(name).registry
        digest = str(facts.image_digest)
        manifest = json.loads(registry.manifest(REPOSITORY, digest).body)
        for blob in (manifest["config"], *manifest["layers"]):
            seen = hashlib.sha256()
            for chunk in registry.read_blob(REPOSITORY, blob["digest"]):
                seen.update(chunk)
            if f"sha256:{seen.hexdigest()}" != blob["digest"]:
                return False, f"{name}: blob {blob['digest']} has other bytes"
    used = {attempt["image_digest"] for attempt in evidence["attempts"]}
    return used == {facts.image_digest}, f"pods ran {', '.join(sorted(map(str, used)))}"


def _data(services: Services, evidence: Mapping[str, Any], facts: Facts) -> tuple[bool, str]:
    """Every site that trained holds exactly the bytes that were uploaded."""
    for site in sorted({attempt["cluster"] for attempt in evidence["attempts"]}):
        store = services.site(site).datasets
        for name, body in digits_shards(SHARDS).items():
            if read_all(store, f"digits/{name}") != body:
                return False, f"{site}: digits/{name} is not what was uploaded"
    return True, f"{SHARDS} objects are identical at every site that trained"


def _checkpoint(services: Services, evidence: Mapping[str, Any], facts: Facts) -> tuple[bool, str]:
    """The second attempt resumed from the newest step that the first one had committed, and all steps are valid."""
    resumed = evidence["attempts"][1]["resumed_from_step"]
    if resumed is not None and resumed != facts.newest_step_at_loss:
        return False, f"resumed from step {resumed}, the newest committed one was {facts.newest_step_at_loss}"
    site = evidence["attempts"][-1]["cluster"]
    store = CheckpointStore(services.site(site).checkpoints, evidence["run"])
    manifests = store.manifests()
    for manifest in manifests:
        for part in manifest.parts:
            store.load(manifest, part.name)
    return True, f"{len(manifests)} committed steps at {site}, every part matches its sha256"


def _fence(services: Services, evidence: Mapping[str, Any], facts: Facts) -> tuple[bool, str]:
    """A commit in the name of the first attempt was refused while the second one ran."""
    if facts.zombie_refused is None:
        return False, "no second attempt ran, so the fence could not be tried"
    return facts.zombie_refused, "a late commit of attempt 1 was " + ("refused" if facts.zombie_refused else "accepted")


def _resume(services: Services, evidence: Mapping[str, Any], facts: Facts) -> tuple[bool, str]:
    """The second attempt began with exactly the next step, the last one ended with the last."""
    second, last = evidence["attempts"][1], evidence["attempts"][-1]
    if second["resumed_from_step"] is None:
        return False, f"the second attempt began with {_step(second['first_step'])} although steps were committed"
    exact = second["first_step"] == second["resumed_from_step"] + 1 and last["last_step"] == facts.total_steps
    began = f"resumed from {second['resumed_from_step']}, began with {_step(second['first_step'])}"
    text = f"{began}, ended with {_step(last['last_step'])}"
    return exact and last["outcome"] == "succeeded", text


def _step(number: int | None) -> str:
    return "no step" if number is None else str(number)


def _loss(services: Services, evidence: Mapping[str, Any], facts: Facts) -> tuple[bool, str]:
    """The loss of every step equals the undisturbed run's to the bit."""
    if evidence["loss"] is None:
        return False, f"unknown: {evidence['unknown']['loss']}"
    seen = tuple((entry["step"], entry["loss"]) for entry in evidence["loss"])
    if seen == facts.reference_loss:
        return True, f"{len(seen)} steps, identical to the undisturbed run"
    pairs = zip(seen, facts.reference_loss, strict=False)
    different = [step for (step, loss), (_, wanted) in pairs if loss != wanted]
    where = f"first difference at step {different[0]}" if different else "no difference in these"
    return False, f"{len(seen)} of {len(facts.reference_loss)} steps; {where}"


CHECKS: dict[str, Callable[[Services, Mapping[str, Any], Facts], tuple[bool, str]]] = {
    "image": _image,
    "data": _data,
    "checkpoint": _checkpoint,
    "fence": _fence,
    "resume": _resume,
    "loss": _loss,
}


def zombie_is_refused(services: Services, run: str, step: int) -> bool:
    """Try to commit other bytes in the name of the first attempt, at every site, as a pod that wakes too late would."""
    for name in services.configuration.clusters:
        store = CheckpointStore(services.site(name).checkpoints, run)
        if store.head() is None:
            continue
        try:
            store.commit(
                step=step,
                attempt=1,
                world_size=1,
                parts={"weights": b"late"},
                data_cursor={},
                metrics={},
                now=datetime.now(UTC),
            )
        except Fenced:
            continue
        except CheckpointConflict:
            return False
        return False
    return True
