"""The committed steps of a run from one site to another.

Each goes through ``open_route``, and nothing outside the modules of the door may call what copies
(``tests/test_routes.py``).
"""

from __future__ import annotations

from functools import partial

from spillway.checkpoints.replicate import ReplicationReport, replicate
from spillway.errors.counts import counted
from spillway.ledger import TransferKind, TransferOutcome
from spillway.model import Attempt
from spillway.runs.routes import Shipment, open_route
from spillway.runs.services import Say, Services
from spillway.sync.progress import PROGRESS_SECONDS, OnProgress, Paced


def copy_checkpoints(
    services: Services,
    attempt: Attempt,
    source: str,
    target: str,
    say: Say,
    on_progress: OnProgress | None = None,
) -> ReplicationReport:
    """Replicate the committed steps of the attempt's run; a line in the transfer log, none where nothing was sent.

    Args:
        on_progress: given how far the parts are, those of later steps not yet counted; without it ``say`` is told now
            and then.
    Raises:
        ResidencyRefused: the target may not store what was made from data of this tier.
    """
    shipment = Shipment(
        kind=TransferKind.CHECKPOINT,
        name=attempt.run,
        tier=services.tier_of(attempt.job),
        source=source,
        destination=target,
        run=attempt.run,
    )
    with open_route(services, shipment) as route:
        here, there = route.checkpoints(attempt.run)
        paced = Paced(partial(_tell, say, attempt.run, target), every_seconds=PROGRESS_SECONDS)
        report = replicate(here, there, route.follow(on_progress or paced), before_change=route.begin)
        if report.steps_copied or route.moved_bytes:
            route.record(
                TransferOutcome.COPIED if report.steps_copied else TransferOutcome.FAILED,
                name=f"{attempt.run} to step {report.newest_step}" if report.steps_copied else None,
                size_bytes=route.moved_bytes,
                reason=_left_out(report, target),
            )
    for problem in report.rejected:
        say(f"not copied from {source} to {target}: {problem}")
    if report.steps_copied:
        left = "" if report.bytes_copied else ": all their parts were there already"
        moved = f"{counted(report.bytes_copied, 'byte')}{left}"
        say(
            f"checkpoints of {attempt.run}: {counted(report.steps_copied, 'step')} copied from {source} to {target}, "
            f"newest {report.newest_step}, {moved}"
        )
    return report


def _tell(say: Say, run: str, target: str, line: str) -> None:
    say(f"checkpoints of {run} to {target}: {line}")


def _left_out(report: ReplicationReport, target: str) -> str | None:
    """Why a step was not copied; None where every one was."""
    if report.rejected:
        return report.rejected[0]
    return None if report.owner is None else f"attempt {report.owner} owns the run at '{target}'"
