"""Apply the declared retention to the checkpoints of runs, at every site that has them."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import timedelta

from spillway.checkpoints.layout import CommittedStep, Head
from spillway.checkpoints.prune import PruneReport, prune
from spillway.errors import SpillwayError, Unreachable
from spillway.errors.counts import counted
from spillway.model import Attempt, AttemptState, Retention
from spillway.runs.services import Say, Services

LATELY = timedelta(hours=48)
"""How long after its end a run is still looked at: its last steps grow old, a site that was away comes back."""

KEEP_ALL = Retention(minimum_age=timedelta.max)
"""Retention where none is declared: only what belongs to no committed step is deleted."""


def apply_retention(services: Services, say: Say, *, dry_run: bool = False) -> tuple[str, ...]:
    """Prune every open or recent run where retention is declared.

    A site that does not answer is left out and named, and not asked again in this call.

    Args:
        dry_run: say what would be deleted, and delete nothing.
    Returns:
        What failed, a line each.
    """
    if services.configuration.retention is None:
        return ()
    failed: list[str] = []
    silent: dict[str, Unreachable] = {}
    for attempt in services.ledger.recent_attempts(services.clock() - LATELY):
        for site, found in prune_run(services, attempt.run, dry_run=dry_run, silent=silent).items():
            if isinstance(found, SpillwayError):
                failed.append(f"{attempt.run}: not pruned at {site}: {found}")
                say(failed[-1])
            elif told := summary(found, dry_run=dry_run):
                say(f"checkpoints of {attempt.run} at {site}: {told}")
    return tuple(failed)


def prune_run(
    services: Services,
    run: str,
    retention: Retention | None = None,
    *,
    dry_run: bool = False,
    silent: dict[str, Unreachable] | None = None,
) -> dict[str, PruneReport | SpillwayError]:
    """What pruning the run did at each site, or why it did nothing there.

    Args:
        retention: instead of the declared one. Where neither is given every committed step stays.
        silent: sites that are not asked again, and why; those that turn out to be silent are added.
    """
    rules = retention or services.configuration.retention or KEEP_ALL
    silent = {} if silent is None else silent
    found: dict[str, PruneReport | SpillwayError] = {}
    for site, checkpoints in services.checkpoint_stores(run).items():
        try:
            if site in silent:
                raise silent[site]
            found[site] = prune(
                checkpoints,
                rules,
                now=services.clock(),
                pins=lambda head: resumed_from(head, services.ledger.attempts(run)),
                dry_run=dry_run,
            )
        except Unreachable as problem:
            found[site] = silent[site] = problem
        except SpillwayError as problem:
            found[site] = problem
    return found


def resumed_from(head: Head, attempts: Iterable[Attempt]) -> list[CommittedStep]:
    """The steps that attempts which have not ended resume from: their pods may be reading them."""
    return [
        entry
        for attempt in attempts
        if attempt.state is not AttemptState.SETTLED and attempt.resumed_from_step is not None
        for entry in head.committed
        if entry.step == attempt.resumed_from_step and entry.attempt < attempt.number
    ]


def summary(report: PruneReport, *, dry_run: bool = False) -> str:
    """What was deleted, in words; empty where nothing was."""
    steps = [str(entry.step) for entry in report.pruned]
    swept = report.swept
    told = [f"steps {', '.join(steps)} taken out of use"] if steps else []
    if swept.parts or swept.others:
        size = counted(swept.size_bytes, "byte")
        told.append(f"{counted(swept.parts, 'part')} of {size} and {swept.others} other left-overs deleted")
    if swept.uploads:
        told.append(f"{len(swept.uploads)} unfinished uploads aborted: {', '.join(swept.uploads)}")
    if swept.uploads_unknown:
        told.append(f"which uploads are unfinished is not known: {swept.uploads_unknown}")
    if swept.late:
        told.append(f"{swept.late} parts left, the store answers too slowly to delete them safely")
    if swept.busy:
        told.append("another prune is at work there")
    would = "would be: " if dry_run and told else ""
    return would + "; ".join(told)
