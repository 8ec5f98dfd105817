"""Notices are of crossed budgets or of runs that cannot meet their deadline."""

import sqlalchemy as sa
from alembic import op

revision = "0014"
down_revision = "0013"

MOMENT = sa.DateTime(timezone=True)


def upgrade() -> None:
    """Create the table of late runs; make the notices anew, with all that wait to be delivered."""
    op.create_table(
        "late_runs",
        sa.Column("run", sa.String(63), sa.ForeignKey("runs.run"), primary_key=True),
        sa.Column("deadline", MOMENT, nullable=False),
        sa.Column("expected_at", MOMENT, nullable=False),
        sa.Column("seen_at", MOMENT, nullable=False),
    )
    op.create_table(
        "notices_anew",
        sa.Column("id", sa.Integer, primary_key=True),
        sa.Column("crossing", sa.Integer, sa.ForeignKey("crossings.id")),
        sa.Column("late_run", sa.String(63), sa.ForeignKey("late_runs.run")),
        sa.Column("target", sa.Text, nullable=False),
        sa.Column("tries", sa.Integer, nullable=False),
        sa.Column("claimed_until", MOMENT),
        sa.Column("closed_at", MOMENT),
        sa.Column("problem", sa.Text),
        sa.CheckConstraint("(crossing IS NULL) <> (late_run IS NULL)", name="notices_of_one_thing"),
    )
    columns = "crossing, target, tries, claimed_until, closed_at, problem"
    op.execute(f"INSERT INTO notices_anew ({columns}) SELECT {columns} FROM notices ORDER BY crossing, target")
    op.drop_table("notices")
    op.rename_table("notices_anew", "notices")
