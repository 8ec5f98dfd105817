"""A dataset sync that several workers share: each step goes through the door between two sites by itself."""

from __future__ import annotations

from spillway.ledger import TransferOutcome
from spillway.model import Dataset, DatasetUse
from spillway.runs.moving_datasets import dataset_shipment, record_kept_back, record_sync, require_whole
from spillway.runs.residency import admits, tag_rules
from spillway.runs.routes import OpenRoute, open_route
from spillway.runs.services import Services
from spillway.stores.base import ObjectStore
from spillway.sync.progress import OnProgress
from spillway.sync.report import ObjectFate, SyncReport
from spillway.sync.shares import SHARE_BYTES, Share, copy_share, divide, merge
from spillway.sync.work import Route


def divide_dataset(
    services: Services,
    dataset: Dataset,
    target: str,
    *,
    workers: int,
    verify: bool = False,
    share_bytes: int = SHARE_BYTES,
    on_progress: OnProgress | None = None,
) -> tuple[SyncReport, tuple[Share, ...]]:
    """Plan a sync for several workers; where one is enough it is done at once, and there are no shares.

    Raises:
        ResidencyRefused, SyncIncomplete: as ``copy_dataset``.
    """
    shipment = dataset_shipment(services, dataset, target)
    with open_route(services, shipment) as route:
        ends = _ends(route.source.datasets, route.destination.datasets, dataset, route)
        report, shares = divide(
            ends,
            now=services.clock(),
            workers=workers,
            admit=admits(dataset, route.destination.cluster),
            verify=verify,
            share_bytes=share_bytes,
            on_progress=on_progress,
        )
        if not shares:
            record_sync(route, report)
        elif report.objects_copied:
            route.record(
                TransferOutcome.COPIED,
                size_bytes=report.bytes_copied,
                reason="before its shares, keys that are folders of others",
                objects_copied=report.objects_copied,
            )
    return (report if shares else require_whole(report, target)), shares


def copy_dataset_share(
    services: Services, dataset: Dataset, target: str, share: Share, *, on_progress: OnProgress | None = None
) -> dict[str, int]:
    """Copy one share; its counts by fate. A line in the transfer log tells of its bytes.

    Raises:
        SyncIncomplete: objects failed that another try may copy.
    """
    shipment = dataset_shipment(services, dataset, target)
    with open_route(services, shipment) as route:
        ends = _ends(route.source.datasets, route.destination.datasets, dataset, route)
        tally = copy_share(ends, share, admits(dataset, route.destination.cluster), on_progress)
        route.record(
            TransferOutcome.FAILED if tally.failures else TransferOutcome.COPIED,
            size_bytes=tally.bytes_copied,
            reason=tally.failures[0] if tally.failures else f"share {share.number + 1} of {share.of}",
            objects_copied=tally.counts[ObjectFate.COPIED],
        )
        if tally.objects_barred:
            route.bar(tally.objects_barred)
    return {"bytes_copied": tally.bytes_copied} | {f"objects_{fate}": count for fate, count in tally.counts.items()}


def merge_dataset(services: Services, dataset: Dataset, target: str, draft: str) -> SyncReport:
    """Record for the whole dataset once every share is copied; a line in the transfer log of its own.

    Raises:
        SyncIncomplete: a share has not ended, or an object could not be copied.
    """
    shipment = dataset_shipment(services, dataset, target)
    with open_route(services, shipment) as route:
        ends = _ends(route.source.datasets, route.destination.datasets, dataset, route)
        report = merge(ends, draft)
        record_kept_back(route, report)
        route.record(
            TransferOutcome.FAILED if report.failures else TransferOutcome.UNCHANGED,
            reason=report.failures[0] if report.failures else "its shares are merged",
            objects_unchanged=report.objects_unchanged,
        )
    return require_whole(report, target)


def _ends(source: ObjectStore, destination: ObjectStore, dataset: Dataset, route: OpenRoute) -> Route:
    return Route(
        source=source,
        destination=destination,
        dataset=dataset.name,
        scope=dataset.scope,
        under_way=route.under_way,
        tag_rules=tag_rules(dataset, route.destination.cluster),
        beside=DatasetUse(name=dataset.name).records_beside(route.destination.cluster),
    )
