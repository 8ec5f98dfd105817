"""What a run would do now, in words; nothing is reserved, moved or started."""

from __future__ import annotations

from spillway.errors import SpillwayError
from spillway.images.mirror import mirror
from spillway.images.reference import ImageReference
from spillway.model import JobSpec, PlacementDecision
from spillway.placement.explain import table
from spillway.runs.admission import decide, snapshot
from spillway.runs.services import Services
from spillway.runs.staging import copy_dataset


def plan(services: Services, job: JobSpec) -> str:
    """The decision for the job and, where it would be placed, what would be moved there."""
    decision = decide(services, job, snapshot(services))
    told = verdict(decision)
    if decision.chosen is None:
        return told
    try:
        return f"{told}\n{movement(services, job, decision.chosen.cluster)}"
    except SpillwayError as problem:
        return f"{told}\nwould fail: {problem}"


def verdict(decision: PlacementDecision) -> str:
    """The table of a decision and what would follow from it."""
    chosen = decision.chosen
    if chosen is not None:
        return f"{table(decision)}\nwould run on {chosen.cluster}/{chosen.pool} ({chosen.billing})"
    follows = "would wait" if decision.possible else "would fail: nothing can ever hold it"
    return f"{table(decision)}\n{follows}"


def movement(services: Services, job: JobSpec, target: str) -> str:
    """What would be moved to the site for the job; raises what the real thing would raise."""
    return f"{plan_image(services, job.image, target)}\n{_plan_dataset(services, job, target)}"


def plan_image(services: Services, image: str, target: str) -> str:
    """What mirroring the image to the site would move."""
    reference = ImageReference.parse(image)
    report = mirror(
        services.site(services.image_home).registry,
        services.site(target).registry,
        repository=reference.repository,
        reference=reference.reference,
        dry_run=True,
    )
    return f"would mirror {image} to {target} ({report.digest}): {report.bytes_copied} bytes"


def _plan_dataset(services: Services, job: JobSpec, target: str) -> str:
    if job.dataset is None:
        return "would move no dataset"
    dataset = services.dataset(job.dataset)
    if dataset.home == target:
        return f"dataset {dataset.name} is at home there"
    report = copy_dataset(services, dataset, target, dry_run=True)
    return f"would sync dataset {dataset.name}: {report.objects_copied} objects, {report.bytes_copied} bytes"
