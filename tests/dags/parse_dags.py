"""Parses a folder of DAGs as the DAG processor does, where any I/O ends the parse; prints what it found as JSON.

A program of its own: the audit hook that forbids I/O cannot be taken away again.
"""

from __future__ import annotations

import json
import sys
from typing import Any

from airflow.dag_processing.dagbag import DagBag
from airflow.sdk import AssetOrTimeSchedule, Connection, Variable

from spillway_airflow.timetables import LastWeekOfMonth

FORBIDDEN = {"socket.connect", "socket.getaddrinfo", "socket.bind", "sqlite3.connect", "subprocess.Popen", "os.system"}


class Refused(Exception):
    """A DAG file did what only a task may do."""


def forbid(event: str, arguments: tuple[Any, ...]) -> None:
    """An audit hook: no network, no database, no process, no declared file, nothing written."""
    if event in FORBIDDEN:
        raise Refused(f"{event} {arguments}")
    if event == "open":
        path, mode = str(arguments[0]), str(arguments[1] or "r")
        if path.endswith((".yaml", ".json", ".db")) or (set(mode) & set("wax+") and path != "/dev/null"):
            raise Refused(f"open {path} {mode}")


def refuse(*arguments: Any, **named: Any) -> Any:
    raise Refused(f"a Connection or Variable was asked for: {arguments}")


def schedule(declared: Any) -> Any:
    """The declared schedule in plain values: an expression, asset URIs, both, or a timetable's summary."""
    if declared is None or isinstance(declared, str):
        return declared
    if isinstance(declared, list):
        return [asset.uri for asset in declared]
    if isinstance(declared, AssetOrTimeSchedule):
        return [schedule(declared.timetable), *(asset.uri for asset in declared.asset_condition.objects)]
    return declared.summary if isinstance(declared, LastWeekOfMonth) else declared.expression


def _types(declared: Any) -> list[str]:
    return [declared] if isinstance(declared, str) else list(declared or ())


def facts(dag: Any) -> dict[str, Any]:
    """What the tests look at."""
    return {
        "file": dag.relative_fileloc,
        "doc": dag.doc_md or "",
        "tags": sorted(dag.tags),
        "schedule": schedule(dag.schedule),
        "catchup": dag.catchup,
        "max_active_runs": dag.max_active_runs,
        "numbers": {
            name: [schema.get("minimum"), schema.get("maximum")]
            for name in dag.params
            if {"integer", "number"} & set(_types((schema := dag.params.get_param(name).schema).get("type")))
        },
        "tasks": {
            task.task_id: {
                "owner": task.owner,
                "retries": task.retries,
                "turn": [task.pool, task.priority_weight, getattr(task.weight_rule, "value", str(task.weight_rule))],
                "after": sorted(task.upstream_task_ids),
                "tells": [asset.name for asset in task.outlets],
                "pauses": hasattr(task, "retry_delay") and task.retry_delay.total_seconds() > 0,
            }
            for task in dag.tasks
        },
    }


def main(folder: str) -> None:
    """Parse every file of the folder."""
    Connection.get = Variable.get = refuse  # type: ignore[method-assign, assignment]
    sys.addaudithook(forbid)
    bag = DagBag(dag_folder=folder, bundle_path=None)
    print(json.dumps({"errors": bag.import_errors, "dags": {name: facts(dag) for name, dag in bag.dags.items()}}))


if __name__ == "__main__":
    main(sys.argv[1])
