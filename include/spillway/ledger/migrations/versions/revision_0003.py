"""When an attempt was settled, which may be long after it ended."""

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"


def upgrade() -> None:
    """Add the column; what ended is taken to have been settled then."""
    op.add_column("attempts", sa.Column("settled_at", sa.DateTime(timezone=True)))
    op.execute("UPDATE attempts SET settled_at = ended_at WHERE state = 'settled'")
