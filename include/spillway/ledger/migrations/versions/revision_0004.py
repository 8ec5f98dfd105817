"""How an attempt ended, as a word, which was told by its reason alone before; that a person has ended a run."""

import sqlalchemy as sa
from alembic import op

revision = "0004"
down_revision = "0003"

ENDINGS = (
    "succeeded",
    "preempted",
    "lost-node",
    "program-error",
    "image-missing",
    "start-timeout",
    "deleted-by-person",
    "fenced",
    "cluster-unreachable",
)
BY_TASK = "its task was marked or cleared%"


def upgrade() -> None:
    """Add the columns; endings are filled in where the reason tells: an open attempt's began with the word."""
    op.add_column("runs", sa.Column("cancelled_at", sa.DateTime(timezone=True)))
    op.add_column("runs", sa.Column("cancel_reason", sa.Text))
    op.add_column("attempts", sa.Column("ending", sa.String(32)))
    attempts = sa.table("attempts", *map(sa.column, ("state", "outcome", "ending", "reason")))
    for ending in ENDINGS:
        noted = (attempts.c.state != "settled") & attempts.c.reason.startswith(f"{ending}: ")
        rest = sa.func.substr(attempts.c.reason, len(f"{ending}: ") + 1)
        op.execute(attempts.update().where(noted).values(ending=ending, reason=rest))
    ended_by_hand = (attempts.c.outcome == "cancelled") | (attempts.c.ending == "deleted-by-person")
    op.execute(attempts.update().where(ended_by_hand, attempts.c.reason.like(BY_TASK)).values(ending="task-ended"))
