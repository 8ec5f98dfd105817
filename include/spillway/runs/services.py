"""What carrying out a run needs from outside: clients of every site, the ledger, a clock."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime

from spillway.checkpoints.store import CheckpointStore
from spillway.clouds.base import ClusterClient
from spillway.config import Configuration
from spillway.connections import ConnectionSpec
from spillway.errors import SpillwayError, UnknownName
from spillway.ledger import Ledger
from spillway.model import Cluster, Dataset, SiteKind
from spillway.registries.base import ImageRegistry
from spillway.stores.base import ObjectStore


@dataclass(frozen=True, slots=True, kw_only=True)
class Site:
    """One site's clients. ``pod_store`` is the Connection whose identity training pods get."""

    cluster: Cluster
    client: ClusterClient
    datasets: ObjectStore
    checkpoints: ObjectStore
    registry: ImageRegistry
    pod_store: ConnectionSpec
    pull: ConnectionSpec


OpenSite = Callable[[Cluster], Site]
Say = Callable[[str], None]
"""Tells a person what was done, a line or a table at a time."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Services:
    """The edges of a run. Sites open on first use, so that one site's broken Connection stops only what needs it."""

    configuration: Configuration
    ledger: Ledger
    open_site: OpenSite
    clock: Callable[[], datetime] = lambda: datetime.now(UTC)
    _opened: dict[str, Site] = field(default_factory=dict)

    def site(self, name: str) -> Site:
        """The site's clients.

        Raises:
            UnknownName: no such cluster is declared.
            SpillwayError: what opening it raised, e.g. a Connection that is not there.
        """
        if name not in self.configuration.clusters:
            raise UnknownName("cluster", name, self.configuration.clusters)
        if name not in self._opened:
            self._opened[name] = self.open_site(self.configuration.clusters[name])
        return self._opened[name]

    def dataset(self, name: str) -> Dataset:
        """The declared dataset; raises UnknownName where there is none."""
        if name not in self.configuration.datasets:
            raise UnknownName("dataset", name, self.configuration.datasets)
        return self.configuration.datasets[name]

    def forget(self, name: str) -> None:
        """Open the site anew on its next use: credentials are read again, connections made again."""
        self._opened.pop(name, None)

    def clients(self) -> Mapping[str, ClusterClient | SpillwayError]:
        """A client for every declared cluster, or the reason why there is none."""
        found: dict[str, ClusterClient | SpillwayError] = {}
        for name in self.configuration.clusters:
            try:
                found[name] = self.site(name).client
            except SpillwayError as problem:
                found[name] = problem
        return found

    @property
    def image_home(self) -> str:
        """The site whose registry people push to: the first on-premises one."""
        clusters = self.configuration.clusters.values()
        return next((c.name for c in clusters if c.kind is SiteKind.ONPREM), next(iter(self.configuration.clusters)))

    def checkpoint_stores(self, run: str) -> Mapping[str, CheckpointStore]:
        """The run's checkpoints by site, where they may be stored; sites that cannot be opened are left out."""
        tier = self.ledger.job(run).tier
        found = {}
        for name, cluster in self.configuration.clusters.items():
            try:
                if cluster.may_hold(tier):
                    found[name] = CheckpointStore(self.site(name).checkpoints, run)
            except SpillwayError:
                continue
        return found
