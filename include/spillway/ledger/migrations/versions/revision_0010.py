"""Runs that wait for room, so that none is passed for ever."""

import sqlalchemy as sa
from alembic import op

revision = "0010"
down_revision = "0009"

MOMENT = sa.DateTime(timezone=True)


def upgrade() -> None:
    """Add the table; runs that wait now enter it when they ask the next time."""
    op.create_table(
        "waiting",
        sa.Column("run", sa.String(63), sa.ForeignKey("runs.run"), primary_key=True),
        sa.Column("level", sa.Integer, nullable=False),
        sa.Column("since", MOMENT, nullable=False),
        sa.Column("seen_at", MOMENT, nullable=False),
        sa.Column("places", sa.JSON, nullable=False),
    )
    op.create_index("waiting_in_order", "waiting", ["level", "seen_at"])
