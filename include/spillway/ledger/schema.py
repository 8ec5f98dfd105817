"""The ledger's tables, and column types that keep moments aware, money exact and values whole on every backend."""

from __future__ import annotations

from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

from sqlalchemy import (
    JSON,
    BigInteger,
    CheckConstraint,
    Column,
    DateTime,
    Dialect,
    ForeignKey,
    ForeignKeyConstraint,
    Index,
    Integer,
    MetaData,
    Numeric,
    String,
    Table,
    Text,
    TypeDecorator,
    text,
)
from sqlalchemy.types import TypeEngine

from spillway import codec
from spillway.ledger.values import TransferKind, TransferOutcome
from spillway.model import (
    AttemptState,
    Billing,
    CostEntry,
    JobSpec,
    Outcome,
    PlacementDecision,
    PlacementPolicy,
    Snapshot,
    Tier,
)

REVISION = "0001"
"""The schema this release reads and writes. Revisions are four digits, and a newer one is the greater string."""

VERSION_TABLE = "ledger_version"
"""Not Alembic's default name: a PostgreSQL database may be shared with Airflow, which uses that one."""


class Moment(TypeDecorator[datetime]):
    """An aware datetime, stored in UTC and given back in UTC; a naive one is refused."""

    impl = DateTime(timezone=True)
    cache_ok = True

    def process_bind_param(self, value: datetime | None, dialect: Dialect) -> datetime | None:
        if value is None:
            return None
        if value.tzinfo is None:
            raise ValueError(f"expected an aware moment, got {value!r}; give it its time zone")
        return value.astimezone(UTC)

    def process_result_value(self, value: datetime | None, dialect: Dialect) -> datetime | None:
        if value is None:
            return None
        # SQLite has no zones: what it stored was UTC already.
        return value.replace(tzinfo=UTC) if value.tzinfo is None else value.astimezone(UTC)


class Money(TypeDecorator[Decimal]):
    """A finite Decimal to its last digit: NUMERIC without a scale where the backend is exact, text on SQLite."""

    impl = Numeric()
    cache_ok = True

    def load_dialect_impl(self, dialect: Dialect) -> TypeEngine[Any]:
        return dialect.type_descriptor(Text() if dialect.name == "sqlite" else Numeric())

    def process_bind_param(self, value: Decimal | None, dialect: Dialect) -> Any:
        if value is None:
            return None
        if not isinstance(value, Decimal) or not value.is_finite():
            raise ValueError(f"expected a finite Decimal, got {value!r}")
        return str(value) if dialect.name == "sqlite" else value

    def process_result_value(self, value: Any, dialect: Dialect) -> Decimal | None:
        return None if value is None else Decimal(value)


class Value(TypeDecorator[Any]):
    """A value of ``model`` as the plain JSON of ``codec``."""

    impl = JSON(none_as_null=True)
    cache_ok = True

    def __init__(self, kind: type[Any]) -> None:
        super().__init__()
        self.kind = kind

    def process_bind_param(self, value: Any, dialect: Dialect) -> Any:
        return None if value is None else codec.encode(value)

    def process_result_value(self, value: Any, dialect: Dialect) -> Any:
        return None if value is None else codec.decode(self.kind, value)


class Word(TypeDecorator[Any]):
    """A member of a StrEnum as its text, so that a new member needs no change of the schema."""

    impl = String(32)
    cache_ok = True

    def __init__(self, kind: type[Any]) -> None:
        super().__init__()
        self.kind = kind

    def process_bind_param(self, value: Any, dialect: Dialect) -> Any:
        return None if value is None else self.kind(value).value

    def process_result_value(self, value: Any, dialect: Dialect) -> Any:
        return None if value is None else self.kind(value)


metadata = MetaData()

runs = Table(
    "runs",
    metadata,
    Column("run", String(63), primary_key=True),
    Column("job", Value(JobSpec), nullable=False),
    Column("origin", JSON, nullable=False),
    Column("created_at", Moment, nullable=False),
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
    Column("outcome", Word(Outcome)),
    Column("reason", Text),
    Column("started_at", Moment),
    Column("ended_at", Moment),
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
    Column("gpus", Integer, nullable=False),
    Column("gpu_hours", Money, nullable=False),
    Column("price_per_gpu_hour", Money, nullable=False),
    Column("amount", Money, nullable=False),
    Column("started_at", Moment, nullable=False, index=True),
    Column("ended_at", Moment, nullable=False),
    CheckConstraint("ended_at >= started_at", name="costs_never_negative_time"),
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
)
