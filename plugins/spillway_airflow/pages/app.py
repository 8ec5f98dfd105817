"""Why a job runs where it runs, and what the GPUs do: the stored decisions and samples as pages.

They show what the task's log and ``explain`` show, from the same words. Nobody reads one without being logged in, nor
a run's without the right to read the DAG that asked for it; of a run that no DAG asked for, the right to read them all.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any
from urllib.parse import urlencode

from airflow.api_fastapi.app import get_auth_manager
from airflow.api_fastapi.auth.managers.models.resource_details import DagDetails
from airflow.api_fastapi.core_api.security import GetUserDep, get_user
from airflow.configuration import conf
from airflow.models.dag import DagModel
from fastapi import Depends, FastAPI, HTTPException, Request
from fastapi.responses import HTMLResponse, JSONResponse
from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup
from pydantic import StringConstraints

from spillway.codec import encode
from spillway.demand.figures import ANYBODYS, DemandFigures, Whose
from spillway.demand.render import asked as asked_in_words
from spillway.demand.render import cells as demand_cells
from spillway.demand.render import queue_cells, remarks, totals
from spillway.errors import Missing, SpillwayError
from spillway.ledger import Ledger
from spillway.model import Priority
from spillway.placement.explain import cells, clusters, giving_way, headline, inputs, why_not
from spillway.runs.demand_report import demand_chart, demand_now
from spillway.runs.explaining import Explained, explained
from spillway.runs.scaling_forecasts import foresee
from spillway_airflow.hooks import configuration, ledger

NEWEST_RUNS = 100
REFRESHED_EVERY = 60
"""Seconds; a page of figures asks anew by itself, and where that fails no figures are left to be taken for new."""
RUNS_IN_FULL, DECISIONS_IN_FULL = 5, 20
"""A DAG run may have asked for hundreds of runs, and each may have had hundreds of attempts."""
TEMPLATES = Environment(
    loader=FileSystemLoader(Path(__file__).parent), autoescape=True, undefined=StrictUndefined, trim_blocks=True
)
HEADERS = {
    # Airflow's own UI shows the page in a frame; nothing in it runs, and nothing is loaded from anywhere.
    "Content-Security-Policy": "default-src 'none'; style-src 'unsafe-inline'; frame-ancestors 'self'; base-uri 'none'",
    "X-Content-Type-Options": "nosniff",
    "Cache-Control": "no-store",
}

log = logging.getLogger(__name__)

# Also FastAPI's own routes are left out: they would answer strangers.
app = FastAPI(dependencies=[Depends(get_user)], openapi_url=None, docs_url=None, redoc_url=None)


@app.exception_handler(SpillwayError)
def cannot_be_told(request: Request, problem: SpillwayError) -> HTMLResponse:
    """The ledger, or what is declared, cannot be used now, whatever the reason."""
    log.warning("%s cannot be shown: %s", request.url.path, problem)
    return _page("problem", 503, title="The ledger cannot be read now", told=str(problem))


OpenLedger = Annotated[Ledger, Depends(ledger)]
Name = Annotated[str, StringConstraints(max_length=250, pattern=r"^[^\x00]*$")]
"""No database takes more than this for the name of anything, and PostgreSQL takes no NUL."""


@app.get("/decisions")
def decisions(user: GetUserDep, opened: OpenLedger) -> HTMLResponse:
    """The newest decision of each of the newest runs."""
    dags = get_auth_manager().get_authorized_dag_ids(user=user, method="GET")
    recent = opened.recent_decisions(dags, by_no_dag=_may_read(user, None), newest=NEWEST_RUNS)
    return _page("decisions", told=[(entry, headline(entry.decision)) for entry in recent], newest=NEWEST_RUNS)


def whose(
    department: Name | None = None, priority: Priority | None = None, business_scene: Name | None = None
) -> Whose:
    """The jobs that a page of figures is asked about."""
    return Whose(department=department, priority=priority, business_scene=business_scene)


Asked = Annotated[Whose, Depends(whose)]


@app.get("/demand")
def demand(user: GetUserDep, opened: OpenLedger, asked: Asked) -> HTMLResponse:
    """GPUs, what they do and who waits for them, each figure with its age; the last day as a chart.

    Whoever may read any DAG sees it; the jobs that wait and their scenes only who may read all of them.
    """
    _require_any(user)
    told, chart = _demand(opened, asked), demand_chart(opened, configuration().clusters, datetime.now(UTC))
    foreseen = foresee(opened, configuration(), told.asked_at).told
    table, may_read_all = demand_cells(told), _may_read(user, None)
    lines = [(line, pool.stale) for line, pool in zip(table[1:], told.pools, strict=True)]
    return _page(
        template="demand.html",
        asked_at=f"{told.asked_at:%Y-%m-%d %H:%M:%S} UTC",
        refreshed_every=REFRESHED_EVERY,
        asked=None if asked == ANYBODYS else asked_in_words(asked),
        choices={
            "Department": _choices(asked, "department", sorted(configuration().policy.quotas)),
            "Priority": _choices(asked, "priority", list(Priority)),
            "Business scene": _choices(asked, "business_scene", told.business_scenes if may_read_all else ()),
        },
        total=totals(told),
        stale=told.stale,
        remarks=remarks(told)[:-1],
        foreseen=foreseen,
        cells=table,
        lines=lines,
        queue=queue_cells(told) if may_read_all else [],
        chart=Markup(chart),
    )


@app.get("/demand.json")
def demand_as_data(user: GetUserDep, opened: OpenLedger, asked: Asked) -> JSONResponse:
    """The same for a program, with what is stale and why."""
    _require_any(user)
    figures = _demand(opened, asked)
    told = encode(figures) | {"foreseen": foresee(opened, configuration(), figures.asked_at).told or None}
    hidden = {} if _may_read(user, None) else {"queue": None, "business_scenes": None}
    return JSONResponse(told | hidden, headers=HEADERS)


def _demand(opened: Ledger, asked: Whose) -> DemandFigures:
    return demand_now(opened, configuration().clusters, datetime.now(UTC), asked)


def _choices(asked: Whose, name: str, values: Sequence[str]) -> list[tuple[str, str | None]]:
    """What may be asked for under that name, each with its address; without one what is asked for now."""
    now, found = encode(asked), []
    for value in (None, *values):
        then = {key: chosen for key, chosen in (now | {name: value}).items() if chosen is not None}
        found.append((value or "any", None if now[name] == value else f"demand?{urlencode(then)}"))
    return found


@app.get("/runs/{run}")
def of_run(run: Name, user: GetUserDep, opened: OpenLedger) -> HTMLResponse:
    """Every decision of a run that a person may want explained."""
    try:
        origin = opened.origin(run)
    except Missing as absent:
        return _page("problem", 404, title="No such run", told=str(absent))
    _require(user, origin.get("dag_id"))
    return _runs(opened, [run])


@app.get("/asked-by")
def asked_by(
    user: GetUserDep,
    opened: OpenLedger,
    dag_id: Name,
    run_id: Name,
    task_id: Name | None = None,
    map_index: Name = "-1",
) -> HTMLResponse:
    """The runs that a DAG run asked for; only those of one task where it asked for any itself.

    Args:
        map_index: of the task; the UI leaves its own placeholder in the address where the task is not mapped.
    """
    _require(user, dag_id)
    found = opened.runs(dag_id=dag_id, run_id=run_id)
    index = int(map_index) if map_index.isdecimal() else -1
    own = [r for r in found if (r.origin.get("task_id"), r.origin.get("map_index", -1)) == (task_id, index)]
    return _runs(opened, [record.run for record in reversed(own or found)])


def _runs(opened: Ledger, runs: Sequence[str]) -> HTMLResponse:
    """The newest decisions of the first runs, and where the other runs are shown."""
    full = {run: explained(opened, run, newest=DECISIONS_IN_FULL) for run in runs[:RUNS_IN_FULL]}
    told = {run: [_words(entry) for entry in reversed(entries)] for run, entries in full.items()}
    return _page("runs", runs=told, others=runs[RUNS_IN_FULL:], most=DECISIONS_IN_FULL)


def _words(entry: Explained) -> dict[str, Any]:
    record = entry.record
    return {
        "title": entry.title,
        "headline": headline(record.decision),
        "cells": cells(record.decision),
        "giving_way": giving_way(record.decision),
        "inputs": inputs(record.job, record.snapshot, record.policy),
        "why_not": {name: why_not(record.decision, name) for name in clusters(record.snapshot)},
        "follows": entry.follows,
    }


def _require(user: Any, dag_id: str | None) -> None:
    if not _may_read(user, dag_id):
        raise HTTPException(403, "Forbidden")


def _require_any(user: Any) -> None:
    """The user may read some DAG."""
    if not get_auth_manager().get_authorized_dag_ids(user=user, method="GET"):
        raise HTTPException(403, "Forbidden")


def _may_read(user: Any, dag_id: str | None) -> bool:
    """Whether the user may read the DAG; None: every DAG."""
    teams = conf.getboolean("core", "multi_team")
    team = DagModel.get_team_name(dag_id) if teams and dag_id is not None else None
    return get_auth_manager().is_authorized_dag(method="GET", details=DagDetails(id=dag_id, team_name=team), user=user)


def _page(kind: str = "", status: int = 200, *, template: str = "page.html", **shown: Any) -> HTMLResponse:
    text = TEMPLATES.get_template(template).render(kind=kind, **shown)
    return HTMLResponse(text, status_code=status, headers=HEADERS)
