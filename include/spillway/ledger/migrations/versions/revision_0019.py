"""What the scaler planned from, and the look of each change."""

import sqlalchemy as sa
from alembic import op

revision = "0019"
down_revision = "0018"


def upgrade() -> None:
    """Create the table; changes of before have no look."""
    op.create_table(
        "scaling_looks",
        sa.Column("number", sa.Integer, primary_key=True),
        sa.Column("taken_at", sa.DateTime(timezone=True), nullable=False, index=True),
        sa.Column("look", sa.LargeBinary, nullable=False),
    )
    op.add_column("scaling_changes", sa.Column("look", sa.Integer))
