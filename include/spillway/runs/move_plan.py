"""What moving a run would come to, asked of the ledger, its pod, and the stores and registries; nothing is changed."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from decimal import Decimal
from typing import Any, TypeVar

from spillway.checkpoints.progress import Progress, read_progress
from spillway.checkpoints.store import CheckpointStore
from spillway.codec import encode
from spillway.errors import MoveRefused, SpillwayError, UnknownName
from spillway.images.reference import ImageReference
from spillway.lines import GIBIBYTE, bytes_per_second, link_between
from spillway.migration import MoveAdvice, MoveFacts, advise, estimate, told
from spillway.model import (
    Attempt,
    AttemptState,
    Billing,
    Candidate,
    Destination,
    MoveEstimate,
    PlacementDecision,
    Snapshot,
)
from spillway.placement.explain import name, rows
from spillway.pricing import hourly_price
from spillway.runs.admission import decide, snapshot
from spillway.runs.moving_datasets import copy_dataset
from spillway.runs.moving_images import copy_image
from spillway.runs.services import Services
from spillway.runs.stopping import grace_of

BEST = "best"
NOT_SPOT = "not-spot"
"""The best other place that nobody takes away: where a deadline moves a run."""

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class MovePlan:
    """Where a run would go from the place of ``leaving``, how long that takes, and whether it is worth it."""

    leaving: Attempt
    target: Candidate
    decision: PlacementDecision
    seen: Snapshot
    estimate: MoveEstimate
    advice: MoveAdvice

    @property
    def text(self) -> str:
        """For people."""
        return (
            f"would move {self.leaving.run} from {name(self.leaving.candidate)} to {name(self.target)}\n"
            f"estimate: {told(self.estimate)}\nadvice: {self.advice.advice}: {self.advice.reason}"
        )

    @property
    def data(self) -> dict[str, Any]:
        """Plain JSON; durations are seconds, what is unknown is null."""
        expected = self.estimate
        return {
            "run": self.leaving.run,
            "attempt": self.leaving.number,
            "from": encode(self.leaving.candidate),
            "to": encode(self.target),
            "advice": encode(self.advice),
            "estimate": {
                **encode(expected),
                "known_seconds": encode(expected.known),
                "known_pause_seconds": encode(expected.known_pause),
                "unknown": list(expected.unknown),
            },
            "table": rows(self.decision),
        }


def move_plan(services: Services, run: str, where: str) -> MovePlan:
    """What ordering the run to ``where`` comes to; nothing is held or moved.

    Args:
        where: ``cluster``, ``cluster/pool``, ``cluster/pool/billing``, or ``best`` for the best other place,
            ``not-spot`` for the best one that is not spot.
    Raises:
        UnknownName: no such run, cluster, pool or billing.
        MoveRefused: the run does not train now, it is there already, or the target cannot hold it, or not now.
    """
    leaving = _training(services, run)
    wanted = dataclasses.replace(destination(services, where, run), leaving=leaving.candidate)
    seen = dataclasses.replace(snapshot(services, leaving.job), destination=wanted)
    decision = decide(services, leaving.job, seen, run)
    if decision.chosen is None:
        raise refused(run, wanted, decision)
    facts = _facts(services, leaving, decision.chosen)
    expected = estimate(facts)
    return MovePlan(
        leaving=leaving,
        target=decision.chosen,
        decision=decision,
        seen=seen,
        estimate=expected,
        advice=advise(facts, expected),
    )


def destination(services: Services, where: str, run: str) -> Destination:
    """The destination that the text names, each of its parts declared."""
    if where in {BEST, NOT_SPOT}:
        return Destination(spot=where == BEST)
    parts = where.split("/")
    if not 1 <= len(parts) <= 3 or not all(parts):
        expected = f"CLUSTER, CLUSTER/POOL, CLUSTER/POOL/BILLING, '{BEST}' or '{NOT_SPOT}'"
        raise MoveRefused(run, f"its target is '{where}', expected {expected}")
    clusters = services.configuration.clusters
    if parts[0] not in clusters:
        raise UnknownName("cluster", parts[0], [*clusters, BEST, NOT_SPOT])
    if len(parts) == 1:
        return Destination(cluster=parts[0])
    pools = {pool.name: pool for pool in clusters[parts[0]].pools}
    if parts[1] not in pools:
        raise UnknownName("pool", f"{parts[0]}/{parts[1]}", [f"{parts[0]}/{pool}" for pool in pools])
    if len(parts) == 2:
        return Destination(cluster=parts[0], pool=parts[1])
    billings = pools[parts[1]].prices_per_hour
    if parts[2] not in billings:
        raise UnknownName("place", where, [f"{parts[0]}/{parts[1]}/{billing}" for billing in billings])
    return Destination(cluster=parts[0], pool=parts[1], billing=Billing(parts[2]))


def refused(run: str, wanted: Destination, decision: PlacementDecision) -> MoveRefused:
    """Why no place that is wanted can have the run, now or ever."""
    reasons = {
        verdict.candidate: verdict.rejections for verdict in decision.verdicts if wanted.allows(verdict.candidate)
    }
    here = wanted.leaving
    if not reasons and here is not None:
        problem = f"it is at {name(here)} already, got an order to {wanted}; name another place, or '{BEST}'"
        return MoveRefused(run, problem)
    found = "; ".join(
        f"{name(place)}: " + ", ".join(f"{rejection.rule}: {rejection.reason}" for rejection in rejections)
        for place, rejections in reasons.items()
    )
    waits = any(all(rejection.waits for rejection in rejections) for rejections in reasons.values())
    follows = "order it again when that has passed" if waits else f"name another place, or '{BEST}'"
    when = "has no room for it now" if waits else "can never hold it"
    if here is not None and dataclasses.replace(wanted, leaving=None).allows(here):
        when += f" but where it is, at {name(here)}"
    return MoveRefused(run, f"{wanted} {when} ({found}); {follows}", retry_helps=waits)


def _training(services: Services, run: str) -> Attempt:
    """The run's open attempt, whose pod runs."""
    known = [record.run for record in services.ledger.runs()]
    if run not in known:
        raise UnknownName("run", run, known[-10:])
    attempts = services.ledger.attempts(run)
    if not attempts or (attempts[-1].outcome is not None and attempts[-1].outcome.goes_on):
        raise MoveRefused(
            run,
            f"it waits for a place and has nothing to move, expected one that trains; `explain --run {run}` tells what "
            "it waits for",
        )
    last = attempts[-1]
    if last.outcome is not None:
        raise MoveRefused(
            run, f"it is over ({last.outcome}: {last.reason}), expected one that trains; start a new run at the target"
        )
    if last.state is not AttemptState.RUNNING:
        raise MoveRefused(
            run,
            f"its attempt {last.number} is {last.state} at {name(last.candidate)}, expected running; order it when "
            f"`runs show {run}` says so, or cancel it",
            retry_helps=True,
        )
    return last


def _facts(services: Services, leaving: Attempt, target: Candidate) -> MoveFacts:
    """What can be known now; what does not answer is unknown."""
    source, there = leaving.candidate.cluster, target.cluster
    link = link_between(services.cluster(source), services.cluster(there))
    image = _known(lambda: _image_bytes(services, leaving, there))
    data = _known(lambda: _dataset_bytes(services, leaving, there))
    brought = None if image is None or data is None else [(services.image_home, image), *data]
    facts = MoveFacts(
        image_bytes=image,
        dataset_bytes=None if data is None else sum(size for _, size in data),
        bandwidth_bytes_per_second=bytes_per_second(link, services.ledger.link_rates()),
        units=leaving.job.priced_units,
        price_here=_price(services, leaving.candidate),
        price_there=_price(services, target),
        egress_price_per_gib=services.cluster(source).link.egress_price_per_gib,
        brought_egress=None if brought is None else _egress(services, brought),
    )
    facts = _known(lambda: _with_checkpoints(services, facts, leaving, there)) or facts
    return _known(lambda: _with_pod(services, facts, leaving)) or facts


def _price(services: Services, place: Candidate) -> Decimal | None:
    return hourly_price(services.cluster(place.cluster).pool(place.pool), place.billing)


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
        at_risk, size_bytes, missing_bytes = progress.step, None if declared is None else int(declared * GIBIBYTE), 0
    else:
        at_risk = max(0, progress.step - newest.step)
        size_bytes = CheckpointStore(store, leaving.run).manifest(newest).size_bytes
        known_there = _known(lambda: CheckpointStore(services.site(there).checkpoints, leaving.run).head())
        missing_bytes = 0 if known_there and known_there.newest == newest else size_bytes
    committed = [entry.step for entry in (head.committed if head else ()) if entry.attempt == leaving.number]
    interval = committed[-1] - committed[-2] if len(committed) > 1 else _declared_interval(leaving, pace, at_risk)
    return dataclasses.replace(
        facts,
        checkpoint_bytes=0 if there == here else size_bytes,
        missing_checkpoint_bytes=missing_bytes,
        flush=_duration(progress.slowest_commit_seconds),
        seconds_per_step=pace,
        steps_at_risk=at_risk,
        steps_left=max(0, progress.total_steps - progress.step),
        steps_to_checkpoint=None if interval is None else max(0, interval - at_risk),
    )


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
