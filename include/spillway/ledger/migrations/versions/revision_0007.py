"""Who moves bytes over which link just now, and how fast each link has been."""

import sqlalchemy as sa
from alembic import op

revision = "0007"
down_revision = "0006"

MOMENT = sa.DateTime(timezone=True)


def upgrade() -> None:
    """Create both tables."""
    op.create_table(
        "link_movers",
        sa.Column("mover", sa.String(36), primary_key=True),
        sa.Column("link", sa.Text, nullable=False),
        sa.Column("kind", sa.String(32), nullable=False),
        sa.Column("bytes_per_second", sa.Float),
        sa.Column("seen_at", MOMENT, nullable=False),
    )
    op.create_table(
        "link_rates",
        sa.Column("link", sa.Text, primary_key=True),
        sa.Column("bytes_per_second", sa.Float, nullable=False),
        sa.Column("measured_at", MOMENT, nullable=False),
    )
