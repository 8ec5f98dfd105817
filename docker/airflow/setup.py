"""Bring the ledger to this release's schema and give both object stores their buckets; twice changes nothing."""

from __future__ import annotations

import os
from pathlib import Path

from spillway.connections import connections_from_file, database_url
from spillway.ledger import upgrade
from spillway.runs.local import LEDGER_CONNECTION
from spillway.sandbox.configuration import BUCKETS
from spillway.sandbox.objectstore import ADMIN_ACTIONS, Identity, create_buckets

SITES = ("onprem", "cloud")


def main() -> None:
    connections = connections_from_file(Path(os.environ["SPILLWAY_CONNECTIONS"]))
    upgrade(database_url(connections[LEDGER_CONNECTION]))
    for site in SITES:
        store = connections[f"{site}_store"]
        mover = Identity(
            name=store.login or "", access_key=store.login or "", secret_key=store.password or "", actions=ADMIN_ACTIONS
        )
        create_buckets(store.extra["endpoint_url"], mover, BUCKETS)


if __name__ == "__main__":
    main()
