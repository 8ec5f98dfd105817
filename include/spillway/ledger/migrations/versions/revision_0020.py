"""Since when and until when node pools were looked at again and again."""

import sqlalchemy as sa
from alembic import op

revision = "0020"
down_revision = "0019"

MOMENT = sa.DateTime(timezone=True)


def upgrade() -> None:
    """Create the table."""
    op.create_table(
        "scaling_watches",
        sa.Column("number", sa.Integer, primary_key=True),
        sa.Column("began_at", MOMENT, nullable=False),
        sa.Column("last_at", MOMENT, nullable=False),
    )
