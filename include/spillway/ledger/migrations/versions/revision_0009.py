"""Notices of budgets: which crossings were told, to whom, and which are still to be delivered."""

import sqlalchemy as sa
from alembic import op

revision = "0009"
down_revision = "0008"

MOMENT = sa.DateTime(timezone=True)
MONEY = sa.Numeric().with_variant(sa.Text(), "sqlite")


def upgrade() -> None:
    """Create both tables."""
    op.create_table(
        "crossings",
        sa.Column("id", sa.Integer, primary_key=True),
        sa.Column("department", sa.Text, nullable=False),
        sa.Column("month", sa.String(7), nullable=False),
        sa.Column("percent", sa.Integer, nullable=False),
        sa.Column("limit", MONEY, nullable=False),
        sa.Column("spent", MONEY, nullable=False),
        sa.Column("projected", MONEY, nullable=False),
        sa.Column("seen_at", MOMENT, nullable=False),
    )
    op.create_index("crossings_of_month", "crossings", ["department", "month"])
    op.create_table(
        "notices",
        sa.Column("crossing", sa.Integer, sa.ForeignKey("crossings.id"), primary_key=True),
        sa.Column("target", sa.Text, primary_key=True),
        sa.Column("tries", sa.Integer, nullable=False),
        sa.Column("claimed_until", MOMENT),
        sa.Column("closed_at", MOMENT),
        sa.Column("problem", sa.Text),
    )
