"""Those that give way to an attempt, from the decision that placed it until they have ended.

Its reservation holds what they leave. Once it is staged they are told, and whoever carries them asks their pods to end,
as for a move; they are placed again like any run that lost its place. Nobody waits for one that has ended, however.
"""

from __future__ import annotations

from spillway.model import Attempt, AttemptState, Outcome
from spillway.placement.context import index
from spillway.placement.preemption import still_needed
from spillway.runs.admission import snapshot
from spillway.runs.services import Services


def make_room(services: Services, attempt: Attempt) -> Attempt:
    """The attempt with those that are asked to end for it, and still have to.

    It is settled where its place does not fit any more, whoever may end: the run is placed anew with the next look, and
    nobody has ended in vain.
    """
    if attempt.state is not AttemptState.STAGED or not attempt.displaces or attempt.displacing_at is not None:
        return attempt
    job, policy, now = attempt.job, services.configuration.policy, services.clock()
    asking = services.ledger.displace(
        attempt,
        now=now,
        snapshot=snapshot(services, job),
        policy=policy,
        needed=lambda whole, asked: still_needed(job, attempt.candidate, asked, index(whole, policy)),
    )
    if asking is None:
        return services.ledger.settle(
            attempt, Outcome.MIGRATED, "its place does not fit any more, whoever gives way", now
        )
    return asking


def awaited(services: Services, attempt: Attempt) -> tuple[Attempt, ...]:
    """Those that have not ended yet; the lease of the attempt that waits for them is renewed."""
    services.ledger.renew_lease(attempt, services.clock() + services.configuration.runs.lease)
    found = (services.ledger.attempt_by_label(label) for label in attempt.displaces)
    return tuple(other for other in found if other is not None and other.outcome is None)


def placed_anew(attempt: Attempt) -> str:
    """That the run waits for another place than this attempt's, in words."""
    return f"attempt {attempt.number} of {attempt.run} is placed anew: {attempt.reason}"


def waits_for(attempt: Attempt, others: tuple[Attempt, ...]) -> str:
    """That the attempt waits for these, in words."""
    told = ", ".join(f"{other.label} ({other.job.priority})" for other in others)
    return f"attempt {attempt.number} of {attempt.run} waits for {told} to give way"
