"""Pages of the Airflow UI, made on the server from the ledger alone.

Every process that Airflow starts loads the plugin, and only the API server has a use for its pages: their modules and
FastAPI's are imported with the first request.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any
from urllib.parse import urlsplit

PREFIX = "/spillway"

Message = MutableMapping[str, Any]


async def pages(
    scope: Message, receive: Callable[[], Awaitable[Message]], send: Callable[[Message], Awaitable[None]]
) -> None:
    """The ASGI application that Airflow mounts at ``PREFIX``."""
    from spillway_airflow.pages.app import app

    await app(scope, receive, send)


def views() -> list[dict[str, str]]:
    """Where the UI shows them: a tab of each task and of each DAG run, and the newest decisions under Browse."""
    from airflow.configuration import conf

    at = urlsplit(conf.get("api", "base_url", fallback="")).path.rstrip("/") + PREFIX
    asked_by = f"{at}/asked-by?dag_id={{DAG_ID}}&run_id={{RUN_ID}}"
    return [
        {
            "name": "Placement",
            "href": f"{asked_by}&task_id={{TASK_ID}}&map_index={{MAP_INDEX}}",
            "url_route": "placement",
            "destination": "task_instance",
        },
        {"name": "Placement", "href": asked_by, "url_route": "placements", "destination": "dag_run"},
        {
            "name": "Placement decisions",
            "href": f"{at}/decisions",
            "url_route": "placement-decisions",
            "destination": "nav",
            "category": "browse",
        },
        {
            "name": "GPU demand",
            "href": f"{at}/demand",
            "url_route": "gpu-demand",
            "destination": "nav",
            "category": "browse",
        },
    ]
