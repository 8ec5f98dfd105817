"""Import once, in the parents that Airflow forks from, what every task and every DAG file would import anew.

A task of this product needs about two CPU seconds, of which the imports of the Kubernetes client, the provider's hook
and the object store's SDK are more than a second and a half. The scheduler calls this listener before it forks its
workers, the DAG processor before it forks a process a file, the triggerer before its event loop begins.
"""

from __future__ import annotations

import importlib
import logging
from typing import Any

from airflow.listeners import hookimpl

MODULES = (
    "spillway_airflow.training_job",
    "spillway_airflow.routines",
    "spillway.clouds.kubernetes",
    "spillway.stores.s3",
    "airflow.providers.cncf.kubernetes.hooks.kubernetes",
)

log = logging.getLogger(__name__)


@hookimpl
def on_starting(component: Any) -> None:
    """A module that cannot be imported is left to the task that needs it: its message belongs in that task's log."""
    for module in MODULES:
        try:
            importlib.import_module(module)
        except ImportError as problem:
            log.warning("%s could not be imported ahead of its use: %s", module, problem)
