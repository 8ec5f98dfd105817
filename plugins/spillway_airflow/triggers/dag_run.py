"""Wait until a DAG run has ended."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

from airflow.sdk.execution_time.task_runner import RuntimeTaskInstance
from airflow.triggers.base import BaseTrigger, TriggerEvent
from asgiref.sync import sync_to_async

UNFINISHED = ["queued", "running"]


class DagRunTrigger(BaseTrigger):
    """Fires when the DAG run has ended, however it did, or is no more.

    Airflow's own trigger waits for ever for a run that somebody has deleted.
    """

    def __init__(self, *, dag_id: str, run_id: str, poll_seconds: float = 10.0) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.dag_id, self.run_id, self.poll_seconds = dag_id, run_id, poll_seconds

    def serialize(self) -> tuple[str, dict[str, Any]]:
        return f"{type(self).__module__}.{type(self).__name__}", {
            "dag_id": self.dag_id,
            "run_id": self.run_id,
            "poll_seconds": self.poll_seconds,
        }

    async def run(self) -> AsyncIterator[TriggerEvent]:
        count = sync_to_async(RuntimeTaskInstance.get_dr_count)
        while True:
            if not await count(dag_id=self.dag_id, run_ids=[self.run_id], states=UNFINISHED):
                yield TriggerEvent({"run_id": self.run_id})
                return
            await asyncio.sleep(self.poll_seconds)
