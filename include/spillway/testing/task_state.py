"""What Airflow keeps for a task between its tries."""

from __future__ import annotations

from typing import Any


class TaskState(dict[str, Any]):
    """Airflow's store of a task's state, which knows how long it keeps a value."""

    def set(self, key: str, value: Any, *, retention: Any) -> None:
        self[key] = value
