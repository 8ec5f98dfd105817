"""Parts of GPUs are booked exactly: how many GPUs a booking is of is a decimal number."""

import sqlalchemy as sa
from alembic import op

revision = "0012"
down_revision = "0011"

NUMBER = sa.Numeric().with_variant(sa.Text(), "sqlite")


def upgrade() -> None:
    """Change the column; what was booked stays as it is, in another notation."""
    with op.batch_alter_table("costs") as costs:
        costs.alter_column("gpus", type_=NUMBER, existing_type=sa.Integer(), existing_nullable=False)
