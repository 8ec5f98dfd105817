"""What carrying out a run needs from outside: clients of every site, the ledger, a clock."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Protocol, runtime_checkable

from spillway.clouds.base import ClusterClient, NodePoolScaler
from spillway.config import Configuration
from spillway.connections import ConnectionSpec
from spillway.errors import Missing, SpillwayError, UnknownName
from spillway.model import Attempt, Cluster, Dataset, ImageUse, JobSpec, PodPhase, PodState, Tier
from spillway.registries.base import ImageRegistry
from spillway.stores.base import ObjectStore

if TYPE_CHECKING:
    from spillway.checkpoints.store import CheckpointStore
    from spillway.ledger import Ledger


@dataclass(frozen=True, slots=True, kw_only=True)
class Site:
    """One site's clients. ``pod_store`` is the Connection whose identity training pods get.

    ``public_datasets`` are the datasets as an identity sees them that can read public ones only; None where the site
    declares none.
    ``store_tls`` and ``registry_tls``: whether what is moved is encrypted on its way; None where that is not known.
    """

    cluster: Cluster
    client: ClusterClient
    datasets: ObjectStore
    checkpoints: ObjectStore
    registry: ImageRegistry
    pod_store: ConnectionSpec
    pull: ConnectionSpec
    public_datasets: ObjectStore | None = None
    store_tls: bool | None = None
    registry_tls: bool | None = None


OpenSite = Callable[[Cluster], Site]
Connect = Callable[[str], ConnectionSpec]
"""Gives the Connection of that name; raises Missing where there is none."""


@runtime_checkable
class OpensStores(Protocol):
    """An ``OpenSite`` that can open a site for whoever moves bytes.

    Such a one waits for stores that are away, and needs no cluster, whose client library takes a second to load.
    """

    def stores(self, cluster: Cluster) -> Site:
        """The site, its ``client`` left out."""


RECENT = timedelta(hours=24)
"""How long after its end a run's checkpoints and its image are still looked after."""

Say = Callable[[str], None]
"""Tells a person what was done, a line or a table at a time."""


def _no_connection(name: str) -> ConnectionSpec:
    raise Missing("Connection", name, "services that know none")


@dataclass(frozen=True, slots=True, kw_only=True)
class Services:
    """The edges of a run. Sites open on first use, so that one site's broken Connection stops only what needs it.

    So does the ledger: who moves nothing need not wait for a database. ``open_ledger`` gives the same one each time.
    ``image_uses`` reads the job files anew; raises ConfigError where one of them cannot be read at all.
    ``actor`` is who asks, for the transfer log: ``dag/run/task`` or ``user@host``; None where nobody said.
    """

    configuration: Configuration
    open_ledger: Callable[[], Ledger]
    open_site: OpenSite
    image_uses: Callable[[], Collection[ImageUse]]
    connect: Connect = _no_connection
    actor: str | None = None
    clock: Callable[[], datetime] = lambda: datetime.now(UTC)
    _opened: dict[str, Site] = field(default_factory=dict)
    _stores: dict[str, Site] = field(default_factory=dict)

    @property
    def ledger(self) -> Ledger:
        """The ledger.

        Raises:
            ConfigError, Unreachable, AccessDenied: it cannot be opened, or is of another release.
        """
        return self.open_ledger()

    def site(self, name: str) -> Site:
        """The site's clients.

        Raises:
            UnknownName: no such cluster is declared.
            SpillwayError: what opening it raised, e.g. a Connection that is not there.
        """
        cluster = self.cluster(name)
        if name not in self._opened:
            self._opened[name] = self.open_site(cluster)
        return self._opened[name]

    def stores(self, name: str) -> Site:
        """The site for whoever moves bytes: patient stores and the registry, and its ``client`` perhaps left out.

        Raises:
            UnknownName, SpillwayError: as ``site`` does.
        """
        opener: object = self.open_site
        if not isinstance(opener, OpensStores):
            return self.site(name)
        if name not in self._stores:
            self._stores[name] = opener.stores(self.cluster(name))
        return self._stores[name]

    def cluster(self, name: str) -> Cluster:
        """The declared cluster; raises UnknownName where there is none."""
        if name not in self.configuration.clusters:
            raise UnknownName("cluster", name, self.configuration.clusters)
        return self.configuration.clusters[name]

    def pod(self, attempt: Attempt) -> PodState:
        """The attempt's pod as it is now; phase GONE where there is none.

        One of its name that another installation launched, or anybody else, counts as none: what it does is not the
        attempt's, and it is not ours to stop. Pods of older releases say nothing of whose they are; theirs is the uid.

        Raises:
            Unreachable, AccessDenied: as the cluster's client does.
        """
        pod = self.site(attempt.candidate.cluster).client.state(attempt.label, last_node=attempt.node)
        unmarked = pod.installation is None and pod.uid == attempt.pod_uid
        if pod.phase is PodPhase.GONE or unmarked or pod.installation == self.ledger.installation():
            return pod
        return PodState(name=pod.name, phase=PodPhase.GONE, cluster=pod.cluster)

    def store_site(self, job: JobSpec, cluster: str) -> str:
        """The site whose stores a pod of the job at that cluster works with: what it reads and what it commits.

        Its own, where the job's data may be stored there; else the home of its only dataset, over the link. So what is
        made from core data is stored where that may be, wherever it is made.
        """
        named = [self.configuration.datasets.get(use.name) for use in job.datasets]
        dataset = named[0] if len(named) == 1 else None
        return cluster if dataset is None or self.cluster(cluster).may_hold(job.tier) else dataset.home

    def tier_of(self, job: JobSpec) -> Tier:
        """The tier of whatever is made by the job, by what is declared now: core also where its data became core since.

        What was core when the job was asked for stays core.
        """
        datasets = self.configuration.datasets
        read = (use.tier_of(datasets[use.name]) for use in job.datasets if use.name in datasets)
        return Tier.CORE if Tier.CORE in {job.tier, *read} else job.tier

    def checkpoints(self, attempt: Attempt) -> ObjectStore:
        """The bucket that the attempt's pod commits to; raises as ``site`` does."""
        return self.site(self.store_site(attempt.job, attempt.candidate.cluster)).checkpoints

    def recent_attempts(self) -> tuple[Attempt, ...]:
        """The newest attempt of every run that is open or ended a short while ago."""
        return self.ledger.recent_attempts(self.clock() - RECENT)

    def dataset(self, name: str) -> Dataset:
        """The declared dataset; raises UnknownName where there is none."""
        if name not in self.configuration.datasets:
            raise UnknownName("dataset", name, self.configuration.datasets)
        return self.configuration.datasets[name]

    def scaler(self, name: str) -> NodePoolScaler | None:
        """What scales the site's node pools; None where it has none that can be scaled. Raises as ``site`` does."""
        from spillway.runs.scalers import open_scaler

        return open_scaler(self.cluster(name), self.site(name).client, self.connect)

    def forget(self, name: str) -> None:
        """Open the site anew on its next use: credentials are read again, connections made again."""
        self._opened.pop(name, None)
        self._stores.pop(name, None)

    def sites(self) -> Mapping[str, Site | SpillwayError]:
        """Every declared site's clients, or the reason why there are none."""
        found: dict[str, Site | SpillwayError] = {}
        for name in self.configuration.clusters:
            try:
                found[name] = self.site(name)
            except SpillwayError as problem:
                found[name] = problem
        return found

    def clients(self) -> Mapping[str, ClusterClient | SpillwayError]:
        """A client for every declared cluster, or the reason why there is none."""
        return {n: site if isinstance(site, SpillwayError) else site.client for n, site in self.sites().items()}

    @property
    def image_home(self) -> str:
        return self.configuration.image_home

    def checkpoint_stores(self, run: str) -> Mapping[str, CheckpointStore]:
        """The run's checkpoints by site, where they may be stored; sites that cannot be opened are left out."""
        from spillway.checkpoints.store import CheckpointStore

        tier = self.ledger.job(run).tier
        found = {}
        for name, cluster in self.configuration.clusters.items():
            try:
                if cluster.may_hold(tier):
                    found[name] = CheckpointStore(self.site(name).checkpoints, run)
            except SpillwayError:
                continue
        return found
