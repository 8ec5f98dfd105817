"""Where a run goes next: observe outside, decide and reserve inside one ledger transaction."""

from __future__ import annotations

import dataclasses
from datetime import timedelta

from spillway.errors import SpillwayError
from spillway.leases import may_expire
from spillway.model import Attempt, CoolDown, JobSpec, PlacementDecision, Reservation, Snapshot
from spillway.observe import observe
from spillway.placement.policy import place
from spillway.runs.services import Services
from spillway.sync.manifest import verified_datasets

OBSERVATION_DEADLINE = timedelta(seconds=20)


def snapshot(services: Services) -> Snapshot:
    """All clusters as they are now, with what is verified to be present at each; reservations are added later."""
    return observe(
        services.clients(),
        now=services.clock(),
        deadline=OBSERVATION_DEADLINE,
        declared=services.configuration.clusters,
        datasets_present=_datasets_present(services),
    )


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
    """Settle the attempts whose owner died before a pod was seen; an unreachable cluster keeps its reservations."""
    now = services.clock()
    over = [attempt for attempt in services.ledger.expired(now) if may_expire(attempt, seen)]
    return tuple(services.ledger.expire(attempt, now) for attempt in over)


def _with_promises(seen: Snapshot, reservations: tuple[Reservation, ...], cool_downs: tuple[CoolDown, ...]) -> Snapshot:
    return dataclasses.replace(seen, reservations=reservations, cool_downs=cool_downs)
