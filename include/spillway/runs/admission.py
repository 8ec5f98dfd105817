"""Where a run goes next: observe outside, decide and reserve inside one ledger transaction."""

from __future__ import annotations

import dataclasses
import logging
from collections.abc import Mapping
from datetime import datetime, timedelta

from spillway.errors import SpillwayError
from spillway.leases import clocks_agree, may_expire
from spillway.lines import GIBIBYTE
from spillway.model import (
    Attempt,
    AttemptState,
    Dataset,
    DatasetFacts,
    JobSpec,
    Move,
    PlacementDecision,
    PodPhase,
    Snapshot,
)
from spillway.observe import observe
from spillway.placement.context import index
from spillway.placement.policy import choose, place
from spillway.runs.residency import core_images
from spillway.runs.services import Services
from spillway.runs.settling import settle_over

OBSERVATION_DEADLINE = timedelta(seconds=20)

_log = logging.getLogger(__name__)


def snapshot(services: Services, job: JobSpec | None = None, *, dag: str | None = None) -> Snapshot:
    """All clusters as they are now, with what is verified to be present at each; reservations are added later.

    A cluster that could not be seen is opened anew the next time: its credentials may have changed.

    Args:
        job: whose place is asked for; whether its image counts as core is then known too.
        dag: which DAG asks, where there is no run yet that says so.
    """
    seen = observe(
        services.clients(),
        now=services.clock(),
        deadline=OBSERVATION_DEADLINE,
        declared=services.configuration.clusters,
        stores={n: site.datasets for n, site in services.sites().items() if not isinstance(site, SpillwayError)},
        datasets={name: _facts(dataset) for name, dataset in services.configuration.datasets.items()},
    )
    for name in seen.unreachable:
        services.forget(name)
    seen = dataclasses.replace(seen, link_rates=services.ledger.link_rates(), requester=dag)
    return seen if job is None else dataclasses.replace(seen, core_images=known_core_images(services, job))


def _facts(dataset: Dataset) -> DatasetFacts:
    """As they are declared."""
    size = dataset.size_gib
    return DatasetFacts(
        home=dataset.home,
        size_bytes=None if size is None else int(size * GIBIBYTE),
        remote_read=dataset.remote_read is not None,
    )


def known_core_images(services: Services, job: JobSpec) -> Mapping[str, str]:
    """Why the job's image counts as core, by its name; nothing where it does not, or where nobody can tell."""
    try:
        return core_images(services, [job.image])
    except SpillwayError as problem:  # staging asks again, and copies nothing that its home cannot tell of
        _log.info("whether the image %s counts as core is not known: %s", job.image, problem)
        return {}


def decide(services: Services, job: JobSpec, seen: Snapshot, run: str | None = None) -> PlacementDecision:
    """The decision that reserving, or with a destination moving, would take at this moment; nothing is written.

    Args:
        run: whose job it is; None where nobody has asked for it yet, so that all who wait were first.
    """
    policy = services.configuration.policy
    return place(job, services.ledger.complete(run, job, seen, policy, services.clock()), policy)


def admit(services: Services, run: str, job: JobSpec) -> tuple[Attempt | None, PlacementDecision]:
    """Reserve the best place for the run's next attempt; the run's open attempt if it has one.

    No two of these overlap, so the table is not made here, unless it tells why a run cannot go where it is ordered to.

    Returns:
        (None, decision) where nothing fits now; ``decision.possible`` tells waiting from never.
    """
    policy = services.configuration.policy

    def decided(whole: Snapshot) -> PlacementDecision:
        return choose(job, index(whole, policy)) if whole.destination is None else place(job, whole, policy)

    seen = snapshot(services, job)
    expire_leases(services, seen)
    return services.ledger.reserve(
        run,
        job,
        now=services.clock(),
        lease=services.configuration.runs.lease,
        snapshot=seen,
        policy=policy,
        decide=decided,
    )


def abandoned(services: Services, seen: Snapshot) -> tuple[Attempt, ...]:
    """The attempts that nobody looks after and of which no pod runs; an unreachable cluster keeps its own."""
    return tuple(attempt for attempt in services.ledger.expired(services.clock()) if may_expire(attempt, seen))


def expire_leases(services: Services, seen: Snapshot) -> tuple[Attempt, ...]:
    """Close the abandoned attempts; a pod that has ended in the meantime decides how its attempt ended.

    What a move holds for longer than anybody renewed it is free again, too, unless a cluster has another clock.
    """
    now = services.clock()
    expire_moves(services, seen)
    over = abandoned(services, seen)
    return tuple(expired for attempt in over if (expired := _expire(services, attempt, now)) is not None)


def expire_moves(services: Services, seen: Snapshot) -> tuple[Move, ...]:
    """Give up the moves whose targets nobody holds any more; none while a cluster has another clock."""
    given_up = services.ledger.expire_moves(services.clock()) if clocks_agree(seen) else ()
    for move in given_up:
        _log.warning("%s is given up: %s", move.label, move.problem)
    return given_up


def _expire(services: Services, attempt: Attempt, now: datetime) -> Attempt | None:
    """The settled attempt; None where that could not be done now, which must not stop whoever asks for a place."""
    try:
        if attempt.state in {AttemptState.RESERVED, AttemptState.STAGED}:
            return services.ledger.expire(attempt, now)
        pod = services.pod(attempt)
        if pod.phase is PodPhase.GONE and not (attempt.pod_uid or attempt.node or attempt.ending):
            return services.ledger.expire(attempt, now)  # nobody has seen a pod of it, which tells nothing of its place
        return settle_over(services, attempt, pod)
    except SpillwayError as problem:
        _log.warning("the lease of %s is over, closing it failed: %s", attempt.label, problem)
        return None
