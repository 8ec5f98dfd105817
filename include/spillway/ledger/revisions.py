"""Brings a ledger to the schema of this release, and refuses to work on any other."""

from __future__ import annotations

import threading

from sqlalchemy import Connection, inspect, text

from spillway.errors import ConfigError
from spillway.ledger.connection import Database
from spillway.ledger.failures import UPGRADE
from spillway.ledger.schema import REVISION, VERSION_TABLE

_one_at_a_time = threading.Lock()


def upgrade(url: str) -> None:
    """Create the ledger or bring it to this release's schema; a ledger that is there already is left as it is.

    Raises:
        ConfigError: the URL is wrong, or a newer release has written this ledger.
    """
    database = Database(url, create=True)
    # Alembic keeps the migration it runs in a module variable.
    with _one_at_a_time, database.writing() as connection:
        if _revision(connection, database.endpoint) != REVISION:
            _migrate(connection)


def check(database: Database) -> None:
    """Return when the ledger has this release's schema.

    Raises:
        ConfigError: it has none, an older or a newer one.
    """
    with database.reading() as connection:
        require(connection, database.endpoint)


def require(connection: Connection, endpoint: str) -> None:
    """As ``check``, in a transaction that is under way: another release may have upgraded the ledger meanwhile."""
    found = _revision(connection, endpoint)
    if found != REVISION:
        seen = "holds no ledger yet" if found is None else f"has the older schema {found}"
        raise ConfigError(endpoint, "", f"{seen}, expected schema {REVISION}; {UPGRADE}")


def _revision(connection: Connection, endpoint: str) -> str | None:
    if not inspect(connection).has_table(VERSION_TABLE):
        return None
    found: str | None = connection.execute(text(f"SELECT version_num FROM {VERSION_TABLE}")).scalar()
    if found is not None and found > REVISION:
        raise ConfigError(
            endpoint, "", f"has schema {found}, newer than {REVISION} of this release; upgrade Spillway to open it"
        )
    return found


def _migrate(connection: Connection) -> None:
    from alembic import command
    from alembic.config import Config

    config = Config(attributes={"connection": connection})
    config.set_main_option("script_location", "spillway.ledger:migrations")
    command.upgrade(config, REVISION)
