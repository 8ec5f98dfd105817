"""The tasks of the standing DAGs: each calls one library function."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta
from typing import Any

from airflow.sdk import PokeReturnValue, get_current_context
from airflow.sdk.exceptions import AirflowFailException, AirflowSkipException

from spillway.codec import decode, encode
from spillway.images.reference import ImageReference
from spillway.images.report import require_complete
from spillway.images.report import summary as tag_summary
from spillway.runs.distribution import Route, dataset_routes, image_routes, repository_routes
from spillway.runs.links import link_name
from spillway.runs.migrating import bring, confirmed, drain, order_move, story
from spillway.runs.move_plan import move_plan, take_advice
from spillway.runs.moving_datasets import copy_dataset
from spillway.runs.moving_images import copy_image, copy_repository
from spillway.runs.planning import plan_image
from spillway.runs.replicating import Copied, Serves, upload_checkpoints
from spillway.runs.retention import apply_retention
from spillway.runs.services import Services
from spillway.runs.sharing import copy_dataset_share, divide_dataset, merge_dataset
from spillway.runs.sweeping import sweep
from spillway.sync.progress import PROGRESS_SECONDS, Paced
from spillway.sync.report import SyncReport, summary
from spillway.sync.shares import Share
from spillway_airflow.assets import REPLICATED, SYNCED, checkpoint_asset, dataset_asset
from spillway_airflow.failures import typed_failures
from spillway_airflow.hooks import worker_services
from spillway_airflow.link_pool import run_tasks
from spillway_airflow.parameters import refuse_unknown_parameters

LIVING = frozenset(
    {"scheduled", "queued", "running", "deferred", "up_for_retry", "up_for_reschedule", "restarting", "awaiting_input"}
)


def find_image_routes(link: str | None) -> list[dict[str, str]]:
    """Plain routes over the link for a mapped task; None is every link that has no pool of its own."""
    return _routes(image_routes, lambda services, image: services.image_home, link)


def find_dataset_routes(link: str | None) -> list[dict[str, str]]:
    """As ``find_image_routes``."""
    return _routes(dataset_routes, lambda services, name: services.dataset(name).home, link)


def find_repository_routes(link: str | None) -> list[dict[str, str]]:
    """As ``find_image_routes``."""
    return _routes(repository_routes, lambda services, repository: services.image_home, link)


def _routes(
    find: Callable[[Services], Sequence[Route]], home: Callable[[Services, str], str], link: str | None
) -> list[dict[str, str]]:
    with typed_failures():
        refuse_unknown_parameters(get_current_context())
        services = worker_services()
        serves = _serves(services, link)
        return [encode(r) for r in find(services) if serves(link_name(services, home(services, r.name), r.site))]


def _serves(services: Services, link: str | None) -> Serves:
    """Whether tasks of ``link`` move what goes over a link; raises UnknownName where a pool is of no cluster.

    Those with a pool are the ones for which this DAG run has a task. A worker reads the DAG file too, and its own
    environment may name others than the DAG processor's: what only the worker's names would be moved by nobody.
    """
    ti = get_current_context()["ti"]
    tasks = [task_id.rpartition(".") for task_id in run_tasks(ti)]
    mine = ti.task_id.rpartition(".")[2]
    own = [services.cluster(group).name for group, _, task in tasks if group and task == mine]
    return lambda other: other == link if other in own else link is None


def run_image_route(route: Mapping[str, str], *, dry_run: bool, say: Any) -> Any:
    """Mirror one image to one site."""
    with typed_failures():
        services, wanted = worker_services(), decode(Route, dict(route))
        reference = ImageReference.parse(wanted.name)
        if dry_run:
            say("%s", plan_image(services, wanted.name, wanted.site, tier=wanted.tier))
            return None
        report = copy_image(
            services,
            reference.repository,
            reference.reference,
            wanted.site,
            tier=wanted.tier,
            on_progress=Paced(say, every_seconds=PROGRESS_SECONDS),
        )
        say("%s at %s is %s: %d bytes moved", wanted.name, wanted.site, report.digest, report.bytes_copied)
        return encode(report)


def run_repository_route(route: Mapping[str, str], *, dry_run: bool, verify: bool, say: Any) -> dict[str, Any]:
    """Mirror the tags of one repository to one site; the task fails where one of them is not there in the end."""
    with typed_failures():
        services, wanted = worker_services(), decode(Route, dict(route))
        declared = services.configuration.repositories[wanted.name]
        paced = Paced(say, every_seconds=PROGRESS_SECONDS)
        report = copy_repository(services, declared, wanted.site, dry_run=dry_run, verify=verify, on_progress=paced)
        found = tag_summary(report)
        say("%s at %s: %s", wanted.name, wanted.site, found)
        require_complete(report)
    return found


def run_dataset_route(
    route: Mapping[str, str], *, dry_run: bool, verify: bool, workers: int, say: Any
) -> dict[str, Any]:
    """Sync one dataset to one site and tell its asset; a large sync is only planned, in shares for other tasks."""
    with typed_failures():
        services, wanted = worker_services(), decode(Route, dict(route))
        dataset = services.configuration.datasets[wanted.name]
        shares: tuple[Share, ...] = ()
        if dry_run:
            report = copy_dataset(services, dataset, wanted.site, verify=verify, dry_run=True)
        else:
            report, shares = divide_dataset(
                services,
                dataset,
                wanted.site,
                workers=workers,
                verify=verify,
                on_progress=Paced(say, every_seconds=PROGRESS_SECONDS),
            )
    found = summary(report)
    say("%s at %s: %s%s", wanted.name, wanted.site, found, f"; the rest in {len(shares)} shares" if shares else "")
    if not shares and not dry_run:
        _tell_asset(wanted, report)
    return {**found, "route": dict(route), "shares": [encode(share) for share in shares]}


def share_name(wanted: Mapping[str, Any]) -> str:
    """How the UI calls the task of a share."""
    route, share = wanted["route"], wanted["share"]
    return f"{route['name']} -> {route['site']}, {share['number'] + 1} of {share['of']}"


def run_share(wanted: Mapping[str, Any], *, say: Any) -> dict[str, int]:
    """Copy one share of a sync."""
    with typed_failures():
        services, route = worker_services(), decode(Route, dict(wanted["route"]))
        dataset = services.configuration.datasets[route.name]
        copied = copy_dataset_share(
            services,
            dataset,
            route.site,
            decode(Share, dict(wanted["share"])),
            on_progress=Paced(say, every_seconds=PROGRESS_SECONDS),
        )
    say("%s at %s: %s", route.name, route.site, copied)
    return copied


def run_merge(planned: Mapping[str, Any], *, say: Any) -> dict[str, Any]:
    """End a sync whose shares are copied and tell the dataset's asset."""
    with typed_failures():
        services, route = worker_services(), decode(Route, dict(planned["route"]))
        dataset = services.configuration.datasets[route.name]
        report = merge_dataset(services, dataset, route.site, planned["shares"][0]["draft"])
    say("%s at %s: %s", route.name, route.site, summary(report))
    _tell_asset(route, report)
    return summary(report)


def _tell_asset(route: Route, report: SyncReport) -> None:
    if report.objects_copied:
        get_current_context()["outlet_events"][SYNCED].add(dataset_asset(route.name), extra={"site": route.site})


def run_upload(link: str | None, *, dry_run: bool, say: Any) -> list[str]:
    """Replicate checkpoints over the link; gives what failed, for a task that has failed publishes no event."""
    context = get_current_context()

    def tell(copied: Copied) -> None:
        context["outlet_events"][REPLICATED].add(checkpoint_asset(copied.job), extra=encode(copied))

    with typed_failures():
        refuse_unknown_parameters(context)
        services = worker_services()
        return list(upload_checkpoints(services, say, tell, _serves(services, link), dry_run=dry_run))


def run_prune(*, dry_run: bool, say: Any) -> list[str]:
    """Prune the checkpoints of every site; gives what failed."""
    with typed_failures():
        refuse_unknown_parameters(get_current_context())
        return list(apply_retention(worker_services(), say, dry_run=dry_run))


def require_upload(failed: Sequence[str]) -> None:
    """Fail where a run could not be replicated or pruned at a site; the next DAG run makes up for it."""
    if failed:
        raise AirflowFailException("; ".join(failed))


def run_move_order(params: Mapping[str, Any], *, say: Any) -> dict[str, Any]:
    """Order a run to its target, make that ready and let the run leave; a dry run shows the plan and skips the rest.

    A repetition is the same order, unless that has failed.
    """
    context = get_current_context()
    with typed_failures():
        refuse_unknown_parameters(context)
        services = worker_services()
        if params["dry_run"]:
            say("%s", move_plan(services, params["run"], params["target"]).text)
            raise AirflowSkipException("dry run: nothing was held, moved or ended")
        ti = context["ti"]
        wait = timedelta(minutes=params["wait_for_checkpoint"])
        if params["as_advised"] and services.ledger.open_move(params["run"]) is None:
            wait = max(wait, take_advice(move_plan(services, params["run"], params["target"])))
        origin = {"dag_id": ti.dag_id, "run_id": ti.run_id, "task_id": ti.task_id, "map_index": ti.map_index}
        move = order_move(services, params["run"], params["target"], params["reason"], say, origin=origin)
        move = drain(services, bring(services, move, say, wait=wait), say)
    return {"run": move.run, "number": move.number, "target": encode(move.target)}


def look_at_move(ordered: Mapping[str, Any], *, say: Any) -> PokeReturnValue:
    """Done when the first step at the target was seen; gives the move, fails where the move has."""
    with typed_failures():
        services = worker_services()
        move = services.ledger.move(ordered["run"], ordered["number"])
        say("%s", story(move))
        if not confirmed(services, move):
            return PokeReturnValue(is_done=False)
        return PokeReturnValue(is_done=True, xcom_value=encode(services.ledger.move(move.run, move.number)))


def run_sweep(*, dry_run: bool, say: Any) -> list[dict[str, Any]]:
    """Put right what nobody looks after."""
    context = get_current_context()
    ti = context["ti"]

    def owner_alive(origin: Mapping[str, Any]) -> bool:
        if "dag_id" not in origin:
            return False  # started from a command line, which renews the lease while it lives
        found = ti.get_task_states(dag_id=origin["dag_id"], run_ids=[origin["run_id"]])
        return pipeline_lives(origin, found.get(origin["run_id"], {}))

    with typed_failures():
        refuse_unknown_parameters(context)
        return [encode(entry) for entry in sweep(worker_services(), owner_alive, say, dry_run=dry_run)]


def pipeline_lives(origin: Mapping[str, Any], states: Mapping[str, Any]) -> bool:
    """Whether a task of the run's own pipeline may still look after it, by the states of the DAG run's tasks.

    ``origin`` names the task that placed the run; its task group is the pipeline.
    """
    group = str(origin["task_id"]).rpartition(".")[0]
    mine = (state for task_id, state in states.items() if not group or task_id.startswith(f"{group}."))
    return any(state in LIVING for state in mine)
