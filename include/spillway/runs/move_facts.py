"""What is known of a run and of its way to another place, asked of its pod, the ledger, stores and registries."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from datetime import datetime, timedelta
from decimal import Decimal
from typing import TypeVar

from spillway.checkpoints.progress import Progress, read_progress
from spillway.checkpoints.replicate import missing_bytes
from spillway.checkpoints.store import CheckpointStore
from spillway.errors import SpillwayError
from spillway.images.reference import ImageReference
from spillway.lines import GIBIBYTE, bytes_per_second, link_between
from spillway.migration import MoveFacts
from spillway.model import Attempt, Candidate
from spillway.pricing import price_of_run
from spillway.runs.moving_datasets import copy_dataset
from spillway.runs.moving_images import copy_image
from spillway.runs.services import Services
from spillway.runs.stopping import grace_of
from spillway.stores.base import ObjectStore

T = TypeVar("T")


def move_facts(services: Services, leaving: Attempt, target: Candidate) -> MoveFacts:
    """What can be known now; what does not answer is unknown."""
    there = target.cluster
    source = services.store_site(leaving.job, leaving.candidate.cluster)
    image = _known(lambda: [(services.image_home, _image_bytes(services, leaving, there))])
    data = _known(lambda: _dataset_bytes(services, leaving, there))
    facts = MoveFacts(
        image_bytes=None if image is None else _size(image),
        image_bytes_per_second=None if image is None else _rate(services, image, there),
        dataset_bytes=None if data is None else _size(data),
        dataset_bytes_per_second=None if data is None else _rate(services, data, there),
        bandwidth_bytes_per_second=_line(services, source, services.store_site(leaving.job, there)),
        units=leaving.job.priced_units,
        price_here=_price(services, leaving, leaving.candidate)
        if leaving.price_per_gpu_hour is None
        else leaving.price_per_gpu_hour,
        price_there=_price(services, leaving, target),
        egress_price_per_gib=services.cluster(source).link.egress_price_per_gib,
        brought_egress=None if image is None or data is None else _egress(services, [*image, *data]),
    )
    facts = _known(lambda: _with_checkpoints(services, facts, leaving, there)) or facts
    return _known(lambda: _with_pod(services, facts, leaving)) or facts


def _line(services: Services, home: str, there: str) -> float:
    """Bytes a second between two sites: as it was measured, before that as it is declared."""
    link = link_between(services.cluster(home), services.cluster(there))
    return bytes_per_second(link, services.ledger.link_rates())


def _size(brought: Sequence[tuple[str, int]]) -> int:
    return sum(size for _, size in brought)


def _rate(services: Services, brought: Sequence[tuple[str, int]], there: str) -> float | None:
    """Of what comes from several homes, one after the other; None where nothing is brought."""
    seconds = sum(size / _line(services, home, there) for home, size in brought)
    return _size(brought) / seconds if seconds else None


def _price(services: Services, leaving: Attempt, place: Candidate) -> Decimal | None:
    """That of an hour of the job if it begins there now."""
    pool = services.cluster(place.cluster).pool(place.pool)
    return price_of_run(pool, place.billing, services.clock(), leaving.job.longest)


def _egress(services: Services, brought: Sequence[tuple[str, int]]) -> Decimal:
    """What the homes take for what is brought from them."""
    takes = (services.cluster(home).link.egress_price_per_gib * size for home, size in brought)
    return sum(takes, Decimal(0)) / GIBIBYTE


def _known(ask: Callable[[], T]) -> T | None:
    try:
        return ask()
    except SpillwayError:
        return None


def _image_bytes(services: Services, leaving: Attempt, target: str) -> int:
    repository = ImageReference.parse(leaving.job.image).repository
    assert leaving.image_digest is not None
    tier = leaving.job.image_made_of
    return copy_image(services, repository, leaving.image_digest, target, tier=tier, dry_run=True).bytes_copied


def _dataset_bytes(services: Services, leaving: Attempt, target: str) -> list[tuple[str, int]]:
    """The home of each dataset of which the target lacks something, and how many bytes."""
    at = services.store_site(leaving.job, target)
    named = ((services.dataset(use.name), use.part) for use in leaving.job.datasets)
    return [
        (dataset.home, copy_dataset(services, dataset, target, part=part, dry_run=True).bytes_copied)
        for dataset, part in named
        if dataset.home != at
    ]


def _with_checkpoints(services: Services, facts: MoveFacts, leaving: Attempt, target: str) -> MoveFacts:
    """The sizes of checkpoints, and the steps since the newest and to the next one.

    Before the first commit the size is what the job says, before the second one the interval too.
    """
    missing: int | None
    store = services.checkpoints(leaving)
    here, there = (services.store_site(leaving.job, name) for name in (leaving.candidate.cluster, target))
    head = CheckpointStore(store, leaving.run).head()
    progress = read_progress(store, leaving.run, leaving.number)
    if progress is None:
        return facts
    pace = _seconds_per_step(leaving, progress)
    newest = None if head is None else head.newest
    if head is None or newest is None:
        declared = leaving.job.checkpoint_gib
        at_risk, size_bytes, missing = progress.step, None if declared is None else int(declared * GIBIBYTE), 0
    else:
        at_risk = max(0, progress.step - newest.step)
        size_bytes = CheckpointStore(store, leaving.run).manifest(newest).size_bytes
        missing = 0 if there == here else _known(lambda: _missing(services, store, leaving.run, there))
    committed = [entry.step for entry in (head.committed if head else ()) if entry.attempt == leaving.number]
    interval = committed[-1] - committed[-2] if len(committed) > 1 else _declared_interval(leaving, pace, at_risk)
    return dataclasses.replace(
        facts,
        checkpoint_bytes=0 if there == here else size_bytes,
        missing_checkpoint_bytes=missing,
        flush=_duration(progress.slowest_commit_seconds),
        seconds_per_step=pace,
        steps_at_risk=at_risk,
        steps_left=max(0, progress.total_steps - progress.step),
        steps_to_checkpoint=None if interval is None else max(0, interval - at_risk),
    )


def _missing(services: Services, store: ObjectStore, run: str, there: str) -> int:
    """What the store of that site lacks of the committed steps."""
    return missing_bytes(CheckpointStore(store, run), CheckpointStore(services.site(there).checkpoints, run))


def _declared_interval(leaving: Attempt, pace: float | None, at_risk: int) -> int | None:
    """The job's interval in steps; one that has passed without a commit is not that of its program."""
    declared = leaving.job.checkpoint_interval
    steps = None if declared is None or pace is None else round(declared.total_seconds() / pace)
    return steps if steps is not None and steps > at_risk else None


def _with_pod(services: Services, facts: MoveFacts, leaving: Attempt) -> MoveFacts:
    """How long the present pod took to start, and the time that it has to end."""
    pod = services.pod(leaving)
    began = pod.started_at - pod.created_at if pod.started_at and pod.created_at else None
    return dataclasses.replace(facts, grace=grace_of(pod, leaving.job), restart=began)


def _seconds_per_step(leaving: Attempt, progress: Progress) -> float | None:
    """The mean since the pod began, its start counted: the trainer tells no more of it."""
    try:
        at = datetime.fromisoformat(progress.at)
    except ValueError:
        return None
    if leaving.started_at is None or at.tzinfo is None or at <= leaving.started_at:
        return None
    return (at - leaving.started_at).total_seconds() / (progress.step - progress.first_step + 1)


def _duration(seconds: float | None) -> timedelta | None:
    return None if seconds is None else timedelta(seconds=seconds)
