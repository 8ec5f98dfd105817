"""Attempts keep the price that they were placed at; bookings say what was allocated, used and shared, and for what."""

import sqlalchemy as sa
from alembic import op

revision = "0008"
down_revision = "0007"

MOMENT = sa.DateTime(timezone=True)
MONEY = sa.Numeric().with_variant(sa.Text(), "sqlite")


def upgrade() -> None:
    """Add the columns; of older bookings their attempts tell pool and reservation."""
    op.add_column("attempts", sa.Column("price_per_gpu_hour", MONEY))
    op.add_column("attempts", sa.Column("fixed_cost_per_gpu_month", MONEY))
    op.add_column("costs", sa.Column("pool", sa.Text))
    op.add_column("costs", sa.Column("business_scene", sa.Text))
    op.add_column("costs", sa.Column("reserved_at", MOMENT))
    op.add_column("costs", sa.Column("utilisation", MONEY))
    op.add_column("costs", sa.Column("fixed_cost_per_gpu_month", MONEY, nullable=False, server_default=sa.text("'0'")))
    for column in ("pool", "reserved_at"):
        op.execute(
            f"UPDATE costs SET {column} = (SELECT attempts.{column} FROM attempts "
            "WHERE attempts.run = costs.run AND attempts.run || '-' || attempts.number = costs.attempt)"
        )
