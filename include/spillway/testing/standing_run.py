"""A run that trains as far as the ledger and its store know, without a pod: for what is asked of a run that trains."""

from __future__ import annotations

from datetime import UTC, datetime

from spillway.checkpoints.progress import Progress, write_progress
from spillway.model import Attempt, AttemptState
from spillway.testing.carried_run import Carried
from spillway.testing.checkpoints import commit_step


def standing(run: Carried, committed: tuple[int, ...] = (2, 4)) -> Attempt:
    """An attempt on premises at step 4, with these steps committed, that the ledger knows as running; it has no pod."""
    store = run.checkpoints("onprem")
    store.fence(1)
    for step in committed:
        commit_step(store, step)
    at, durable = datetime.now(UTC).isoformat(), max(committed, default=None)
    progress = Progress(first_step=1, step=4, total_steps=100, loss=None, at=at, durable_step=durable)
    write_progress(store.store, run.run, 1, progress)
    digest = run.services.site("onprem").registry.resolve("train", run.job.image.partition(":")[2])
    ledger = run.services.ledger
    staged = ledger.advance(run.place(), AttemptState.STAGED, image_digest=digest)
    launched = ledger.advance(staged, AttemptState.LAUNCHED)
    return ledger.advance(
        launched,
        AttemptState.RUNNING,
        started_at=launched.reserved_at,
        first_step=1,
        last_step=4,
        committed_step=durable,
    )
