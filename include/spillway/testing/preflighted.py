"""A site as preflight sees it: one without gaps, of which a test replaces a part."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Any

from spillway.clouds.rights import Right
from spillway.model import Cluster, ClusterState
from spillway.preflight import Gap, SiteAccess, preflight
from spillway.registries.layout import LayoutRegistry
from spillway.stores.local import LocalStore
from spillway.testing.builders import cluster_state, onprem_cluster

CLUSTER = onprem_cluster()


@dataclass
class KnownCluster:
    """A cluster in the state that a test gives it, asked as a real one would be."""

    state: ClusterState = field(default_factory=lambda: cluster_state(CLUSTER))
    clock_ahead: timedelta | None = timedelta(0)
    has_namespace: bool = True
    lacking: tuple[Right, ...] | None = ()

    @property
    def cluster(self) -> Cluster:
        return self.state.cluster

    def describe(self) -> ClusterState:
        assert not any(right.everywhere and right.to_run for right in self.lacking or ()), (
            "what must not be asked is not asked"
        )
        return self.state

    def missing_rights(self) -> tuple[Right, ...] | None:
        return self.lacking

    def namespace_exists(self) -> bool:
        assert all(right.resource != "namespaces" for right in self.lacking or ()), (
            "what must not be asked is not asked"
        )
        return self.has_namespace

    def __getattr__(self, name: str) -> Any:
        raise AttributeError(f"preflight must not call {name}")


def whole_site(directory: Path) -> SiteAccess:
    """A site without gaps, its stores and images in the directory."""
    for name in ("datasets", "checkpoints"):
        (directory / name).mkdir()
    return SiteAccess(
        cluster=CLUSTER,
        client=KnownCluster(),  # type: ignore[arg-type]
        datasets=LocalStore(directory / "datasets"),
        checkpoints=LocalStore(directory / "checkpoints"),
        registry=LayoutRegistry(directory / "images"),
    )


def the_gap(site: SiteAccess) -> Gap:
    """The only one of the site."""
    (gap,) = preflight([site])
    return gap
