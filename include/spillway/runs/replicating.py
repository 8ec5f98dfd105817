"""Checkpoints of open and recent runs at every site that may hold them, before a run needs them there."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from spillway.checkpoints.replicate import ReplicationReport
from spillway.checkpoints.retention import metric_of
from spillway.checkpoints.store import CheckpointStore
from spillway.errors import SpillwayError, Unreachable
from spillway.model import Attempt
from spillway.runs.links import link_name
from spillway.runs.moving_checkpoints import copy_checkpoints
from spillway.runs.services import Say, Services
from spillway.sync.progress import OnProgress


@dataclass(frozen=True, slots=True, kw_only=True)
class Copied:
    """Steps of a run that arrived at a site. ``step`` is the newest there, ``metrics`` are its numbers by name."""

    job: str
    run: str
    site: str
    step: int | None
    steps_copied: int
    bytes_copied: int
    metrics: Mapping[str, float]


OnCopy = Callable[[Copied], None]
Serves = Callable[[str], bool]
"""Whether what goes over the link of this name is for who asks."""
Silent = dict[tuple[str, str], Unreachable]
"""From which site to which nothing could be copied, and why: asking again takes as long as a client is patient."""


def upload_checkpoints(
    services: Services,
    say: Say,
    on_copy: OnCopy = lambda copied: None,
    serves: Serves = lambda link: True,
    *,
    dry_run: bool = False,
) -> tuple[str, ...]:
    """Replicate the committed steps of every open or recent run to every other site that may hold them.

    A site that does not answer is left out and named, and not asked again in this call; the next one makes up for it.

    Args:
        on_copy: told of each run at each site where new steps arrived.
        serves: what goes over other links is left to somebody else.
        dry_run: say what would be copied, and copy nothing.
    Returns:
        What failed, a line each.
    """
    failed: list[str] = []
    silent: Silent = {}
    for attempt in services.recent_attempts():
        failed += replicate_run(services, attempt, say, on_copy, silent, serves, dry_run=dry_run)
    return tuple(failed)


def replicate_run(
    services: Services,
    attempt: Attempt,
    say: Say,
    on_copy: OnCopy = lambda copied: None,
    silent: Silent | None = None,
    serves: Serves = lambda link: True,
    on_progress: OnProgress | None = None,
    *,
    dry_run: bool = False,
) -> tuple[str, ...]:
    """Replicate the committed steps from the site of a run's newest attempt to every other that may hold them.

    Args:
        silent: ways that are not tried again; those that turn out to be silent are added.
        serves, dry_run: as in ``upload_checkpoints``.
        on_progress: as in ``copy_checkpoints``.
    Returns:
        What failed, a line each.
    """
    failed: list[str] = []
    source_site = services.store_site(attempt.job, attempt.candidate.cluster)
    silent = {} if silent is None else silent
    for name in replica_sites(services, attempt):
        if not serves(link_name(services, source_site, name)):
            continue
        way = source_site, name
        try:
            if way in silent:
                raise silent[way]
            if dry_run:
                say(_planned(services, attempt.run, source_site, name))
                continue
            report = copy_checkpoints(services, attempt, source_site, name, say, on_progress)
            if report.steps_copied:
                on_copy(_copied(services, attempt, name, report))
        except SpillwayError as problem:
            if isinstance(problem, Unreachable):
                silent[way] = problem
            failed.append(f"{attempt.run}: {source_site} -> {name}: {problem}")
            say(failed[-1])
    return tuple(failed)


def _planned(services: Services, run: str, source: str, site: str) -> str:
    """What the site lacks of the committed steps, in words."""
    heads = [CheckpointStore(services.site(name).checkpoints, run).head() for name in (source, site)]
    here, there = (set(head.committed) if head else set() for head in heads)
    steps = ", ".join(str(step) for step in sorted(entry.step for entry in here - there))
    return f"run {run}: would copy {f'steps {steps}' if steps else 'nothing'} from {source} to {site}"


def _copied(services: Services, attempt: Attempt, site: str, report: ReplicationReport) -> Copied:
    store = CheckpointStore(services.site(site).checkpoints, attempt.run)
    head = store.head()
    metrics = {} if head is None or head.newest is None else store.manifest(head.newest).metrics
    numbers = {name: number for name in metrics if (number := metric_of(metrics, name)) is not None}
    return Copied(
        job=attempt.job.name,
        run=attempt.run,
        site=site,
        step=report.newest_step,
        steps_copied=report.steps_copied,
        bytes_copied=report.bytes_copied,
        metrics=numbers,
    )


def replica_sites(services: Services, attempt: Attempt) -> tuple[str, ...]:
    """The sites, other than the one that the attempt commits to, that may hold its run's checkpoints."""
    clusters = services.configuration.clusters
    here, tier = services.store_site(attempt.job, attempt.candidate.cluster), services.tier_of(attempt.job)
    return tuple(name for name, cluster in clusters.items() if name != here and cluster.may_hold(tier))
