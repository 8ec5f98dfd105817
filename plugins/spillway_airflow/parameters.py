"""What a DAG run was started with, held to what its DAG declares."""

from __future__ import annotations

from airflow.sdk import Context

from spillway.errors import UnknownName


def refuse_unknown_parameters(context: Context) -> None:
    """Refuse a run whose configuration has a key that its DAG does not declare.

    Airflow takes any: a misspelled one would leave the default in force, of the job as of the dry run. A DAG that
    declares no parameters reads its configuration in a way of its own.

    Raises:
        UnknownName: the key, and the parameters that there are.
    """
    declared = list(context["dag"].params)
    for key in context["dag_run"].conf or {}:
        if declared and key not in declared:
            raise UnknownName(f"parameter of DAG '{context['dag'].dag_id}'", key, declared)
