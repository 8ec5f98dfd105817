"""Keep other sites ready: images, public datasets and checkpoints are there before a run needs them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import timedelta

from spillway.checkpoints.replicate import replicate
from spillway.checkpoints.store import CheckpointStore
from spillway.errors import SpillwayError
from spillway.model import Attempt, AttemptState, JobSpec, Tier
from spillway.runs.services import Say, Services
from spillway.runs.staging import record_replication

RECENT = timedelta(hours=24)
"""How long after its end a run's checkpoints are still looked at."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Route:
    """Something (an image, a dataset) that belongs at a site."""

    name: str
    site: str
    tier: Tier


def image_routes(services: Services, jobs: Iterable[JobSpec]) -> tuple[Route, ...]:
    """Every image of the jobs at every site that may hold the tier of all jobs that use it, its home left out."""
    clusters = services.configuration.clusters
    tiers: dict[str, set[Tier]] = {}
    for job in jobs:
        tiers.setdefault(job.image, set()).add(job.tier)
    routes = (
        Route(name=image, site=name, tier=Tier.CORE if Tier.CORE in used else Tier.PUBLIC)
        for image, used in sorted(tiers.items())
        for name, cluster in sorted(clusters.items())
        if name != services.image_home and all(map(cluster.may_hold, used))
    )
    return tuple(routes)


def dataset_routes(services: Services) -> tuple[Route, ...]:
    """Every dataset at every other site that may hold its tier."""
    routes = (
        Route(name=dataset.name, site=name, tier=dataset.tier)
        for _, dataset in sorted(services.configuration.datasets.items())
        for name, cluster in sorted(services.configuration.clusters.items())
        if name != dataset.home and cluster.may_hold(dataset.tier)
    )
    return tuple(routes)


def upload_checkpoints(services: Services, say: Say) -> tuple[str, ...]:
    """Replicate the committed steps of every open or recent run to every other site that may hold them.

    A site that does not answer is left out and named; the next call makes up for it.

    Returns:
        What failed, a line each.
    """
    failed: list[str] = []
    for attempt in _recent_attempts(services):
        failed += replicate_run(services, attempt, say)
    return tuple(failed)


def replicate_run(services: Services, attempt: Attempt, say: Say) -> tuple[str, ...]:
    """Replicate the committed steps from the site of a run's newest attempt to every other that may hold them.

    Returns:
        What failed, a line each.
    """
    failed: list[str] = []
    source_site = attempt.candidate.cluster
    for name in replica_sites(services, attempt):
        try:
            source, destination = (
                CheckpointStore(services.site(site).checkpoints, attempt.run) for site in (source_site, name)
            )
            report = replicate(source, destination)
        except SpillwayError as problem:
            failed.append(f"{attempt.run}: {source_site} -> {name}: {problem}")
            say(failed[-1])
            continue
        record_replication(services, attempt, source_site, name, report, say)
    return tuple(failed)


def replica_sites(services: Services, attempt: Attempt) -> tuple[str, ...]:
    """The sites, other than the attempt's own, that may hold its run's checkpoints."""
    clusters = services.configuration.clusters
    here, tier = attempt.candidate.cluster, attempt.job.tier
    return tuple(name for name, cluster in clusters.items() if name != here and cluster.may_hold(tier))


def _recent_attempts(services: Services) -> tuple[Attempt, ...]:
    """The newest attempt of every run that is open or ended a short while ago."""
    since = services.clock() - RECENT
    newest = (services.ledger.attempts(record.run)[-1:] for record in services.ledger.runs())
    return tuple(
        attempt
        for attempts in newest
        for attempt in attempts
        if attempt.state is not AttemptState.SETTLED or (attempt.ended_at is not None and attempt.ended_at > since)
    )
