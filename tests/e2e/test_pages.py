"""The pages of Airflow's API server, as its own users and strangers meet them."""

from __future__ import annotations

import json
import urllib.error
import urllib.parse
import urllib.request
from typing import Any

import pytest

from spillway.sandbox.airflow_api import AirflowApi
from spillway.testing.airflow_server import NOBODY, AirflowSandbox, DagRun
from spillway.testing.polling import eventually

pytestmark = pytest.mark.timeout(900)


@pytest.fixture(scope="module")
def trained(airflow: AirflowSandbox) -> DagRun:
    run = airflow.train("digits")
    assert run.wait() == "success"
    return run


def paths(airflow: AirflowSandbox, run: DagRun) -> list[str]:
    """One address of every route."""
    asked = {"dag_id": run.dag_id, "run_id": run.run_id, "task_id": "place", "map_index": "{MAP_INDEX}"}
    [name] = airflow.training_runs(run)
    of_run, of_task = f"/spillway/runs/{name}", f"/spillway/asked-by?{urllib.parse.urlencode(asked)}"
    return ["/spillway/decisions", of_run, of_task, "/spillway/demand", "/spillway/demand.json"]


def answer(airflow: AirflowSandbox, path: str, headers: dict[str, str] | None = None) -> tuple[int, str]:
    request = urllib.request.Request(airflow.api.url + path, headers=headers or {})
    try:
        with urllib.request.urlopen(request, timeout=60) as response:
            return response.status, response.read().decode()
    except urllib.error.HTTPError as problem:
        return problem.code, problem.read().decode()


def bearer(api: AirflowApi) -> dict[str, str]:
    return {"Authorization": f"Bearer {api.token()}"}


def test_every_route_is_shut_to_strangers_and_open_to_whoever_may_read_the_dag(
    airflow: AirflowSandbox, trained: DagRun
) -> None:
    for path in paths(airflow, trained):
        assert answer(airflow, path)[0] == 401, path
        assert answer(airflow, path, {"Authorization": "Bearer a.b.c"})[0] in {401, 403}, path
        assert answer(airflow, path, bearer(airflow.api))[0] == 200, path
        assert answer(airflow, path, {"Cookie": f"_token={airflow.api.token()}"})[0] == 200, path


def test_a_user_without_a_role_reads_no_decision(airflow: AirflowSandbox, trained: DagRun) -> None:
    listed, *others = paths(airflow, trained)
    nobody = bearer(airflow.api_of(NOBODY))
    assert [answer(airflow, path, nobody)[0] for path in others] == [403] * len(others)
    status, page = answer(airflow, listed, nobody)
    assert (status, "No run that you may read" in page) == (200, True)


def test_the_page_of_the_task_and_its_log_have_the_same_table(airflow: AirflowSandbox, trained: DagRun) -> None:
    pages = paths(airflow, trained)[:3]
    listed, of_run, of_task = (answer(airflow, path, bearer(airflow.api))[1] for path in pages)
    [name] = airflow.training_runs(trained)
    log = trained.log("place")
    for told in ("onprem/gpu/owned", "cloud/gpu/spot", "interruption: may not be interrupted (spot_ok is false)"):
        assert told in of_run, told
        assert told in log, told
    assert "weights: qos 0.7, cost 0.15, affinity 0.15" in log
    assert "<dd>qos 0.7, cost 0.15, affinity 0.15</dd>" in of_run
    assert of_task == of_run
    assert f'<a href="runs/{name}">' in listed


def test_the_ui_knows_its_views(airflow: AirflowSandbox) -> None:
    plugins = airflow.api.call("GET", "/plugins")["plugins"]
    views = {
        (v["destination"], v["url_route"]) for p in plugins if p["name"] == "spillway" for v in p["external_views"]
    }
    assert views == {
        ("task_instance", "placement"),
        ("dag_run", "placements"),
        ("nav", "placement-decisions"),
        ("nav", "gpu-demand"),
    }


def test_the_page_of_demand_is_fed_by_the_sampler_beside_airflow(airflow: AirflowSandbox) -> None:
    def told() -> dict[str, Any]:
        found: dict[str, Any] = json.loads(answer(airflow, "/spillway/demand.json", bearer(airflow.api))[1])
        return found

    figures = eventually(told, lambda found: not found["stale"], seconds=300, pause=1)
    assert {(pool["cluster"], pool["pool"], pool["gpus"]) for pool in figures["pools"]} == {
        (site.name, site.nodes[0].pool, sum(node.gpus for node in site.nodes)) for site in airflow.settings.sites
    }
    assert "<svg" in answer(airflow, "/spillway/demand", bearer(airflow.api))[1]


def test_without_the_ledger_each_page_says_so(airflow: AirflowSandbox, trained: DagRun) -> None:
    addresses = paths(airflow, trained)
    with airflow.ledger_away():
        for path in addresses:
            status, page = answer(airflow, path, bearer(airflow.api))
            assert (status, "The ledger cannot be read now" in page) == (503, True), path
    assert answer(airflow, addresses[0], bearer(airflow.api))[0] == 200
