"""What a run did, told from the ledger and the checkpoint stores alone."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from spillway.checkpoints.curve import loss_curve
from spillway.checkpoints.store import CheckpointStore
from spillway.codec import encode
from spillway.errors import SpillwayError
from spillway.model import Attempt, CheckpointManifest
from spillway.runs.services import Services


def evidence(services: Services, run: str) -> dict[str, Any]:
    """Plain JSON: attempts, images by site, checkpoints, loss, placements and costs of a run.

    ``checkpoints`` and ``loss`` are of the store of the newest attempt; steps that an older attempt trained past the
    resume point of a later one are not part of the loss curve.
    """
    attempts = services.ledger.attempts(run)
    steps = _committed(services, attempts)
    return {
        "run": run,
        "attempts": [_attempt(attempt) for attempt in attempts],
        "images": {a.candidate.cluster: a.image_digest for a in attempts if a.image_digest},
        "checkpoints": [
            {
                "step": manifest.step,
                "attempt": manifest.attempt,
                "bytes": manifest.size_bytes,
                "manifest_sha256": sha256,
                "store": store,
            }
            for manifest, sha256, store in steps
        ],
        "loss": [{"step": step, "loss": loss} for step, loss in loss_curve(manifest for manifest, _, _ in steps)],
        "placements": [encode(record) for record in services.ledger.decisions(run) if record.attempt is not None],
        "cost": [encode(entry) for entry in services.ledger.costs(run)],
    }


def timeline(found: Mapping[str, Any]) -> str:
    """A line an attempt, and what all of them cost."""
    lines = [f"run {found['run']}"]
    for number, attempt in enumerate(found["attempts"], start=1):
        resumed = attempt["resumed_from_step"]
        begin = "from the start" if resumed is None else f"resumed from step {resumed}"
        steps = f"steps {attempt['first_step']}..{attempt['last_step']}"
        lines.append(
            f"  {number}. {attempt['cluster']}/{attempt['node']} {begin}, {steps}: {attempt['outcome']}"
            f" ({attempt['reason']})"
        )
    total = sum(float(entry["amount"]) for entry in found["cost"])
    lines.append(f"  {len(found['checkpoints'])} checkpoints, cost {total:.4f}")
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


def _committed(services: Services, attempts: tuple[Attempt, ...]) -> list[tuple[CheckpointManifest, str, str]]:
    """The committed steps at the newest attempt's store, oldest first, each with its manifest's sha256."""
    if not attempts:
        return []
    site = attempts[-1].candidate.cluster
    store = CheckpointStore(services.site(site).checkpoints, attempts[-1].run)
    head = store.head()
    found = []
    for entry in head.committed if head else ():
        try:
            found.append((store.manifest(entry), entry.sha256, site))
        except SpillwayError:
            continue
    return found
