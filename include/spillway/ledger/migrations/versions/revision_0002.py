"""The id of the installation, made here once: whoever upgrades holds the lock of the ledger's one writer."""

import uuid

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"


def upgrade() -> None:
    """Create the table with its one row."""
    table = op.create_table("installation", sa.Column("id", sa.String(36), primary_key=True))
    op.bulk_insert(table, [{"id": str(uuid.uuid4())}])
