"""Who reserves does not read what is long over. SQLite says how it finds rows; PostgreSQL decides by their number."""

from __future__ import annotations

from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from typing import Any

from sqlalchemy import event

from spillway.ledger import open_ledger
from spillway.model import Budget
from spillway.testing.ledger_files import new_ledger
from spillway.testing.ledger_values import NOW, POLICY


def test_what_a_department_has_spent_is_found_by_when_it_ended(tmp_path: Path) -> None:
    ledger = open_ledger(new_ledger(tmp_path / "ledger.db"))
    asked: list[tuple[str, Any]] = []

    @event.listens_for(ledger.engine, "before_cursor_execute")
    def keep(connection: Any, cursor: Any, statement: str, parameters: Any, *rest: Any) -> None:
        if "costs.department =" in statement:
            asked.append((statement, parameters))

    ledger.budgets(replace(POLICY, budgets=(Budget(department="research", limit=Decimal(1)),)), NOW)
    event.remove(ledger.engine, "before_cursor_execute", keep)
    with ledger.engine.connect() as connection:
        plans = [connection.exec_driver_sql(f"EXPLAIN QUERY PLAN {one}", given).all() for one, given in list(asked)]
    assert len(plans) == 3
    for (statement, _), plan in zip(asked, plans, strict=True):
        side = "<" if "LIMIT" in statement else ">"  # whether there was anything before is said by the first row
        assert f"costs_of_department (department=? AND ended_at{side}?" in plan[0][-1]
