"""Images from their home to another site: one, or the tags of a repository.

Each goes through ``open_route``, and nothing outside the modules of the door may call what copies
(``tests/test_routes.py``).
"""

from __future__ import annotations

import dataclasses

from spillway.errors import ResidencyRefused
from spillway.images.mirror import MirrorReport, mirror, tree_digests
from spillway.images.plan import TagAction, attached_to
from spillway.images.report import RepositoryReport, TagFate
from spillway.images.repository import RepositoryPlan, mirror_tags, plan_repository
from spillway.ledger import TransferKind, TransferOutcome
from spillway.model import DELETE_SHARE_MAX, MirroredRepository, Tier
from spillway.registries.digest import label
from spillway.runs.image_needs import needed_tags
from spillway.runs.residency import core_images
from spillway.runs.routes import OpenRoute, Shipment, open_route
from spillway.runs.services import Services
from spillway.sync.progress import OnProgress


def copy_image(
    services: Services,
    repository: str,
    reference: str,
    target: str,
    *,
    tier: Tier,
    run: str | None = None,
    dry_run: bool = False,
    on_progress: OnProgress | None = None,
) -> MirrorReport:
    """Mirror an image from the home of images to another site's registry; a line in the transfer log tells of it.

    Args:
        tier: of the work that it is for; an image that core work uses too is core.
    Raises:
        ResidencyRefused: the target may not store what is of this tier.
    """
    image = label(repository, reference)
    core = {} if tier is Tier.CORE else core_images(services, [image])
    shipment = Shipment(
        kind=TransferKind.IMAGE,
        name=image,
        tier=Tier.CORE if core else tier,
        source=services.image_home,
        destination=target,
        run=run,
        fix=core.get(image),
    )
    with open_route(services, shipment, dry_run=dry_run) as route:
        if not dry_run:
            route.begin()
        report = mirror(
            route.source.registry,
            route.destination.registry,
            repository=repository,
            reference=reference,
            dry_run=dry_run,
            expect=route.follow(on_progress),
        )
        if not dry_run:
            name = label(report.repository, report.digest)
            if report.moved:
                route.record(TransferOutcome.COPIED, name=name, size_bytes=report.bytes_copied)
            else:
                route.record_unchanged(name=name)
    return report


def copy_repository(
    services: Services,
    wanted: MirroredRepository,
    target: str,
    *,
    verify: bool = False,
    delete_share_max: float = DELETE_SHARE_MAX,
    dry_run: bool = False,
    on_progress: OnProgress | None = None,
) -> RepositoryReport:
    """Mirror the wanted tags of a repository from the home of images; a line in the transfer log for each that moved.

    A tag that core work uses, by whatever name, and what belongs to it stay where they may be stored; each is a line of
    its own. No tag is deleted that a job file names, or that an open or recent run was started from.

    Args:
        verify: look below every tag for what may be missing at the target, not only where its digest leaves that open.
        delete_share_max: the part of the target's tags, in [0, 1], that may be deleted where the rules delete at all.
    Raises:
        Missing: the home has no such repository.
        DeletesRefused: more tags would be deleted than the guard allows.
        ResidencyRefused: the target may not store what is of the repository's tier.
    """
    shipment = Shipment(
        kind=TransferKind.IMAGE,
        name=wanted.repository,
        tier=wanted.tier,
        source=services.image_home,
        destination=target,
        fix="declare another tier in images.yaml",
    )
    with open_route(services, shipment, dry_run=dry_run) as route:
        source, destination = route.source.registry, route.destination.registry
        plan = plan_repository(source, destination, wanted, verify=verify, delete_share_max=delete_share_max)
        plan = plan.keeping(needed_tags(services, destination, wanted.repository, plan.doomed))
        if plan.changes and not dry_run:
            route.begin()
        report = mirror_tags(
            source,
            destination,
            plan,
            refused=_refused_tags(services, shipment, plan),
            siblings=sorted(services.configuration.repositories),
            dry_run=dry_run,
            expect=route.follow(on_progress),
        )
        if not dry_run:
            _record_tags(route, report)
    return report


def _refused_tags(services: Services, shipment: Shipment, plan: RepositoryPlan) -> dict[str, str]:
    """The tags that count as core where the target may not store that, with the reason.

    What belongs to an image (a signature, an attestation, an SBOM) counts as the image does.
    """
    if services.cluster(shipment.destination).may_hold(Tier.CORE):
        return {}
    repository = plan.rules.repository
    here = [(one, one.source_digest, attached_to(one.tag)) for one in plan.tags if one.source_digest]
    asked = {digest for _, *digests in here for digest in digests if digest}
    core = core_images(services, {label(repository, digest) for digest in asked})
    why = {digest: core[name] for digest in asked if (name := label(repository, digest)) in core}
    below: dict[str, str] = {}
    for digest, reason in why.items():
        below |= dict.fromkeys(tree_digests(services.stores(shipment.source).registry, repository, digest), reason)
    refused = {}
    for one, digest, subject in here:
        fix = why.get(digest) or (subject and (why.get(subject) or below.get(subject)))
        if fix and one.action is TagAction.COPY:
            image = dataclasses.replace(shipment, name=label(repository, digest), tier=Tier.CORE, fix=fix)
            try:
                with open_route(services, image):
                    pass
            except ResidencyRefused as refusal:
                refused[one.tag] = str(refusal)
        elif fix:  # it is there already, or nobody brings it: what refers to it stays here all the same
            refused[one.tag] = fix
    return refused


def _record_tags(route: OpenRoute, report: RepositoryReport) -> None:
    """A line for each tag that moved or failed; none for those that are as they were."""
    moved = [outcome for outcome in report.outcomes if outcome.fate is TagFate.COPIED]
    failed = [outcome for outcome in report.outcomes if outcome.fate is TagFate.FAILED]
    for outcome in moved:
        name = label(report.repository, str(outcome.digest))
        made_of = f"fewer platforms of {outcome.source_digest}" if outcome.source_digest else None
        route.record(TransferOutcome.COPIED, name=name, size_bytes=outcome.bytes_copied, reason=made_of)
    for outcome in failed:
        route.record(TransferOutcome.FAILED, name=label(report.repository, outcome.tag), reason=outcome.reason)
