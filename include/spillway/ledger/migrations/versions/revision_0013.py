"""Work without GPUs is booked by the cores that it takes."""

import sqlalchemy as sa
from alembic import op

revision = "0013"
down_revision = "0012"

NUMBER = sa.Numeric().with_variant(sa.Text(), "sqlite")


def upgrade() -> None:
    """Add the column; whatever is booked has GPUs."""
    op.add_column("costs", sa.Column("cores", NUMBER, nullable=False, server_default=sa.text("'0'")))
