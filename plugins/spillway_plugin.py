"""The only plugin module that Airflow loads; the package beside it is imported by DAGs like any library."""

from __future__ import annotations

from airflow.plugins_manager import AirflowPlugin

from spillway_airflow import preload


class SpillwayPlugin(AirflowPlugin):
    name = "spillway"
    listeners = [preload]  # noqa: RUF012
