"""The only plugin module that Airflow loads; the package beside it is imported by DAGs like any library."""

from __future__ import annotations

from airflow.plugins_manager import AirflowPlugin

from spillway_airflow import preload
from spillway_airflow.pages import PREFIX, pages, views
from spillway_airflow.timetables import LastWeekOfMonth


class SpillwayPlugin(AirflowPlugin):
    name = "spillway"
    listeners = [preload]  # noqa: RUF012
    fastapi_apps = [{"app": pages, "url_prefix": PREFIX, "name": "Spillway"}]  # noqa: RUF012
    external_views = views()
    timetables = [LastWeekOfMonth]  # noqa: RUF012
