"""Assets that connect DAGs: what was trained, what was synced."""

from __future__ import annotations

from airflow.sdk import Asset, AssetAlias

CHECKPOINTS = Asset("spillway://checkpoints", group="spillway")
SYNCED = AssetAlias("synced-datasets", group="spillway")
"""Stands for the assets of the datasets that a sync has really changed somewhere."""
REPLICATED = AssetAlias("replicated-checkpoints", group="spillway")
"""Stands for the assets of the jobs whose checkpoints have arrived at another site."""


def checkpoint_asset(job: str) -> Asset:
    """Updated whenever a committed step of one of the job's runs has arrived at another site."""
    return Asset(f"spillway://checkpoints/{job}", group="spillway")


def dataset_asset(name: str) -> Asset:
    """Updated whenever the dataset was synced to a site."""
    return Asset(f"spillway://datasets/{name}", group="spillway")
