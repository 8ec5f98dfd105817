"""Jobs of other schedulers, imported as history."""

import sqlalchemy as sa
from alembic import op

revision = "0018"
down_revision = "0017"

MOMENT = sa.DateTime(timezone=True)


def upgrade() -> None:
    """Create the table."""
    op.create_table(
        "imported_jobs",
        sa.Column("source", sa.Text, primary_key=True),
        sa.Column("job", sa.Text, primary_key=True),
        sa.Column("submitted_at", MOMENT, nullable=False),
        sa.Column("gpus", sa.Integer, nullable=False),
        sa.Column("nodes", sa.Integer, nullable=False),
        sa.Column("started_at", MOMENT),
        sa.Column("ended_at", MOMENT),
        sa.Column("held_seconds", sa.Float),
        sa.Column("priority", sa.String(32)),
        sa.Column("department", sa.Text),
        sa.Column("gpu_type", sa.Text),
        sa.Column("estimate_seconds", sa.Float),
    )
