"""Node pools that are scaled: people's orders, every change with its reasons, alerts, and whose turn it is."""

import sqlalchemy as sa
from alembic import op

revision = "0017"
down_revision = "0016"

MOMENT = sa.DateTime(timezone=True)


def upgrade() -> None:
    """Create the tables; make the notices anew, with all that wait to be delivered."""
    op.create_table(
        "scaling_orders",
        sa.Column("order", sa.String(63), primary_key=True),
        sa.Column("kind", sa.String(32), nullable=False),
        sa.Column("cluster", sa.Text, nullable=False),
        sa.Column("pool", sa.Text, nullable=False),
        sa.Column("nodes", sa.Integer, nullable=False),
        sa.Column("base_nodes", sa.Integer, nullable=False),
        sa.Column("ordered_at", MOMENT, nullable=False),
        sa.Column("ordered_by", sa.Text, nullable=False),
        sa.Column("until", MOMENT, nullable=False),
        sa.Column("ready_by", MOMENT),
        sa.Column("remove", sa.JSON, nullable=False),
        sa.Column("ready_at", MOMENT),
        sa.Column("withdrawn_at", MOMENT),
    )
    op.create_table(
        "scaling_changes",
        sa.Column("number", sa.Integer, primary_key=True),
        sa.Column("cluster", sa.Text, nullable=False),
        sa.Column("pool", sa.Text, nullable=False),
        sa.Column("before", sa.Integer, nullable=False),
        sa.Column("target", sa.JSON, nullable=False),
        sa.Column("decided_at", MOMENT, nullable=False),
        sa.Column("actor", sa.Text, nullable=False),
        sa.Column("tries", sa.Integer, nullable=False),
        sa.Column("asked_at", MOMENT),
        sa.Column("problem", sa.Text),
        sa.Column("reached_at", MOMENT),
    )
    op.create_index("scaling_changes_of_pool", "scaling_changes", ["cluster", "pool", "number"])
    op.create_table(
        "scaling_alerts",
        sa.Column("alert", sa.String(200), primary_key=True),
        sa.Column("cluster", sa.Text, nullable=False),
        sa.Column("pool", sa.Text, nullable=False),
        sa.Column("title", sa.Text, nullable=False),
        sa.Column("text", sa.Text, nullable=False),
        sa.Column("seen_at", MOMENT, nullable=False),
    )
    op.create_table(
        "scaling_turn",
        sa.Column("holder", sa.Text, primary_key=True),
        sa.Column("began_at", MOMENT, nullable=False),
        sa.Column("until", MOMENT, nullable=False),
    )
    _notices_of_alerts()


def _notices_of_alerts() -> None:
    op.create_table(
        "notices_anew",
        sa.Column("id", sa.Integer, primary_key=True),
        sa.Column("crossing", sa.Integer, sa.ForeignKey("crossings.id")),
        sa.Column("late_run", sa.String(63), sa.ForeignKey("late_runs.run")),
        sa.Column("alert", sa.String(200), sa.ForeignKey("scaling_alerts.alert")),
        sa.Column("target", sa.Text, nullable=False),
        sa.Column("tries", sa.Integer, nullable=False),
        sa.Column("claimed_until", MOMENT),
        sa.Column("closed_at", MOMENT),
        sa.Column("problem", sa.Text),
        sa.CheckConstraint(
            "(CASE WHEN crossing IS NULL THEN 0 ELSE 1 END) + (CASE WHEN late_run IS NULL THEN 0 ELSE 1 END)"
            " + (CASE WHEN alert IS NULL THEN 0 ELSE 1 END) = 1",
            name="notices_of_one_thing",
        ),
    )
    columns = "crossing, late_run, target, tries, claimed_until, closed_at, problem"
    op.execute(f"INSERT INTO notices_anew ({columns}) SELECT {columns} FROM notices ORDER BY id")
    op.drop_table("notices")
    op.rename_table("notices_anew", "notices")
