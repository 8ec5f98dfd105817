"""Preemption: who gives way to an attempt, and when its newest step was committed."""

import sqlalchemy as sa
from alembic import op

revision = "0015"
down_revision = "0014"

MOMENT = sa.DateTime(timezone=True)


def upgrade() -> None:
    """Add the columns; when an attempt has committed so far nobody knows, and nobody gives way yet."""
    op.add_column("attempts", sa.Column("committed_at", MOMENT))
    op.add_column("attempts", sa.Column("displaces", sa.JSON, nullable=False, server_default=sa.text("'[]'")))
    op.add_column("attempts", sa.Column("displacing_at", MOMENT))
