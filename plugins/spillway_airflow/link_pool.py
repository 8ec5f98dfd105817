"""Where tasks that move bytes between sites wait for their turn: what a run waits for goes first."""

from __future__ import annotations

import logging
import os
import re
from typing import Any

from airflow.sdk import TaskGroup

from spillway.ledger import TransferKind
from spillway.ledger.links import WEIGHTS

log = logging.getLogger(__name__)

LINKS_VARIABLE = "SPILLWAY_LINK_POOLS"
_NAME = re.compile(r"[A-Za-z0-9_-]{1,100}")
"""What Airflow lets task groups be called, with room for what else task ids hold."""


def links() -> tuple[str | None, ...]:
    """The links that have a pool of their own, by the name of their cluster; None, the last, is all others.

    Airflow takes the pool of a task from its DAG file, for all that the task is mapped over: so a DAG has its tasks
    once for each of these. From the environment, for a DAG file reads no other. What no task group can be called is
    left out and logged: every DAG with a pipeline would fail to be read for it.
    """
    names = dict.fromkeys(name.strip() for name in os.environ.get(LINKS_VARIABLE, "").split(","))
    for name in names:
        if name and not _NAME.fullmatch(name):
            log.warning(
                "%s names %r, which no task group can be called, and no cluster is: it gets no tasks",
                LINKS_VARIABLE,
                name,
            )
    return (*filter(_NAME.fullmatch, names), None)


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


def pool_of(link: str) -> str:
    """The pool of the tasks that move bytes over the link of this cluster."""
    return f"link_{link}"


def turn(kind: TransferKind, link: str | None = None, *, awaited: bool = False) -> dict[str, Any]:
    """The pool and the priority of a task that moves this over the link; ``awaited``: a run waits for it."""
    return {
        "pool": "default_pool" if link is None else pool_of(link),
        "priority_weight": WEIGHTS[kind] + awaited,
        "weight_rule": "absolute",
    }
