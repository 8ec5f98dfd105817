"""Samples: what clusters and queue were like every 30 seconds, and on average over a while."""

import sqlalchemy as sa
from alembic import op

revision = "0016"
down_revision = "0015"

MOMENT = sa.DateTime(timezone=True)


def upgrade() -> None:
    """Create the tables; what was before is a gap."""
    op.create_table(
        "samples",
        sa.Column("step_seconds", sa.Integer, primary_key=True, autoincrement=False),
        sa.Column("at", MOMENT, primary_key=True),
        sa.Column("taken", sa.Integer, nullable=False),
        sa.Column("queued_runs", sa.Float, nullable=False),
        sa.Column("pending_gpus", sa.Float, nullable=False),
        sa.Column("queue", sa.JSON, nullable=False),
        sa.Column("unknown", sa.JSON, nullable=False),
        sa.Column("rolled_up", sa.Boolean, nullable=False, server_default=sa.false()),
    )
    op.create_index("samples_to_roll_up", "samples", ["rolled_up", "step_seconds", "at"])
    op.create_table(
        "pool_samples",
        sa.Column("step_seconds", sa.Integer, primary_key=True, autoincrement=False),
        sa.Column("cluster", sa.Text, primary_key=True),
        sa.Column("pool", sa.Text, primary_key=True),
        sa.Column("at", MOMENT, primary_key=True),
        sa.Column("taken", sa.Integer, nullable=False),
        sa.Column("gpus", sa.Float, nullable=False),
        sa.Column("used_gpus", sa.Float, nullable=False),
        sa.Column("nodes", sa.Float, nullable=False),
        sa.Column("idle_nodes", sa.Float, nullable=False),
        sa.Column("jobs", sa.JSON, nullable=False),
        sa.Column("device", sa.JSON),
        sa.Column("measured", sa.Integer, nullable=False),
        sa.ForeignKeyConstraint(
            ["step_seconds", "at"], ["samples.step_seconds", "samples.at"], name="pool_samples_moment"
        ),
    )
    op.create_index("pool_samples_of_moment", "pool_samples", ["step_seconds", "at"])
    op.create_table(
        "sampled_nodes",
        sa.Column("cluster", sa.Text, primary_key=True),
        sa.Column("name", sa.Text, primary_key=True),
        sa.Column("pool", sa.Text, nullable=False),
        sa.Column("seen_at", MOMENT, nullable=False),
        sa.Column("gpus", sa.Float, nullable=False),
        sa.Column("used_gpus", sa.Float, nullable=False),
        sa.Column("created_at", MOMENT),
        sa.Column("ready_at", MOMENT),
        sa.Column("idle_since", MOMENT),
    )
    op.create_table(
        "pod_starts",
        sa.Column("cluster", sa.Text, primary_key=True),
        sa.Column("pod", sa.Text, primary_key=True),
        sa.Column("created_at", MOMENT, primary_key=True),
        sa.Column("pool", sa.Text, nullable=False),
        sa.Column("started_at", MOMENT, nullable=False),
    )
    op.create_index("ix_pod_starts_started_at", "pod_starts", ["started_at"])
