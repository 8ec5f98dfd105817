"""Bring what a run needs to the site that was chosen for it, each link's share of it in a task of its own."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from typing import Any

from airflow.sdk import BaseOperator, Context

from spillway.model import Attempt
from spillway.runs.holding import holding
from spillway.runs.services import Services
from spillway_airflow.failures import typed_failures
from spillway_airflow.hooks import worker_services
from spillway_airflow.link_pool import run_tasks


class StagingOperator(BaseOperator):
    """Bring one kind of thing to the site of the run's open attempt; does nothing where none is open.

    Subclasses say what it is. Where links have pools, a pipeline has a task of each kind for every such link and one
    for all others: Airflow takes a task's pool from its DAG file, and the site is known only once the job is placed.

    Args:
        training_run: the run, as ``PlaceJobOperator`` gives it.
        link: the link in whose pool it waits; None is every one that has none.
    """

    template_fields: Sequence[str] = ("training_run",)

    def __init__(self, *, training_run: str, link: str | None = None, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.training_run, self.link = training_run, link

    def links_of(self, services: Services, attempt: Attempt) -> Iterable[str | None]:
        """The links over which its kind of thing goes for the attempt; None is for what need not be moved."""
        raise NotImplementedError

    def stage(self, services: Services, attempt: Attempt, known: Collection[str]) -> Any:
        """Bring it there, over a link what this task ``serves`` of it; twice changes nothing."""
        raise NotImplementedError

    def execute(self, context: Context) -> Any:
        with typed_failures():
            services = worker_services()
            attempt = services.ledger.open_attempt(self.training_run)
            if attempt is None:
                return None
            with holding(services, attempt):
                return self.stage(services, attempt, run_tasks(context["ti"]))

    def serves(self, link: str | None, known: Collection[str]) -> bool:
        """Whether it is this task that moves what goes over the link, and none beside it.

        Args:
            known: the ids of the tasks that there are. A worker reads the DAG file by its own environment, which may
                name other links than the scheduler's; what goes over a link without a task is left to that for all
                others.
        """
        beside = (task for before in self.upstream_list for task in before.downstream_list)
        there = (task for task in beside if isinstance(task, StagingOperator) and task.task_id in known)
        named = {task.link for task in there if type(task) is type(self)}
        return link == self.link if link in named else self.link is None


def unneeded(
    tasks: Sequence[StagingOperator], known: Collection[str], services: Services, attempt: Attempt
) -> list[StagingOperator]:
    """Those of the tasks that ``serve`` no link over which something of their kind goes for the attempt."""

    def needed(task: StagingOperator) -> bool:
        links = set(task.links_of(services, attempt)) or {None}
        return any(task.serves(link, known) for link in links)

    return [task for task in tasks if not needed(task)]
