"""Jobs that read the public part of a dataset alone: what keeps the rest from them wherever both lie."""

from __future__ import annotations

from spillway.ledger import TransferKind
from spillway.model import Attempt, Dataset, DatasetUse, JobSpec, Tier
from spillway.runs.moving_datasets import require_whole
from spillway.runs.residency import admits, limited_to, tag_rules
from spillway.runs.routes import Shipment, refusal
from spillway.runs.services import Services
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
        what = Shipment(
            kind=TransferKind.DATASET,
            name=dataset.name,
            tier=Tier.CORE,
            source=dataset.home,
            destination=target,
            run=run,
            fix=fix,
        )
        raise refusal(services, what)


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
