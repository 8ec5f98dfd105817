"""Jobs that read the public part of a dataset alone: what keeps the rest from them wherever both lie."""

from __future__ import annotations

from spillway.errors import BadData, ResidencyRefused
from spillway.errors.counts import counted
from spillway.ledger import TransferKind
from spillway.model import Attempt, Dataset, DatasetUse, JobSpec, Tier
from spillway.runs.moving_datasets import require_whole
from spillway.runs.residency import admits, limited_to, tag_rules
from spillway.runs.routes import Shipment, refusal
from spillway.runs.services import Services
from spillway.stores.entries import read_copy
from spillway.sync.manifest import manifest_key
from spillway.sync.parts import record_part
from spillway.sync.report import SyncReport


def require_parts(services: Services, job: JobSpec, target: str, *, run: str | None = None) -> None:
    """Return where the parts that the job reads are still what its tier was worked out from, and can be read alone.

    Raises:
        UnknownName: a dataset is not declared any more, so that nobody knows what would be read.
        ResidencyRefused: a part is no more, or pods at the target could read the rest; a line in the transfer log.
    """
    named = services.cluster(target).object_store.public_pod_connection
    for use in job.datasets:
        dataset = services.dataset(use.name)
        if use.part is None:
            continue
        if use.part not in dataset.tiers:
            fix = f"its rules in datasets.yaml make no object {use.part} any more; let one do so, or start the job anew"
        elif named is None and _needs_identity(services, job, target):
            fix = f"its pods there could read all of it: name public_pod_connection in the object_store of '{target}'"
        else:
            continue
        raise _refusal(services, dataset, target, run, fix)


def require_recorded_part(services: Services, use: DatasetUse, target: str, *, run: str | None = None) -> None:
    """Return where every object that is recorded at the target as the part may still be of it, by the rules of now.

    Those whose tags decide may: their tags were asked for when they were recorded.

    Raises:
        UnknownName: the dataset is not declared any more.
        ResidencyRefused: an object is of the part no more; a line in the transfer log.
        Missing, BadData: nothing was recorded there, or it cannot be read.
    """
    if use.part is None:
        return
    dataset, site = services.dataset(use.name), services.stores(target)
    record = manifest_key(use.record_at(site.cluster))
    try:
        recorded = (key for key, _ in read_copy(site.datasets, record))
        strays = sum(dataset.tier_of(key) is not use.part and not dataset.asks_tags(key) for key in recorded)
    except ValueError as problem:
        raise BadData(f"{site.datasets.name}/{record}", f"{problem}; sync the dataset to this site again") from problem
    if strays:
        fix = f"{counted(strays, 'object')} of it left {use.part} by its rules in datasets.yaml: stage it anew"
        raise _refusal(services, dataset, target, run, fix)


def _refusal(services: Services, dataset: Dataset, target: str, run: str | None, fix: str) -> ResidencyRefused:
    what = Shipment(
        kind=TransferKind.DATASET,
        name=dataset.name,
        tier=Tier.CORE,
        source=dataset.home,
        destination=target,
        run=run,
        fix=fix,
    )
    return refusal(services, what)


def public_identity(services: Services, attempt: Attempt) -> str | None:
    """The Connection whose identity its pod gets so that it reads no core data; None where it needs none.

    Raises:
        UnknownName, ResidencyRefused: as ``require_parts``.
    """
    target = attempt.candidate.cluster
    if not _needs_identity(services, attempt.job, target):
        return None
    require_parts(services, attempt.job, target, run=attempt.run)
    return services.cluster(target).object_store.public_pod_connection


def _needs_identity(services: Services, job: JobSpec, target: str) -> bool:
    return job.reads_a_part and services.cluster(target).may_hold(Tier.CORE)


def record_part_at_home(services: Services, dataset: Dataset, part: Tier) -> SyncReport:
    """Record at the dataset's home which of its objects are of the part, so that pods read these and no others.

    Nothing leaves its site, so there is no line in the transfer log.

    Raises:
        Missing: no object of it is.
        SyncIncomplete: the tags of some objects could not be read.
    """
    home = services.cluster(dataset.home)
    site = limited_to(part, home)
    report = record_part(
        services.stores(home.name).datasets,
        DatasetUse(name=dataset.name, part=part).record_at(home),
        dataset.scope,
        admit=admits(dataset, site),
        tag_rules=tag_rules(dataset, site),
        now=services.clock(),
    )
    return require_whole(report, home.name)
