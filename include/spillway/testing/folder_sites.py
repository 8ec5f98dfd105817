"""Sites whose stores and registries are folders, for tests of what goes where and of nothing else."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, cast

from spillway.connections import ConnectionSpec
from spillway.model import Cluster
from spillway.registries.layout import LayoutRegistry
from spillway.runs.services import OpenSite, Site
from spillway.stores.local import LocalStore


def folder_sites(root: Path, **fields: Any) -> OpenSite:
    """How a site below ``root`` is opened; it has no cluster to ask. ``fields`` replace those of each site."""

    def open_site(cluster: Cluster) -> Site:
        folder, nobody = root / cluster.name, ConnectionSpec(conn_id="nobody", conn_type="aws")
        for bucket in ("datasets", "checkpoints"):
            (folder / bucket).mkdir(parents=True, exist_ok=True)
        made: Mapping[str, Any] = {
            "cluster": cluster,
            "client": cast(Any, None),
            "datasets": LocalStore(folder / "datasets"),
            "checkpoints": LocalStore(folder / "checkpoints"),
            "registry": LayoutRegistry(folder / "images"),
            "pod_store": nobody,
            "pull": nobody,
        }
        return Site(**{**made, **fields})

    return open_site
