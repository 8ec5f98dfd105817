"""Assets that connect DAGs: what was trained, what was synced."""

from __future__ import annotations

from airflow.sdk import Asset, AssetAlias

CHECKPOINTS = Asset("spillway://checkpoints", group="spillway")
SYNCED = AssetAlias("synced-datasets", group="spillway")
"""Stands for the assets of the datasets that a sync has really changed somewhere."""


def dataset_asset(name: str) -> Asset:
    """Updated whenever the dataset was synced to a site."""
    return Asset(f"spillway://datasets/{name}", group="spillway")
