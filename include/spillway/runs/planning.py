"""What a run would do now, in words; nothing is reserved, moved or started."""

from __future__ import annotations

from dataclasses import dataclass

from spillway.errors import SpillwayError
from spillway.errors.counts import counted
from spillway.images.reference import ImageReference
from spillway.model import DatasetUse, JobSpec, PlacementDecision, Snapshot, Tier
from spillway.placement.explain import explanation, once
from spillway.runs.admission import decide, snapshot
from spillway.runs.moving_datasets import copy_dataset
from spillway.runs.moving_images import copy_image
from spillway.runs.parts import require_parts
from spillway.runs.routes import let_read
from spillway.runs.services import Services


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What would happen, for a person, and whether it would be a failure; to wait for a place is none."""

    text: str
    fails: bool


def plan(services: Services, job: JobSpec, *, dag: str | None = None) -> Plan:
    """The decision for the job and, where it would be placed, what would be moved there.

    Args:
        dag: which DAG would ask for it; None where a person does.
    """
    seen = snapshot(services, job, dag=dag)
    decision = decide(services, job, seen)
    told = verdict(services, job, seen, decision)
    if decision.chosen is None:
        return Plan(text=told, fails=not decision.possible or decision.needs_correction)
    try:
        return Plan(text=f"{told}\n{movement(services, job, decision.chosen.cluster)}", fails=False)
    except SpillwayError as problem:
        return Plan(text=f"{told}\nwould fail: {problem}", fails=True)


def verdict(services: Services, job: JobSpec, seen: Snapshot, decision: PlacementDecision) -> str:
    """The table of a decision, what it was worked out from and what would follow from it."""
    why = explanation(job, seen, services.configuration.policy, decision)
    chosen = decision.chosen
    if chosen is not None:
        return f"{why}\nwould run on {chosen.cluster}/{chosen.pool} ({chosen.billing}){once(decision)}"
    if decision.needs_correction:
        return f"{why}\nwould wait until the configuration is corrected"
    follows = "would wait" if decision.possible else "would fail: nothing can ever hold it"
    return f"{why}\n{follows}"


def movement(services: Services, job: JobSpec, target: str) -> str:
    """What would be moved to the site for the job; raises what the real thing would raise."""
    require_parts(services, job, target)
    remote = services.store_site(job, target) != target
    data = [_plan_dataset(services, use, target, remote=remote) for use in job.datasets] or ["would move no dataset"]
    return "\n".join([plan_image(services, job.image, target, tier=job.image_made_of), *data])


def plan_image(services: Services, image: str, target: str, *, tier: Tier) -> str:
    """What mirroring the image to the site would move."""
    reference = ImageReference.parse(image)
    report = copy_image(services, reference.repository, reference.reference, target, tier=tier, dry_run=True)
    if target == services.image_home:
        return f"image {image} is at home at {target}"
    return f"would mirror {image} to {target} ({report.digest}): {counted(report.bytes_copied, 'byte')}"


def _plan_dataset(services: Services, use: DatasetUse, target: str, *, remote: bool) -> str:
    dataset = services.dataset(use.name)
    if dataset.home == target:
        return f"dataset {use} is at home there"
    if remote:
        let_read(services, dataset, target)
        return f"dataset {dataset.name} would be read at {dataset.home}, over the link"
    report = copy_dataset(services, dataset, target, whole=True, part=use.part, dry_run=True)
    copied = counted(report.bytes_copied, "byte")
    return f"would sync dataset {use}: {counted(report.objects_copied, 'object')}, {copied}"
