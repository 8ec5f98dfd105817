"""The tables of the ledger."""

from __future__ import annotations

from sqlalchemy import (
    JSON,
    BigInteger,
    Boolean,
    CheckConstraint,
    Column,
    Float,
    ForeignKey,
    ForeignKeyConstraint,
    Index,
    Integer,
    MetaData,
    String,
    Table,
    Text,
    text,
)

from spillway.ledger.columns import Moment, Money, Value, Word
from spillway.ledger.values import TransferKind, TransferOutcome
from spillway.model import (
    AttemptState,
    Billing,
    CostEntry,
    JobSpec,
    MoveEstimate,
    MoveState,
    Outcome,
    PlacementDecision,
    PlacementPolicy,
    Snapshot,
    Tier,
    VerdictKind,
)

REVISION = "0020"
"""The schema this release reads and writes. Revisions are four digits, and a newer one is the greater string."""

VERSION_TABLE = "ledger_version"
"""Not Alembic's default name: a PostgreSQL database may be shared with Airflow, which uses that one."""

metadata = MetaData()

installation = Table("installation", metadata, Column("id", String(36), primary_key=True))
"""Its one row is made by the migration."""

runs = Table(
    "runs",
    metadata,
    Column("run", String(63), primary_key=True),
    Column("job", Value(JobSpec), nullable=False),
    Column("origin", JSON, nullable=False),
    Column("created_at", Moment, nullable=False),
    Column("cancelled_at", Moment),
    Column("cancel_reason", Text),
)

attempts = Table(
    "attempts",
    metadata,
    Column("run", ForeignKey("runs.run"), primary_key=True),
    Column("number", Integer, primary_key=True, autoincrement=False),
    Column("state", Word(AttemptState), nullable=False),
    Column("cluster", Text, nullable=False),
    Column("pool", Text, nullable=False),
    Column("billing", Word(Billing), nullable=False),
    Column("reserved_at", Moment, nullable=False),
    Column("lease_expires_at", Moment, nullable=False),
    Column("image_digest", Text),
    Column("pod_uid", Text),
    Column("node", Text),
    Column("resumed_from_step", BigInteger),
    Column("first_step", BigInteger),
    Column("last_step", BigInteger),
    Column("committed_step", BigInteger),
    Column("committed_at", Moment),
    Column("displaces", JSON, nullable=False, server_default=text("'[]'")),
    Column("displacing_at", Moment),
    Column("outcome", Word(Outcome)),
    Column("ending", Word(VerdictKind)),
    Column("reason", Text),
    Column("started_at", Moment),
    Column("ended_at", Moment),
    Column("settled_at", Moment),
    Column("price_per_gpu_hour", Money),
    Column("fixed_cost_per_gpu_month", Money),
    CheckConstraint("number >= 1", name="attempts_number_from_one"),
    CheckConstraint("(state = 'settled') = (outcome IS NOT NULL)", name="attempts_outcome_when_settled"),
    # The database itself refuses a second open attempt of a run, whatever a caller does.
    Index(
        "attempts_one_open_per_run",
        "run",
        unique=True,
        sqlite_where=text("state <> 'settled'"),
        postgresql_where=text("state <> 'settled'"),
    ),
)

moves = Table(
    "moves",
    metadata,
    Column("run", String(63), primary_key=True),
    Column("number", Integer, primary_key=True, autoincrement=False),
    Column("attempt", Integer, nullable=False),
    Column("cluster", Text, nullable=False),
    Column("pool", Text, nullable=False),
    Column("billing", Word(Billing), nullable=False),
    Column("state", Word(MoveState), nullable=False),
    Column("reason", Text, nullable=False),
    Column("origin", JSON, nullable=False),
    Column("estimate", Value(MoveEstimate), nullable=False),
    Column("ordered_at", Moment, nullable=False),
    Column("lease_expires_at", Moment, nullable=False),
    Column("draining_at", Moment),
    Column("to_attempt", Integer),
    Column("resumed_step", BigInteger),
    Column("resumed_at", Moment),
    Column("ended_at", Moment),
    Column("problem", Text),
    ForeignKeyConstraint(["run", "attempt"], ["attempts.run", "attempts.number"], name="moves_attempt"),
    # The database itself refuses a second move of a run that is under way.
    Index(
        "moves_one_open_per_run",
        "run",
        unique=True,
        sqlite_where=text("state NOT IN ('done', 'failed')"),
        postgresql_where=text("state NOT IN ('done', 'failed')"),
    ),
)

decisions = Table(
    "decisions",
    metadata,
    Column("id", Integer, primary_key=True),
    Column("run", ForeignKey("runs.run"), nullable=False, index=True),
    Column("attempt", Integer),
    Column("taken_at", Moment, nullable=False),
    Column("job", Value(JobSpec), nullable=False),
    Column("snapshot", Value(Snapshot), nullable=False),
    Column("policy", Value(PlacementPolicy), nullable=False),
    Column("decision", Value(PlacementDecision), nullable=False),
    ForeignKeyConstraint(["run", "attempt"], ["attempts.run", "attempts.number"], name="decisions_attempt"),
)

waiting = Table(
    "waiting",
    metadata,
    Column("run", ForeignKey("runs.run"), primary_key=True),
    Column("level", Integer, nullable=False),
    Column("since", Moment, nullable=False),
    Column("seen_at", Moment, nullable=False),
    Column("places", JSON, nullable=False),
    Index("waiting_in_order", "level", "seen_at"),
)
"""Runs that wait for room: ``level`` is that of their priority, 0 the highest."""

costs = Table(
    "costs",
    metadata,
    Column("cluster", Text, primary_key=True),
    Column("pod_uid", Text, primary_key=True),
    Column("attempt", Text, primary_key=True),
    Column("run", ForeignKey("runs.run"), nullable=False, index=True),
    Column("department", Text, nullable=False),
    Column("job", Text, nullable=False),
    Column("billing", Word(Billing), nullable=False),
    Column("gpus", Money, nullable=False),
    Column("gpu_hours", Money, nullable=False),
    Column("price_per_gpu_hour", Money, nullable=False),
    Column("amount", Money, nullable=False),
    Column("started_at", Moment, nullable=False, index=True),
    Column("ended_at", Moment, nullable=False),
    Column("pool", Text),
    Column("business_scene", Text),
    Column("reserved_at", Moment),
    Column("utilisation", Money),
    Column("fixed_cost_per_gpu_month", Money, nullable=False, server_default=text("'0'")),
    Column("cores", Money, nullable=False, server_default=text("'0'")),
    CheckConstraint("ended_at >= started_at", name="costs_never_negative_time"),
    Index("costs_of_department", "department", "ended_at"),
)

cost_corrections = Table(
    "cost_corrections",
    metadata,
    Column("id", Integer, primary_key=True),
    Column("run", ForeignKey("runs.run"), nullable=False, index=True),
    Column("before", Value(CostEntry), nullable=False),
    Column("after", Value(CostEntry), nullable=False),
    Column("reason", Text, nullable=False),
    Column("corrected_at", Moment, nullable=False),
)

crossings = Table(
    "crossings",
    metadata,
    Column("id", Integer, primary_key=True),
    Column("department", Text, nullable=False),
    Column("month", String(7), nullable=False),
    Column("percent", Integer, nullable=False),
    Column("limit", Money, nullable=False),
    Column("spent", Money, nullable=False),
    Column("projected", Money, nullable=False),
    Column("seen_at", Moment, nullable=False),
    Index("crossings_of_month", "department", "month"),
)

late_runs = Table(
    "late_runs",
    metadata,
    Column("run", ForeignKey("runs.run"), primary_key=True),
    Column("deadline", Moment, nullable=False),
    Column("expected_at", Moment, nullable=False),
    Column("seen_at", Moment, nullable=False),
)

notices = Table(
    "notices",
    metadata,
    Column("id", Integer, primary_key=True),
    Column("crossing", ForeignKey("crossings.id")),
    Column("late_run", ForeignKey("late_runs.run")),
    Column("alert", ForeignKey("scaling_alerts.alert")),
    Column("target", Text, nullable=False),
    Column("tries", Integer, nullable=False),
    Column("claimed_until", Moment),
    Column("closed_at", Moment),
    Column("problem", Text),
    CheckConstraint(
        "(CASE WHEN crossing IS NULL THEN 0 ELSE 1 END) + (CASE WHEN late_run IS NULL THEN 0 ELSE 1 END)"
        " + (CASE WHEN alert IS NULL THEN 0 ELSE 1 END) = 1",
        name="notices_of_one_thing",
    ),
)

cool_downs = Table(
    "cool_downs",
    metadata,
    Column("cluster", Text, primary_key=True),
    Column("pool", Text, primary_key=True),
    Column("until", Moment, nullable=False),
    Column("reason", Text, nullable=False),
)

transfers = Table(
    "transfers",
    metadata,
    Column("id", Integer, primary_key=True),
    Column("kind", Word(TransferKind), nullable=False),
    Column("name", Text, nullable=False),
    Column("tier", Word(Tier), nullable=False),
    Column("source", Text, nullable=False),
    Column("destination", Text, nullable=False),
    Column("size_bytes", BigInteger, nullable=False),
    Column("objects_copied", BigInteger),
    Column("objects_unchanged", BigInteger),
    Column("at", Moment, nullable=False),
    Column("outcome", Word(TransferOutcome), nullable=False),
    Column("reason", Text),
    Column("run", String(63), index=True),
    Column("objects_withheld", BigInteger),
    Column("tls", Boolean),
    Column("actor", Text),
    Column("seconds", Float),
)

link_movers = Table(
    "link_movers",
    metadata,
    Column("mover", String(36), primary_key=True),
    Column("link", Text, nullable=False),
    Column("kind", Word(TransferKind), nullable=False),
    Column("bytes_per_second", Float),
    Column("seen_at", Moment, nullable=False),
)

link_rates = Table(
    "link_rates",
    metadata,
    Column("link", Text, primary_key=True),
    Column("bytes_per_second", Float, nullable=False),
    Column("measured_at", Moment, nullable=False),
)
