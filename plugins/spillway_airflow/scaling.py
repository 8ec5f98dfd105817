"""The tasks of the DAGs that scale node pools."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import timedelta
from hashlib import sha256
from typing import Any

from airflow.providers.standard.exceptions import HITLTimeoutError
from airflow.sdk import ExceptionRetryPolicy, PokeReturnValue, RetryAction, RetryRule, get_current_context
from airflow.sdk.exceptions import AirflowFailException, AirflowSkipException

from spillway.codec import decode, encode
from spillway.errors import ScalerBusy, TurnLost
from spillway.runs.migrating import bring, drain, order_move
from spillway.runs.notices import deliver_notices
from spillway.runs.returning import Homecoming, homecomings
from spillway.runs.scaling import look, scale
from spillway.runs.scaling_orders import add_text, depart, order_approved, order_more, plan_shrink, pool_named
from spillway.runs.scaling_outcome import is_taken_up, order_outcome
from spillway.scaling.shrinking import Departure, ShrinkPlan
from spillway.scaling.shrinking import told as shrink_told
from spillway_airflow.failures import typed_failures
from spillway_airflow.hooks import worker_services
from spillway_airflow.notifiers import deliver
from spillway_airflow.parameters import refuse_unknown_parameters

UNANSWERED = ExceptionRetryPolicy(
    rules=[
        RetryRule(
            exception=HITLTimeoutError,
            action=RetryAction.FAIL,
            reason="nobody answered in time, and nothing was ordered; start it again where it is still wanted",
        )
    ]
)
"""Nobody is asked again: by then the plan is another one, and whoever started it is to see that it came to nothing."""


def run_scale(*, dry_run: bool, say: Any) -> list[dict[str, Any]]:
    """Scale every pool and tell who is to know; gives the changes. Fails where something was not known or not done."""
    with typed_failures():
        refuse_unknown_parameters(get_current_context())
        services = worker_services()
        if dry_run:
            found = look(services)
            told = map(found.told, filter(found.is_known, found.plan))
            for line in filter(None, (*told, *found.problems, found.foreseen)):
                say("%s", line)
            raise AirflowSkipException("dry run: nothing was changed")
        try:
            scaled = scale(services, say)
        except (ScalerBusy, TurnLost) as busy:
            raise AirflowSkipException(str(busy)) from busy
        if not scaled.changes and not scaled.problems:
            say("every pool is as wanted")
        sent = deliver_notices(services, deliver, say)
    problems = [*scaled.problems, *(f"{notice.target} could not be told" for notice in sent.failed)]
    if problems:
        raise AirflowFailException("; ".join(problems))
    return [encode(change) for change in scaled.changes]


def run_plan(params: Mapping[str, Any], *, say: Any) -> dict[str, Any]:
    """What the order comes to, for whoever has to approve it; a dry run skips the rest."""
    with typed_failures():
        refuse_unknown_parameters(get_current_context())
        services = worker_services()
        plan: dict[str, Any] | None = None
        if params["action"] == "add":
            text = add_text(services, pool_named(services, params["pool"]), params["nodes"])
        else:
            shrink = plan_shrink(services, params["pool"], params["nodes"])
            text, plan = shrink_told(shrink), encode(shrink)
        say("%s", text)
        if params["dry_run"]:
            raise AirflowSkipException("dry run: nothing was ordered")
    return {"text": text, "plan": plan}


def run_order(params: Mapping[str, Any], planned: Mapping[str, Any], *, say: Any) -> list[dict[str, Any]]:
    """Put the approved order on record, once however often this is tried; gives the runs that have to leave."""
    context = get_current_context()
    lasting = timedelta(hours=params["hours"])
    name, by = _order_name(context), _who(context)
    with typed_failures():
        services = worker_services()
        departures: list[dict[str, Any]] = []
        if planned["plan"] is None:
            order = order_more(services, params["pool"], params["nodes"], order=name, by=by, lasting=lasting)
        else:
            approved = decode(ShrinkPlan, planned["plan"])
            order, leaving = order_approved(services, approved, say, order=name, by=by, lasting=lasting)
            departures = [encode(departure) for departure in leaving]
    say("order %s of %s: %s %d at %s/%s", name, by, order.kind, order.nodes, order.cluster, order.pool)
    return departures


def look_whether_taken_up(*, say: Any) -> PokeReturnValue:
    """Done when the scaler has closed the nodes that are to leave."""
    with typed_failures():
        services = worker_services()
        order = services.ledger.scaling_order(_order_name(get_current_context()))
        done = is_taken_up(pool_named(services, f"{order.cluster}/{order.pool}"), order)
    say("order %s: %s", order.order, "its nodes take no more pods" if done else "waiting for the scaler")
    return PokeReturnValue(is_done=done)


def run_departure(departure: Mapping[str, Any], *, say: Any) -> str:
    """Let one run leave its node; gives what became of it."""
    with typed_failures():
        done = depart(worker_services(), decode(Departure, dict(departure)), "forced shrink", say, origin=_origin())
    say("%s", done)
    return done


def look_at_effect(departures: Sequence[Mapping[str, Any]], *, say: Any) -> PokeReturnValue:
    """Done when the order is carried out or holds no longer; gives plan and effect side by side."""
    leaving = tuple(decode(Departure, dict(departure)) for departure in departures)
    with typed_failures():
        outcome = order_outcome(worker_services(), _order_name(get_current_context()), leaving, say)
    for line in outcome.lines:
        say("%s", line)
    return PokeReturnValue(is_done=outcome.over, xcom_value=encode(outcome) if outcome.over else None)


def run_choose_returns(*, dry_run: bool, say: Any) -> list[dict[str, Any]]:
    """The runs that go back to on-premises now, and where to."""
    with typed_failures():
        refuse_unknown_parameters(get_current_context())
        found = homecomings(worker_services(), say)
    for back in found:
        say("%s goes back to %s: %s", back.run, back.where, back.reason)
    if dry_run:
        raise AirflowSkipException("dry run: nothing was moved")
    return [encode(back) for back in found]


def run_return(back: Mapping[str, Any], *, say: Any) -> dict[str, Any]:
    """Order one run back, make its place ready and let it leave; whoever carries it takes it there."""
    wanted, origin = decode(Homecoming, dict(back)), _origin()
    with typed_failures():
        services = worker_services()
        move = order_move(services, wanted.run, wanted.where, wanted.reason, say, origin=origin)
        move = drain(services, bring(services, move, say), say)
    return {"run": move.run, "number": move.number, "target": encode(move.target)}


def _origin() -> dict[str, Any]:
    ti = get_current_context()["ti"]
    return {"dag_id": ti.dag_id, "run_id": ti.run_id, "task_id": ti.task_id, "map_index": ti.map_index}


def _order_name(context: Any) -> str:
    """The same for every task and try of a DAG run, and another one for each."""
    ti = context["ti"]
    return f"form-{sha256(f'{ti.dag_id}/{ti.run_id}'.encode()).hexdigest()[:12]}"


def _who(context: Any) -> str:
    """Who asked and who approved."""
    answer = context["ti"].xcom_pull(task_ids="approve") or {}
    asked = context["dag_run"].triggering_user_name or context["dag_run"].run_id
    approved = (answer.get("responded_by_user") or {}).get("name")
    return f"{asked}, approved by {approved}" if approved else str(asked)
