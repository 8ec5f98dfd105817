"""A dataset from its home to another site.

Each goes through ``open_route``, and nothing outside the modules of the door may call what copies
(``tests/test_routes.py``).
"""

from __future__ import annotations

from collections.abc import Callable

from spillway.errors import SyncIncomplete
from spillway.ledger import TransferKind, TransferOutcome
from spillway.model import DELETE_SHARE_MAX, Dataset, DatasetUse, Tier
from spillway.runs.residency import admits, limited_to, movable_tier, tag_rules
from spillway.runs.routes import OpenRoute, Shipment, open_route
from spillway.runs.services import Services
from spillway.sync.execute import sync_dataset
from spillway.sync.progress import OnProgress
from spillway.sync.report import ObjectFate, ObjectOutcome, SyncReport


def copy_dataset(
    services: Services,
    dataset: Dataset,
    target: str,
    *,
    whole: bool = False,
    part: Tier | None = None,
    run: str | None = None,
    delete: bool = False,
    delete_share_max: float = DELETE_SHARE_MAX,
    verify: bool = False,
    dry_run: bool = False,
    on_outcome: Callable[[ObjectOutcome], None] | None = None,
    tell_unchanged: bool = True,
    on_progress: OnProgress | None = None,
) -> SyncReport:
    """Sync a dataset from its home to another site's store; a line in the transfer log tells what became of it.

    Objects of a tier that the target may not store are withheld; how many is a line of its own, and so is how many are
    refused because of their tags.

    Args:
        whole: refuse it where the target may not store every object of what is asked for.
        part: only the objects of this tier are asked for; they are recorded by the name of ``DatasetUse.record_at``.
        delete, delete_share_max, verify, on_outcome, tell_unchanged, on_progress: as in ``sync_dataset``.
    Raises:
        ResidencyRefused: the target may store no object of it, or, with ``whole``, not every one.
        SyncIncomplete: some of its objects could not be copied.
    """
    shipment = dataset_shipment(services, dataset, target, whole=whole, part=part, run=run)
    with open_route(services, shipment, dry_run=dry_run) as route:
        site, use = limited_to(part, route.destination.cluster), DatasetUse(name=dataset.name, part=part)
        report = sync_dataset(
            source=route.source.datasets,
            destination=route.destination.datasets,
            dataset=use.record_at(route.destination.cluster),
            prefix=dataset.prefix,
            include=dataset.include,
            exclude=dataset.exclude,
            admit=admits(dataset, site),
            tag_rules=tag_rules(dataset, site),
            beside=use.records_beside(route.destination.cluster),
            delete=delete,
            delete_share_max=delete_share_max,
            verify=verify,
            dry_run=dry_run,
            before_change=route.begin,
            under_way=route.under_way,
            on_outcome=on_outcome,
            tell_unchanged=tell_unchanged,
            on_progress=on_progress,
            now=services.clock(),
        )
        if not dry_run:
            record_sync(route, report)
    return report if dry_run else require_whole(report, target)


def dataset_shipment(
    services: Services,
    dataset: Dataset,
    target: str,
    *,
    whole: bool = False,
    part: Tier | None = None,
    run: str | None = None,
) -> Shipment:
    """What is to go: of the strictest tier that may, or with ``whole`` of the strictest that is asked for."""
    movable = movable_tier(dataset, limited_to(part, services.cluster(target)))
    return Shipment(
        kind=TransferKind.DATASET,
        name=dataset.name,
        tier=dataset.strictest if whole and part is None else movable,
        source=dataset.home,
        destination=target,
        run=run,
    )


def require_whole(report: SyncReport, target: str) -> SyncReport:
    """The report of a sync that left nothing out.

    Raises:
        SyncIncomplete: some objects could not be copied.
    """
    if report.failures:
        raise SyncIncomplete(
            report.dataset,
            target,
            failed=report.count(ObjectFate.FAILED),
            refused=report.count(ObjectFate.REFUSED),
            first=report.failures[0],
        )
    return report


def record_sync(route: OpenRoute, report: SyncReport) -> None:
    """Write the line of a sync that has ended, and those of what it withheld and refused."""
    record_kept_back(route, report)
    if not report.failures and not report.objects_copied:
        return route.record_unchanged(objects_unchanged=report.objects_unchanged)
    return route.record(
        TransferOutcome.FAILED if report.failures else TransferOutcome.COPIED,
        size_bytes=report.bytes_copied,
        reason=report.failures[0] if report.failures else None,
        objects_copied=report.objects_copied,
        objects_unchanged=report.objects_unchanged,
    )


def record_kept_back(route: OpenRoute, report: SyncReport) -> None:
    """Write the lines of what a sync left at its source: for its tier, and for tags that say core or nothing.

    What a site may store and was not asked for there, as with a part, is no refusal.
    """
    if report.objects_withheld and not route.destination.cluster.may_hold(Tier.CORE):
        route.withhold(report.objects_withheld)
    if report.objects_barred:
        route.bar(report.objects_barred)
