"""Bring the ledger to this release's schema and give both object stores their buckets; twice changes nothing."""

from __future__ import annotations

import json
import os

from spillway.connections import ConnectionSpec, database_url
from spillway.ledger import upgrade
from spillway.runs.local import LEDGER_CONNECTION
from spillway.sandbox.configuration import BUCKETS
from spillway.sandbox.objectstore import ADMIN_ACTIONS, Identity, create_buckets

SITES = ("onprem", "cloud")


def connection(conn_id: str) -> ConnectionSpec:
    """A Connection as Airflow reads it from the environment."""
    return ConnectionSpec(conn_id=conn_id, **json.loads(os.environ[f"AIRFLOW_CONN_{conn_id.upper()}"]))


def main() -> None:
    upgrade(database_url(connection(LEDGER_CONNECTION)))
    for site in SITES:
        store = connection(f"{site}_store")
        mover = Identity(
            name=store.login or "", access_key=store.login or "", secret_key=store.password or "", actions=ADMIN_ACTIONS
        )
        create_buckets(store.extra["endpoint_url"], mover, BUCKETS)


if __name__ == "__main__":
    main()
