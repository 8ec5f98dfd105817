"""Where tasks that move bytes between sites wait for their turn: what a run waits for goes first."""

from __future__ import annotations

import os
from typing import Any

from airflow.sdk import TaskGroup

from spillway.ledger import TransferKind
from spillway.ledger.links import WEIGHTS

LINKS_VARIABLE = "SPILLWAY_LINK_POOLS"


def links() -> tuple[str | None, ...]:
    """The links that have a pool of their own, by the name of their cluster; None, the last, is all others.

    Airflow takes the pool of a task from its DAG file, for all that the task is mapped over: so a DAG has its tasks
    once for each of these. From the environment, for a DAG file reads no other.
    """
    names = (name.strip() for name in os.environ.get(LINKS_VARIABLE, "").split(","))
    return (*dict.fromkeys(name for name in names if name), None)


def link_group(kind: TransferKind, link: str | None) -> TaskGroup:
    """The group of the tasks that move this over the link; its name begins their ids where it has a pool of its own."""
    return TaskGroup(
        link or "links",
        prefix_group_id=link is not None,
        default_args=turn(kind, link),  # type: ignore[arg-type]
    )


def run_tasks(ti: Any) -> frozenset[str]:
    """The ids of the tasks of this DAG run, as the scheduler knows them."""
    return frozenset(ti.get_task_states(dag_id=ti.dag_id, run_ids=[ti.run_id])[ti.run_id])


def turn(kind: TransferKind, link: str | None = None, *, awaited: bool = False) -> dict[str, Any]:
    """The pool and the priority of a task that moves this over the link; ``awaited``: a run waits for it."""
    return {
        "pool": "default_pool" if link is None else f"link_{link}",
        "priority_weight": WEIGHTS[kind] + awaited,
        "weight_rule": "absolute",
    }
