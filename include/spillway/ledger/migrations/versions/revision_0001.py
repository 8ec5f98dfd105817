"""The first schema: runs, attempts, decisions, costs and their corrections, cool-downs, transfers."""

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None

MOMENT = sa.DateTime(timezone=True)
MONEY = sa.Numeric().with_variant(sa.Text(), "sqlite")
WORD = sa.String(32)
RUN = sa.String(63)


def upgrade() -> None:
    """Create every table."""
    _create_runs_and_attempts()
    _create_decisions()
    _create_costs()
    _create_places_and_transfers()


def _create_runs_and_attempts() -> None:
    op.create_table(
        "runs",
        sa.Column("run", RUN, primary_key=True),
        sa.Column("job", sa.JSON, nullable=False),
        sa.Column("origin", sa.JSON, nullable=False),
        sa.Column("created_at", MOMENT, nullable=False),
    )
    op.create_table(
        "attempts",
        sa.Column("run", RUN, sa.ForeignKey("runs.run"), primary_key=True),
        sa.Column("number", sa.Integer, primary_key=True, autoincrement=False),
        sa.Column("state", WORD, nullable=False),
        sa.Column("cluster", sa.Text, nullable=False),
        sa.Column("pool", sa.Text, nullable=False),
        sa.Column("billing", WORD, nullable=False),
        sa.Column("reserved_at", MOMENT, nullable=False),
        sa.Column("lease_expires_at", MOMENT, nullable=False),
        sa.Column("image_digest", sa.Text),
        sa.Column("pod_uid", sa.Text),
        sa.Column("node", sa.Text),
        sa.Column("resumed_from_step", sa.BigInteger),
        sa.Column("first_step", sa.BigInteger),
        sa.Column("last_step", sa.BigInteger),
        sa.Column("committed_step", sa.BigInteger),
        sa.Column("outcome", WORD),
        sa.Column("reason", sa.Text),
        sa.Column("started_at", MOMENT),
        sa.Column("ended_at", MOMENT),
        sa.CheckConstraint("number >= 1", name="attempts_number_from_one"),
        sa.CheckConstraint("(state = 'settled') = (outcome IS NOT NULL)", name="attempts_outcome_when_settled"),
    )
    unsettled = sa.text("state <> 'settled'")
    op.create_index(
        "attempts_one_open_per_run",
        "attempts",
        ["run"],
        unique=True,
        sqlite_where=unsettled,
        postgresql_where=unsettled,
    )


def _create_decisions() -> None:
    op.create_table(
        "decisions",
        sa.Column("id", sa.Integer, primary_key=True),
        sa.Column("run", RUN, sa.ForeignKey("runs.run"), nullable=False, index=True),
        sa.Column("attempt", sa.Integer),
        sa.Column("taken_at", MOMENT, nullable=False),
        sa.Column("job", sa.JSON, nullable=False),
        sa.Column("snapshot", sa.JSON, nullable=False),
        sa.Column("policy", sa.JSON, nullable=False),
        sa.Column("decision", sa.JSON, nullable=False),
        sa.ForeignKeyConstraint(["run", "attempt"], ["attempts.run", "attempts.number"], name="decisions_attempt"),
    )


def _create_costs() -> None:
    op.create_table(
        "costs",
        sa.Column("cluster", sa.Text, primary_key=True),
        sa.Column("pod_uid", sa.Text, primary_key=True),
        sa.Column("attempt", sa.Text, primary_key=True),
        sa.Column("run", RUN, sa.ForeignKey("runs.run"), nullable=False, index=True),
        sa.Column("department", sa.Text, nullable=False),
        sa.Column("job", sa.Text, nullable=False),
        sa.Column("billing", WORD, nullable=False),
        sa.Column("gpus", sa.Integer, nullable=False),
        sa.Column("gpu_hours", MONEY, nullable=False),
        sa.Column("price_per_gpu_hour", MONEY, nullable=False),
        sa.Column("amount", MONEY, nullable=False),
        sa.Column("started_at", MOMENT, nullable=False, index=True),
        sa.Column("ended_at", MOMENT, nullable=False),
        sa.CheckConstraint("ended_at >= started_at", name="costs_never_negative_time"),
    )
    op.create_table(
        "cost_corrections",
        sa.Column("id", sa.Integer, primary_key=True),
        sa.Column("run", RUN, sa.ForeignKey("runs.run"), nullable=False, index=True),
        sa.Column("before", sa.JSON, nullable=False),
        sa.Column("after", sa.JSON, nullable=False),
        sa.Column("reason", sa.Text, nullable=False),
        sa.Column("corrected_at", MOMENT, nullable=False),
    )


def _create_places_and_transfers() -> None:
    op.create_table(
        "cool_downs",
        sa.Column("cluster", sa.Text, primary_key=True),
        sa.Column("pool", sa.Text, primary_key=True),
        sa.Column("until", MOMENT, nullable=False),
        sa.Column("reason", sa.Text, nullable=False),
    )
    op.create_table(
        "transfers",
        sa.Column("id", sa.Integer, primary_key=True),
        sa.Column("kind", WORD, nullable=False),
        sa.Column("name", sa.Text, nullable=False),
        sa.Column("tier", WORD, nullable=False),
        sa.Column("source", sa.Text, nullable=False),
        sa.Column("destination", sa.Text, nullable=False),
        sa.Column("size_bytes", sa.BigInteger, nullable=False),
        sa.Column("objects_copied", sa.BigInteger),
        sa.Column("objects_unchanged", sa.BigInteger),
        sa.Column("at", MOMENT, nullable=False),
        sa.Column("outcome", WORD, nullable=False),
        sa.Column("reason", sa.Text),
        sa.Column("run", RUN, index=True),
    )
