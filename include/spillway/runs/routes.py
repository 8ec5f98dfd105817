"""The one door between two sites: it asks whether bytes may go, gives the two ends, and notes what became of it."""

from __future__ import annotations

import dataclasses
import logging
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, closing, contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from spillway.errors import ResidencyRefused, SpillwayError
from spillway.errors.counts import counted
from spillway.ledger import Transfer, TransferKind, TransferOutcome
from spillway.lines import link_between
from spillway.model import Dataset, Tier
from spillway.registries.limited import LimitedRegistry
from spillway.runs.links import LinkShare
from spillway.runs.services import Services, Site
from spillway.runs.sites import store_endpoint
from spillway.stores.base import list_data
from spillway.stores.limited import LimitedStore
from spillway.sync.progress import Expect, Moving, OnProgress
from spillway.threads import told_to_end

if TYPE_CHECKING:
    from spillway.checkpoints.store import CheckpointStore

_log = logging.getLogger(__name__)

_OTHER_TIER = {
    TransferKind.DATASET: "its owner can declare another tier in datasets.yaml",
    TransferKind.IMAGE: "declare another tier in the job file that uses it, or with --tier where none does",
    TransferKind.CHECKPOINT: "it is of the tier of its job's data; keep the run where that may be stored",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Shipment:
    """What is to go from one site to another, before anybody has said that it may.

    ``run`` is None where no run asks for it. ``fix`` is what can be done where another declaration than the data's own
    is in the way.
    """

    kind: TransferKind
    name: str
    tier: Tier
    source: str
    destination: str
    run: str | None = None
    fix: str | None = None


class OpenRoute:
    """Both ends of a shipment that may go, for the length of the block that opened it.

    Datasets for a site without core data are read with the identity that cannot read any, where the source has one.
    The data that is read keeps to the transfer's share of the link, and is counted.
    """

    def __init__(self, services: Services, line: Transfer, source: Site, destination: Site) -> None:
        self._services, self._line, self._began = services, line, time.monotonic()
        self._share = LinkShare(services, line.kind, link_between(source.cluster, destination.cluster))
        self._recorded_bytes = 0
        self._moving = Moving()
        if source.public_datasets is not None and not destination.cluster.may_hold(Tier.CORE):
            source = dataclasses.replace(source, datasets=source.public_datasets)
        self.destination = destination
        self.source = dataclasses.replace(
            source,
            datasets=LimitedStore(source.datasets, self._take),
            registry=LimitedRegistry(source.registry, self._take),
        )

    def _take(self, size_bytes: int) -> None:
        self._share.take(size_bytes)
        self._moving.moved(size_bytes)

    def follow(self, on_progress: OnProgress | None) -> Expect:
        """Tell how far the bytes are that move from now on; gives what the mover tells beforehand how many they are."""
        self._moving = Moving(on_progress)
        return self._moving.expect

    def begin(self) -> None:
        """Something is about to move: others are to make room for it on the link.

        Raises:
            SpillwayError: the ledger cannot be opened: nothing goes whose line could not be written.
        """
        self._share.claim()

    def under_way(self, size_bytes: int) -> AbstractContextManager[None]:
        """A block in which so many bytes are under way at once; see ``LinkShare``."""
        return self._share.under_way(size_bytes)

    def checkpoints(self, run: str) -> tuple[CheckpointStore, CheckpointStore]:
        """The run's checkpoints at the source and at the destination."""
        from spillway.checkpoints.store import CheckpointStore

        here, there = self.source.checkpoints, self.destination.checkpoints
        return CheckpointStore(here, run, parts=LimitedStore(here, self._take)), CheckpointStore(there, run)

    @property
    def moved_bytes(self) -> int:
        """The data that was read at the source so far (objects, blobs, parts), whether or not it arrived."""
        return self._share.moved_bytes

    def close(self) -> None:
        """Give the share of the link back."""
        self._share.leave()

    def record(
        self,
        outcome: TransferOutcome,
        *,
        size_bytes: int = 0,
        name: str | None = None,
        reason: str | None = None,
        objects_copied: int | None = None,
        objects_unchanged: int | None = None,
    ) -> None:
        """Write the line of what was moved, or of what was not; ``name`` where more is known of it by now.

        What was read at the source and is on no line yet is on that of a failure: it has left, whatever became of it.
        """
        if outcome is TransferOutcome.FAILED:
            size_bytes = max(size_bytes, self.moved_bytes - self._recorded_bytes)
        self._services.ledger.record_transfer(
            dataclasses.replace(
                self._line,
                outcome=outcome,
                size_bytes=size_bytes,
                name=name or self._line.name,
                reason=reason,
                objects_copied=objects_copied,
                objects_unchanged=objects_unchanged,
                seconds=round(time.monotonic() - self._began, 3),
            )
        )
        self._recorded_bytes += size_bytes

    def record_unchanged(self, *, name: str | None = None, objects_unchanged: int | None = None) -> None:
        """Write the line of a run whose data is there already; where no run asked, what went nowhere has none."""
        if self._line.run is not None:
            self.record(TransferOutcome.UNCHANGED, name=name, objects_unchanged=objects_unchanged)

    def withhold(self, objects: int) -> None:
        """Write the line of core objects that a sync left where they are, a counted group without their names."""
        here, there = self._line.source, self._line.destination
        self._refuse(objects, f"of tier '{Tier.CORE}' kept at '{here}', '{there}' may not store that tier")

    def bar(self, objects: int) -> None:
        """Write the line of objects that a sync refused by name, because their tags say core or could not be read."""
        self._refuse(objects, "refused, because of tags or because nobody could read these")

    def _refuse(self, objects: int, reason: str) -> None:
        refused = dataclasses.replace(
            self._line,
            tier=Tier.CORE,
            outcome=TransferOutcome.REFUSED,
            reason=f"{counted(objects, 'object')} {reason}",
            objects_withheld=objects,
        )
        self._services.ledger.record_transfer(refused)


@contextmanager
def open_route(services: Services, shipment: Shipment, *, dry_run: bool = False) -> Iterator[OpenRoute]:
    """The way from one site to another for a shipment that may go there; a refusal is a line in the transfer log.

    Nothing but the declarations is asked: what may not be stored at a site is refused whoever is lost, and in a dry run
    too. A block that fails is a line as well, unless it is a dry run, also where its process is told to end; one that
    succeeds records its own.

    Raises:
        UnknownName: no such cluster is declared.
        ResidencyRefused: the destination may not store what is of this tier.
        SpillwayError: what opening one of the sites raised.
    """
    line = _line(services, shipment)
    if not services.cluster(shipment.destination).may_hold(shipment.tier):
        raise refusal(services, shipment)
    route: OpenRoute | None = None
    try:
        source, destination = services.stores(shipment.source), services.stores(shipment.destination)
        line = dataclasses.replace(line, tls=_encrypted(shipment.kind, source, destination))
        with closing(OpenRoute(services, line, source, destination)) as route:
            yield route
    except BaseException as problem:
        if not dry_run:
            _record_failure(services, line, route, _reason(problem))
        raise


def let_read(services: Services, dataset: Dataset, target: str, *, run: str | None = None) -> str:
    """The Connection with which pods at a site that may not store the dataset read it at its home, over the link.

    Raises:
        ResidencyRefused: they may not; that is a line in the transfer log.
    """
    if dataset.remote_read is None:
        raise refusal(services, _reading(dataset, target, run))
    return dataset.remote_read


def note_reading(services: Services, dataset: Dataset, target: str, *, run: str) -> None:
    """Write the line of a pod at the target that reads the dataset at its home: what it may read, once over.

    Raises:
        ResidencyRefused: it may not.
        SpillwayError: the home cannot tell what there is to read.
    """
    endpoint = store_endpoint(services.connect(let_read(services, dataset, target, run=run)))
    objects = list_data(services.stores(dataset.home).datasets, dataset.prefix)
    sizes = [entry.size_bytes for entry in objects if dataset.scope.holds(entry.key)]
    line = dataclasses.replace(
        _line(services, _reading(dataset, target, run)),
        outcome=TransferOutcome.READ,
        size_bytes=sum(sizes),
        tls=urlsplit(endpoint).scheme == "https",
        reason=f"a pod may read {counted(len(sizes), 'object')} over the link; {_kept(services, dataset, target)}",
    )
    services.ledger.record_transfer(line)


def _kept(services: Services, dataset: Dataset, target: str) -> str:
    if dataset.cache is None or services.cluster(target).object_store.cache_bucket is None:
        return f"none is stored at '{target}'"
    return f"up to {dataset.cache.max_gib:g} GiB of them are kept at '{target}', encrypted"


def _reading(dataset: Dataset, target: str, run: str | None) -> Shipment:
    return Shipment(
        kind=TransferKind.DATASET,
        name=dataset.name,
        tier=Tier.CORE,
        source=dataset.home,
        destination=target,
        run=run,
        fix="its owner can declare another tier in datasets.yaml, or let pods read it at its home with remote_read",
    )


def _line(services: Services, shipment: Shipment) -> Transfer:
    return Transfer(
        kind=shipment.kind,
        name=shipment.name,
        tier=shipment.tier,
        source=shipment.source,
        destination=shipment.destination,
        size_bytes=0,
        at=services.clock(),
        outcome=TransferOutcome.UNCHANGED,
        run=shipment.run,
        actor=services.actor,
    )


def refusal(services: Services, shipment: Shipment) -> ResidencyRefused:
    """The refusal of a shipment, which is a line in the transfer log by now."""
    refused = ResidencyRefused(
        f"{shipment.kind} '{shipment.name}'",
        tier=shipment.tier,
        source=shipment.source,
        destination=shipment.destination,
        fix=shipment.fix or _OTHER_TIER[shipment.kind],
    )
    line = dataclasses.replace(_line(services, shipment), outcome=TransferOutcome.REFUSED, reason=str(refused))
    services.ledger.record_transfer(line)
    return refused


def _encrypted(kind: TransferKind, source: Site, destination: Site) -> bool | None:
    """Whether both ends speak TLS; None where that is not known of one."""
    image = kind is TransferKind.IMAGE
    ends = {site.registry_tls if image else site.store_tls for site in (source, destination)}
    return None if None in ends else ends == {True}


def _reason(problem: BaseException) -> str:
    if isinstance(problem, SpillwayError):
        return str(problem)
    what = f"{type(problem).__name__}: {problem}" if str(problem) else type(problem).__name__
    return f"it was ended before it was done ({what})" if told_to_end(type(problem)) else what


def _record_failure(services: Services, line: Transfer, route: OpenRoute | None, reason: str) -> None:
    """Note a transfer that failed; where that fails too, the first problem is the one to tell."""
    failed = dataclasses.replace(line, outcome=TransferOutcome.FAILED, reason=reason)
    try:
        if route is None:
            services.ledger.record_transfer(failed)
        else:
            route.record(TransferOutcome.FAILED, reason=reason)
    except SpillwayError as silent:
        if str(silent) == reason:
            return
        _log.warning("the failed transfer of %s %s could not be recorded: %s", line.kind, line.name, silent)
