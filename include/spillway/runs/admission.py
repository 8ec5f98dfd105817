"""Where a run goes next: observe outside, decide and reserve inside one ledger transaction."""

from __future__ import annotations

import dataclasses
import logging
from datetime import datetime, timedelta

from spillway.errors import SpillwayError
from spillway.leases import may_expire
from spillway.losses import VerdictKind
from spillway.model import (
    Attempt,
    AttemptState,
    CoolDown,
    JobSpec,
    PlacementDecision,
    PodPhase,
    Reservation,
    Snapshot,
)
from spillway.observe import observe
from spillway.placement.policy import place
from spillway.runs.services import Services
from spillway.runs.settling import Ended, settle, settle_over
from spillway.sync.manifest import verified_datasets

OBSERVATION_DEADLINE = timedelta(seconds=20)

_log = logging.getLogger(__name__)


def snapshot(services: Services) -> Snapshot:
    """All clusters as they are now, with what is verified to be present at each; reservations are added later.

    A cluster that could not be seen is opened anew the next time: its credentials may have changed.
    """
    seen = observe(
        services.clients(),
        now=services.clock(),
        deadline=OBSERVATION_DEADLINE,
        declared=services.configuration.clusters,
        datasets_present=_datasets_present(services),
    )
    for name in seen.unreachable:
        services.forget(name)
    return seen


def _datasets_present(services: Services) -> frozenset[tuple[str, str]]:
    present = {(dataset.name, dataset.home) for dataset in services.configuration.datasets.values()}
    for name in services.configuration.clusters:
        try:
            present |= {(dataset, name) for dataset in verified_datasets(services.site(name).datasets)}
        except SpillwayError:
            continue
    return frozenset(present)


def decide(services: Services, job: JobSpec, seen: Snapshot) -> PlacementDecision:
    """The decision for a job with the reservations and cool-downs of this moment; nothing is written."""
    now = services.clock()
    whole = _with_promises(seen, services.ledger.reservations(), services.ledger.cool_downs(now))
    return place(job, whole, services.configuration.policy)


def admit(services: Services, run: str, job: JobSpec) -> tuple[Attempt | None, PlacementDecision]:
    """Reserve the best place for the run's next attempt; the run's open attempt if it has one.

    Returns:
        (None, decision) where nothing fits now; ``decision.possible`` tells waiting from never.
    """
    seen = snapshot(services)
    expire_leases(services, seen)

    def decide_inside(reservations: tuple[Reservation, ...], cool_downs: tuple[CoolDown, ...]) -> PlacementDecision:
        return place(job, _with_promises(seen, reservations, cool_downs), services.configuration.policy)

    return services.ledger.reserve(
        run,
        job,
        now=services.clock(),
        lease=services.configuration.runs.lease,
        snapshot=seen,
        policy=services.configuration.policy,
        decide=decide_inside,
    )


def expire_leases(services: Services, seen: Snapshot) -> tuple[Attempt, ...]:
    """Close the attempts that nobody looks after and of which no pod runs; an unreachable cluster keeps its own.

    A pod that has ended in the meantime decides how its attempt ended.
    """
    now = services.clock()
    over = [attempt for attempt in services.ledger.expired(now) if may_expire(attempt, seen)]
    return tuple(expired for attempt in over if (expired := _expire(services, attempt, now)) is not None)


def _expire(services: Services, attempt: Attempt, now: datetime) -> Attempt | None:
    """The settled attempt; None where that could not be done now, which must not stop whoever asks for a place."""
    try:
        if attempt.state in {AttemptState.RESERVED, AttemptState.STAGED}:
            return services.ledger.expire(attempt, now)
        pod = services.site(attempt.candidate.cluster).client.state(attempt.label)
        if pod.phase is not PodPhase.GONE:
            return settle_over(services, attempt, pod)
        reason = f"its lease ended at {attempt.lease_expires_at.isoformat()}, nobody renewed it and its pod is gone"
        return settle(services, attempt, Ended(kind=VerdictKind.PREEMPTED, reason=reason))
    except SpillwayError as problem:
        _log.warning("the lease of %s is over, closing it failed: %s", attempt.label, problem)
        return None


def _with_promises(seen: Snapshot, reservations: tuple[Reservation, ...], cool_downs: tuple[CoolDown, ...]) -> Snapshot:
    return dataclasses.replace(seen, reservations=reservations, cool_downs=cool_downs)
