"""What a run did, told from the ledger and the checkpoint stores alone."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from spillway.checkpoints.curve import loss_curve
from spillway.checkpoints.history import pruned_manifests
from spillway.checkpoints.layout import CommittedStep
from spillway.checkpoints.progress import Progress, read_progress
from spillway.checkpoints.store import CheckpointStore
from spillway.codec import encode
from spillway.errors import CorruptCheckpoint, ForeignCheckpoint, SpillwayError
from spillway.model import Attempt, CheckpointManifest, Move
from spillway.runs.explaining import again
from spillway.runs.migrating import story
from spillway.runs.services import Services

_MOVE_FIELDS = (
    "number", "attempt", "to_attempt", "target", "state", "reason", "problem", "estimate", "ordered_at", "draining_at",
    "resumed_at", "resumed_step",
)  # fmt: skip
_READ_FROM_STORE = ("checkpoints", "loss", "progress")


def evidence(services: Services, run: str) -> dict[str, Any]:
    """Plain JSON: attempts, moves, images by site, progress, checkpoints, loss, placements and costs of a run.

    ``cancelled`` is why a person ended it, null unless one did and nobody has asked for it since. ``checkpoints`` and
    ``loss`` are of the store of the newest attempt, the losses of pruned steps included; steps that an older attempt
    trained past the resume point of a later one are not part of the loss curve. ``progress`` is of the newest attempt.
    ``unknown`` says of each of the three why it is null, or what it lacks, where the store could not be read.
    """
    attempts = services.ledger.attempts(run)
    return {
        "run": run,
        "cancelled": services.ledger.cancel_reason(run),
        "attempts": [_attempt(attempt) for attempt in attempts],
        "moves": [_move(move) for move in services.ledger.moves(run)],
        "images": {a.candidate.cluster: a.image_digest for a in attempts if a.image_digest},
        **_committed(services, attempts),
        "placements": [encode(again(r).record) for r in services.ledger.decisions(run) if r.attempt is not None],
        "cost": [encode(entry) for entry in services.ledger.costs(run)],
    }


def timeline(found: Mapping[str, Any]) -> str:
    """A line an attempt, a line a move, and what all of it cost."""
    lines = [f"run {found['run']}"]
    for number, attempt in enumerate(found["attempts"], start=1):
        resumed = attempt["resumed_from_step"]
        begin = "from the start" if resumed is None else f"resumed from step {resumed}"
        first, last = attempt["first_step"], attempt["last_step"]
        steps = "no step" if first is None else f"steps {first}..{last}"
        lines.append(
            f"  {number}. {attempt['cluster']}/{attempt['node']} {begin}, {steps}: {attempt['outcome']}"
            f" ({attempt['reason']})"
        )
    lines += [f"  {move['story']}" for move in found["moves"]]
    total = sum(float(entry["amount"]) for entry in found["cost"])
    known = found["checkpoints"]
    committed = "unknown" if known is None else str(len(known))
    lines.append(f"  {committed} checkpoints, cost {total:.4f}")
    lines += [f"  {field}: {problem}" for field, problem in found["unknown"].items()]
    return "\n".join(lines)


def _attempt(attempt: Attempt) -> dict[str, Any]:
    return {
        "cluster": attempt.candidate.cluster,
        "node": attempt.node,
        "pod_uid": attempt.pod_uid,
        "image_digest": attempt.image_digest,
        "resumed_from_step": attempt.resumed_from_step,
        "first_step": attempt.first_step,
        "last_step": attempt.last_step,
        "outcome": encode(attempt.outcome),
        "reason": attempt.reason,
        "started_at": encode(attempt.started_at),
        "ended_at": encode(attempt.ended_at),
    }


def _move(move: Move) -> dict[str, Any]:
    """Durations are seconds."""
    return {
        **{field: encode(getattr(move, field)) for field in _MOVE_FIELDS},
        "took_seconds": encode(move.took),
        "paused_seconds": encode(move.paused),
        "estimated_seconds": encode(move.estimate.known),
        "story": story(move),
    }


def _committed(services: Services, attempts: tuple[Attempt, ...]) -> dict[str, Any]:
    """The committed steps at the newest attempt's store, oldest first, their losses, and what of both is unknown."""
    if not attempts:
        return {"checkpoints": [], "loss": [], "progress": None, "unknown": {}}
    site = services.store_site(attempts[-1].job, attempts[-1].candidate.cluster)
    manifests: dict[CommittedStep, CheckpointManifest] = {}
    damaged: list[str] = []
    try:
        store = CheckpointStore(services.site(site).checkpoints, attempts[-1].run)
        progress = read_progress(store.store, attempts[-1].run, attempts[-1].number)
        head = store.head()
        entries = head.committed if head else ()
        pruned, problems = pruned_manifests(store)
        damaged += problems
        for entry in entries:
            try:
                manifests[entry] = store.manifest(entry)
            except (CorruptCheckpoint, ForeignCheckpoint) as problem:
                damaged.append(str(problem))
    except SpillwayError as problem:
        return {**dict.fromkeys(_READ_FROM_STORE), "unknown": dict.fromkeys(_READ_FROM_STORE, str(problem))}
    return {
        "checkpoints": [_checkpoint(entry, manifests.get(entry), site) for entry in entries],
        "loss": [{"step": step, "loss": loss} for step, loss in loss_curve([*pruned, *manifests.values()])],
        "progress": _progress(progress),
        "unknown": dict.fromkeys(("checkpoints", "loss"), "; ".join(damaged)) if damaged else {},
    }


def _progress(progress: Progress | None) -> dict[str, Any] | None:
    """Durations are seconds."""
    return None if progress is None else {**encode(progress), "left_seconds": encode(progress.left)}


def _checkpoint(entry: CommittedStep, manifest: CheckpointManifest | None, site: str) -> dict[str, Any]:
    return {
        "step": entry.step,
        "attempt": entry.attempt,
        "bytes": None if manifest is None else manifest.size_bytes,
        "manifest_sha256": entry.sha256,
        "store": site,
    }
