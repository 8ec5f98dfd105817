from __future__ import annotations

import dataclasses
import multiprocessing
import uuid
from collections.abc import Callable
from datetime import timedelta
from decimal import Decimal

import pytest
from alembic.autogenerate import compare_metadata
from alembic.config import Config
from alembic.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import CheckConstraint, inspect, select, text

from spillway.errors import ConfigError
from spillway.ledger import Ledger, Transfer, TransferKind, TransferOutcome, open_ledger, upgrade
from spillway.ledger.connection import Database
from spillway.ledger.schema import REVISION, VERSION_TABLE, installation, metadata
from spillway.model import Attempt, Billing, Budget, LateRun, Outcome, PoolTarget, Tier, VerdictKind
from spillway.testing.builders import job_spec, placement_policy
from spillway.testing.elastic import scaling_look
from spillway.testing.ledger_values import NOW, a_cost, reserved

NEWER = f"{int(REVISION) + 1:04}"


def test_the_migrations_make_the_tables_that_the_code_uses(ledger: Ledger) -> None:
    with ledger.engine.connect() as connection:
        context = MigrationContext.configure(connection, opts={"version_table": VERSION_TABLE})
        assert compare_metadata(context, metadata) == []
        made = inspect(connection)
        for name, table in metadata.tables.items():
            checks = sorted(str(check.name) for check in table.constraints if isinstance(check, CheckConstraint))
            assert sorted(str(check["name"]) for check in made.get_check_constraints(name)) == checks


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
    with pytest.raises(
        ConfigError, match=rf"holds no ledger yet, expected schema {REVISION}; run `python -m spillway ledger upgrade`"
    ):
        open_ledger(new_database())


@pytest.mark.parametrize(
    ("revision", "message"),
    [
        ("0000", f"has the older schema 0000, expected schema {REVISION}; run `python -m spillway ledger upgrade`"),
        (NEWER, f"has schema {NEWER}, newer than {REVISION} of this release; upgrade Spillway to open it"),
    ],
    ids=["older", "newer"],
)
def test_a_ledger_of_another_release_is_not_opened(
    new_database: Callable[[], str], revision: str, message: str
) -> None:
    url = new_database()
    upgrade(url)
    _say(revision, url)
    with pytest.raises(ConfigError) as refused:
        open_ledger(url)
    assert message in str(refused.value)


def test_a_ledger_of_a_newer_release_is_not_upgraded(new_database: Callable[[], str]) -> None:
    url = new_database()
    upgrade(url)
    _say(NEWER, url)
    with pytest.raises(ConfigError, match=f"newer than {REVISION}"):
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
    with open_ledger(url).engine.connect() as connection:
        assert len(connection.execute(select(installation)).all()) == 1


def test_each_ledger_is_an_installation_for_ever(new_database: Callable[[], str]) -> None:
    urls = new_database(), new_database()
    for url in urls:
        upgrade(url)
    first, second = (open_ledger(url).installation() for url in urls)
    assert first != second
    upgrade(urls[0])
    assert open_ledger(urls[0]).installation() == first


def test_a_ledger_of_the_first_schema_keeps_its_runs_and_becomes_an_installation(
    new_database: Callable[[], str],
) -> None:
    url = new_database()
    upgrade(url)
    open_ledger(url).open_run("r", job_spec(), {}, NOW)
    _bring_back(url, "0001")
    upgrade(url)
    assert [record.run for record in open_ledger(url).runs()] == ["r"]
    assert uuid.UUID(open_ledger(url).installation())


def test_attempts_that_were_settled_before_it_was_recorded_when_are_taken_to_have_been_as_they_ended(
    new_database: Callable[[], str],
) -> None:
    url = new_database()
    upgrade(url)
    ledger = open_ledger(url)
    settled = ledger.settle(reserved(ledger, "r"), Outcome.PREEMPTED, "evicted", NOW)
    expected = _unpriced(settled), _unpriced(reserved(ledger, "r"))
    _bring_back(url, "0002")
    upgrade(url)
    assert open_ledger(url).attempts("r") == expected


BY_TASK = "its task was marked or cleared"


@pytest.mark.parametrize(
    ("outcome", "stored", "ending", "reason"),
    [
        (None, "lost-node: its node is gone", VerdictKind.LOST_NODE, "its node is gone"),
        (None, f"deleted-by-person: {BY_TASK}", VerdictKind.TASK_ENDED, BY_TASK),
        (None, None, None, None),
        (Outcome.CANCELLED, f"{BY_TASK}; when is not known", VerdictKind.TASK_ENDED, f"{BY_TASK}; when is not known"),
        (Outcome.CANCELLED, "nobody needs it", None, "nobody needs it"),
        (Outcome.FAILED, "fenced: said the program", None, "fenced: said the program"),
    ],
)
def test_what_only_a_reason_told_of_an_ending_becomes_a_fact(
    new_database: Callable[[], str],
    outcome: Outcome | None,
    stored: str | None,
    ending: VerdictKind | None,
    reason: str | None,
) -> None:
    url = new_database()
    upgrade(url)
    ledger = open_ledger(url)
    attempt = ledger.amend(reserved(ledger, "r"), reason=stored)
    if outcome is not None:
        ledger.settle(attempt, outcome, str(stored), NOW)
    _bring_back(url, "0003")
    upgrade(url)
    (found,) = open_ledger(url).attempts("r")
    assert (found.outcome, found.ending, found.reason) == (outcome, ending, reason)


def test_transfers_of_before_the_log_told_who_and_how_say_that_it_is_not_known(
    new_database: Callable[[], str],
) -> None:
    url = new_database()
    upgrade(url)
    line = Transfer(
        kind=TransferKind.DATASET,
        name="digits",
        tier=Tier.PUBLIC,
        source="onprem",
        destination="cloud",
        size_bytes=7,
        at=NOW,
        outcome=TransferOutcome.COPIED,
    )
    open_ledger(url).record_transfer(line)
    _bring_back(url, "0004")
    upgrade(url)
    assert open_ledger(url).transfers() == (line,)
    assert (line.tls, line.actor, line.seconds, line.objects_withheld) == (None, None, None, None)


def test_older_bookings_learn_their_pool_and_reservation_from_their_attempt_and_keep_their_amount(
    new_database: Callable[[], str],
) -> None:
    url = new_database()
    upgrade(url)
    ledger = open_ledger(url)
    attempt = reserved(ledger, "r")
    booked, foreign = ledger.book(a_cost("r-1")), ledger.book(a_cost("r-7", gpus=Decimal(16)))
    _bring_back(url, "0007")
    upgrade(url)
    place = {"pool": attempt.candidate.pool, "reserved_at": attempt.reserved_at}
    expected = {dataclasses.replace(booked, **place), foreign}
    assert set(open_ledger(url).costs()) == expected
    assert open_ledger(url).attempts("r") == (_unpriced(attempt),)


def test_notices_that_wait_to_be_delivered_still_do_after_they_may_be_of_late_runs_too(
    new_database: Callable[[], str],
) -> None:
    url = new_database()
    upgrade(url)
    ledger = open_ledger(url)
    ledger.open_run("r", job_spec(), {}, NOW)
    ledger.book(a_cost("r-1", department="research", billing=Billing.SPOT))
    policy = placement_policy(budgets=(Budget(department="research", limit=Decimal(5)),))
    ledger.note_crossings(policy, NOW + timedelta(hours=3), lambda department: ["chat", "mail"])
    told, waits = ledger.undelivered()
    ledger.close_notice(told, NOW)
    ledger.not_delivered(waits, "451 try again later")
    _bring_back(url, "0013")
    upgrade(url)
    (found,) = open_ledger(url).undelivered()
    assert found == dataclasses.replace(waits, problem="451 try again later")


def test_attempts_of_before_anybody_gave_way_displace_nobody(new_database: Callable[[], str]) -> None:
    url = new_database()
    upgrade(url)
    attempt = reserved(open_ledger(url), "r")
    _bring_back(url, "0014")
    upgrade(url)
    assert open_ledger(url).attempts("r") == (attempt,)


def test_notices_that_wait_to_be_delivered_still_do_after_they_may_be_of_node_pools_too(
    new_database: Callable[[], str],
) -> None:
    url = new_database()
    upgrade(url)
    ledger = open_ledger(url)
    late = LateRun(
        run="r", job="llm-7b", department="nlp", deadline=NOW, expected_at=NOW + timedelta(hours=1), seen_at=NOW
    )
    ledger.open_run("r", job_spec(finish_within=timedelta(hours=1)), {}, NOW)
    ledger.note_late(late, lambda department: ["lead"])
    waits = ledger.undelivered()
    _bring_back(url, "0016")
    upgrade(url)
    assert [(notice.target, type(notice.about)) for notice in waits] == [("lead", LateRun)]
    assert open_ledger(url).undelivered() == waits


def test_changes_of_before_looks_were_stored_are_still_read_and_have_none(new_database: Callable[[], str]) -> None:
    url = new_database()
    upgrade(url)
    target = PoolTarget(cluster="cloud", pool="gpu", nodes=3)
    begun = {"before": 2, "actor": "a test", "look": scaling_look()}
    before = open_ledger(url).begin_change(target, now=NOW, **begun)
    _bring_back(url, "0018")
    upgrade(url)
    ledger = open_ledger(url)
    ledger.change_is_asked(before, NOW)
    after = ledger.begin_change(target, now=NOW, **begun)
    assert [ledger.planned_from(line.number) for line in (before, after)] == [None, scaling_look()]
    assert ledger.scaling_changes()[0].look is None


def _unpriced(attempt: Attempt) -> Attempt:
    """The attempt as an older release knew it."""
    return dataclasses.replace(attempt, price_per_gpu_hour=None, fixed_cost_per_gpu_month=None)


ADDED = {
    "0002": ("DROP TABLE installation",),
    "0003": ("ALTER TABLE attempts DROP COLUMN settled_at",),
    "0004": (
        "ALTER TABLE attempts DROP COLUMN ending",
        "ALTER TABLE runs DROP COLUMN cancelled_at",
        "ALTER TABLE runs DROP COLUMN cancel_reason",
    ),
    "0005": tuple(
        f"ALTER TABLE transfers DROP COLUMN {name}" for name in ("objects_withheld", "tls", "actor", "seconds")
    ),
    "0006": ("DROP TABLE moves",),
    "0007": ("DROP TABLE link_movers", "DROP TABLE link_rates"),
    "0008": (
        *(f"ALTER TABLE attempts DROP COLUMN {name}" for name in ("price_per_gpu_hour", "fixed_cost_per_gpu_month")),
        *(
            f"ALTER TABLE costs DROP COLUMN {name}"
            for name in ("pool", "business_scene", "reserved_at", "utilisation", "fixed_cost_per_gpu_month")
        ),
    ),
    "0009": ("DROP TABLE notices", "DROP TABLE crossings"),
    "0010": ("DROP TABLE waiting",),
    "0011": ("DROP INDEX costs_of_department",),
    "0012": (
        "ALTER TABLE costs ADD COLUMN whole_gpus INTEGER NOT NULL DEFAULT 0",
        "UPDATE costs SET whole_gpus = CAST(gpus AS INTEGER)",
        "ALTER TABLE costs DROP COLUMN gpus",
        "ALTER TABLE costs RENAME COLUMN whole_gpus TO gpus",
    ),
    "0013": ("ALTER TABLE costs DROP COLUMN cores",),
    "0014": (
        "ALTER TABLE notices RENAME TO notices_after",
        "CREATE TABLE notices (crossing INTEGER NOT NULL REFERENCES crossings, target TEXT NOT NULL, "
        "tries INTEGER NOT NULL, claimed_until TIMESTAMP, closed_at TIMESTAMP, problem TEXT, "
        "PRIMARY KEY (crossing, target))",
        "INSERT INTO notices SELECT crossing, target, tries, claimed_until, closed_at, problem FROM notices_after",
        "DROP TABLE notices_after",
        "DROP TABLE late_runs",
    ),
    "0015": tuple(
        f"ALTER TABLE attempts DROP COLUMN {name}" for name in ("committed_at", "displaces", "displacing_at")
    ),
    "0016": tuple(f"DROP TABLE {name}" for name in ("pool_samples", "samples", "sampled_nodes", "pod_starts")),
    "0017": (
        "ALTER TABLE notices RENAME TO notices_after",
        "CREATE TABLE notices (id INTEGER PRIMARY KEY, crossing INTEGER REFERENCES crossings, "
        "late_run VARCHAR(63) REFERENCES late_runs, target TEXT NOT NULL, tries INTEGER NOT NULL, "
        "claimed_until TIMESTAMP, closed_at TIMESTAMP, problem TEXT)",
        "INSERT INTO notices SELECT id, crossing, late_run, target, tries, claimed_until, closed_at, problem "
        "FROM notices_after",
        "DROP TABLE notices_after",
        *(f"DROP TABLE scaling_{name}" for name in ("orders", "changes", "alerts", "turn")),
    ),
    "0018": ("DROP TABLE imported_jobs",),
    "0019": ("DROP TABLE scaling_looks", "ALTER TABLE scaling_changes DROP COLUMN look"),
    "0020": ("DROP TABLE scaling_watches",),
}
"""How what each revision has added is taken away again."""


def test_every_revision_can_be_taken_back_by_these_tests() -> None:
    assert max(ADDED) == REVISION


def _bring_back(url: str, revision: str) -> None:
    """Make it the ledger that the release of that revision would have left."""
    with Database(url).writing() as connection:
        for added, statements in reversed(ADDED.items()):
            for statement in statements if added > revision else ():
                connection.execute(text(statement))
    _say(revision, url)


def _say(revision: str, url: str) -> None:
    """Let the ledger say that it has that revision."""
    with Database(url).writing() as connection:
        connection.execute(text(f"UPDATE {VERSION_TABLE} SET version_num = '{revision}'"))
