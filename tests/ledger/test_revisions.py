from __future__ import annotations

import multiprocessing
from collections.abc import Callable

import pytest
from alembic.autogenerate import compare_metadata
from alembic.config import Config
from alembic.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import text

from spillway.errors import ConfigError
from spillway.ledger import Ledger, open_ledger, upgrade
from spillway.ledger.connection import Database
from spillway.ledger.schema import REVISION, VERSION_TABLE, metadata
from spillway.testing.builders import job_spec
from spillway.testing.ledger_values import NOW


def test_the_migrations_make_the_tables_that_the_code_uses(ledger: Ledger) -> None:
    with ledger.engine.connect() as connection:
        context = MigrationContext.configure(connection, opts={"version_table": VERSION_TABLE})
        assert compare_metadata(context, metadata) == []


def test_the_revision_of_the_code_is_the_newest_migration() -> None:
    config = Config()
    config.set_main_option("script_location", "spillway.ledger:migrations")
    assert ScriptDirectory.from_config(config).get_current_head() == REVISION


def test_a_second_upgrade_leaves_what_is_stored(ledger_url: str) -> None:
    ledger = open_ledger(ledger_url)
    ledger.open_run("r", job_spec(), {}, NOW)
    before = ledger.runs()
    upgrade(ledger_url)
    assert open_ledger(ledger_url).runs() == before


def test_an_empty_database_is_not_opened(new_database: Callable[[], str]) -> None:
    with pytest.raises(ConfigError, match=r"holds no ledger yet, expected schema 0001; run spillway\.ledger\.upgrade"):
        open_ledger(new_database())


@pytest.mark.parametrize(
    ("revision", "message"),
    [
        ("0000", "has the older schema 0000, expected schema 0001; run spillway.ledger.upgrade"),
        ("0002", "has schema 0002, newer than 0001 of this release; upgrade Spillway to open it"),
    ],
    ids=["older", "newer"],
)
def test_a_ledger_of_another_release_is_not_opened(
    new_database: Callable[[], str], revision: str, message: str
) -> None:
    url = _of_revision(revision, new_database())
    with pytest.raises(ConfigError) as refused:
        open_ledger(url)
    assert message in str(refused.value)


def test_a_ledger_of_a_newer_release_is_not_upgraded(new_database: Callable[[], str]) -> None:
    url = _of_revision("0002", new_database())
    with pytest.raises(ConfigError, match="newer than 0001"):
        upgrade(url)


def test_a_database_that_another_program_migrates_too_can_hold_the_ledger(new_database: Callable[[], str]) -> None:
    url = new_database()
    with Database(url).writing() as connection:
        connection.execute(text("CREATE TABLE alembic_version (version_num VARCHAR(32))"))
        connection.execute(text("INSERT INTO alembic_version VALUES ('another-program')"))
    upgrade(url)
    with open_ledger(url).engine.connect() as connection:
        assert connection.execute(text("SELECT version_num FROM alembic_version")).scalar() == "another-program"


def test_processes_that_upgrade_at_the_same_time_make_one_ledger(new_database: Callable[[], str]) -> None:
    url = new_database()
    fork = multiprocessing.get_context("fork")
    processes = [fork.Process(target=upgrade, args=(url,)) for _ in range(4)]
    for process in processes:
        process.start()
    for process in processes:
        process.join(60)
    assert [process.exitcode for process in processes] == [0, 0, 0, 0]
    assert open_ledger(url).runs() == ()


def _of_revision(revision: str, url: str) -> str:
    """The URL of a ledger that says it has that revision."""
    upgrade(url)
    with Database(url).writing() as connection:
        connection.execute(text(f"UPDATE {VERSION_TABLE} SET version_num = '{revision}'"))
    return url
