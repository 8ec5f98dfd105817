"""Assets that connect DAGs: what was trained, what was synced."""

from __future__ import annotations

from airflow.sdk import Asset

CHECKPOINTS = Asset("spillway://checkpoints", group="spillway")


def dataset_asset(name: str) -> Asset:
    """Updated whenever the dataset was synced to a site."""
    return Asset(f"spillway://datasets/{name}", group="spillway")
