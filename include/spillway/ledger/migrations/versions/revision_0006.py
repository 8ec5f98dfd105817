"""Moves of runs from one place to another."""

import sqlalchemy as sa
from alembic import op

revision = "0006"
down_revision = "0005"

MOMENT = sa.DateTime(timezone=True)
WORD = sa.String(32)


def upgrade() -> None:
    """Create the table."""
    op.create_table(
        "moves",
        sa.Column("run", sa.String(63), primary_key=True),
        sa.Column("number", sa.Integer, primary_key=True, autoincrement=False),
        sa.Column("attempt", sa.Integer, nullable=False),
        sa.Column("cluster", sa.Text, nullable=False),
        sa.Column("pool", sa.Text, nullable=False),
        sa.Column("billing", WORD, nullable=False),
        sa.Column("state", WORD, nullable=False),
        sa.Column("reason", sa.Text, nullable=False),
        sa.Column("origin", sa.JSON, nullable=False),
        sa.Column("estimate", sa.JSON, nullable=False),
        sa.Column("ordered_at", MOMENT, nullable=False),
        sa.Column("lease_expires_at", MOMENT, nullable=False),
        sa.Column("draining_at", MOMENT),
        sa.Column("to_attempt", sa.Integer),
        sa.Column("resumed_step", sa.BigInteger),
        sa.Column("resumed_at", MOMENT),
        sa.Column("ended_at", MOMENT),
        sa.Column("problem", sa.Text),
        sa.ForeignKeyConstraint(["run", "attempt"], ["attempts.run", "attempts.number"], name="moves_attempt"),
    )
    under_way = sa.text("state NOT IN ('done', 'failed')")
    op.create_index(
        "moves_one_open_per_run", "moves", ["run"], unique=True, sqlite_where=under_way, postgresql_where=under_way
    )
