"""The bookings of a department are found by when they ended, however long the history is."""

from alembic import op

revision = "0011"
down_revision = "0010"


def upgrade() -> None:
    """Add the index."""
    op.create_index("costs_of_department", "costs", ["department", "ended_at"])
