"""The transfer log says who asked, if the way was encrypted, how long it took, and how many objects stayed."""

import sqlalchemy as sa
from alembic import op

revision = "0005"
down_revision = "0004"


def upgrade() -> None:
    """Add the columns; of older lines these are not known."""
    op.add_column("transfers", sa.Column("objects_withheld", sa.BigInteger))
    op.add_column("transfers", sa.Column("tls", sa.Boolean))
    op.add_column("transfers", sa.Column("actor", sa.Text))
    op.add_column("transfers", sa.Column("seconds", sa.Float))
