"""The loss curve of a run, from its committed manifests alone."""

from __future__ import annotations

from collections.abc import Iterable

from spillway.model import CheckpointManifest

LOSS = "loss"
"""The key of a manifest's metrics that holds the losses since the commit before it, as [[step, loss], ...]."""


def loss_curve(manifests: Iterable[CheckpointManifest]) -> tuple[tuple[int, float], ...]:
    """(step, loss) pairs by step, up to the newest committed step.

    Where two attempts computed a step, the later attempt's value counts: it is the one that the run was continued from.
    """
    ordered = sorted(manifests, key=lambda manifest: (manifest.attempt, manifest.step))
    losses = {int(step): float(loss) for manifest in ordered for step, loss in manifest.metrics.get(LOSS, ())}
    last_step = ordered[-1].step if ordered else 0
    return tuple((step, losses[step]) for step in sorted(losses) if step <= last_step)
