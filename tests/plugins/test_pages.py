"""The pages of the Airflow UI; their answers to people of Airflow's own server are in ``e2e``."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterator, Mapping
from datetime import timedelta
from html import escape
from typing import Any

import httpx
import pytest
from airflow.api_fastapi.app import _AuthManagerState
from airflow.api_fastapi.auth.managers.simple.simple_auth_manager import SimpleAuthManager
from airflow.api_fastapi.auth.managers.simple.user import SimpleAuthManagerUser
from airflow.api_fastapi.core_api.security import get_user
from fastapi.routing import APIRoute

from spillway.ledger import Ledger
from spillway.model import DatasetFacts, JobSpec
from spillway.placement.explain import cells, inputs, table, why_not
from spillway.placement.policy import place
from spillway.testing.builders import (
    cloud_cluster,
    cluster_state,
    job_spec,
    onprem_cluster,
    placement_policy,
    snapshot,
)
from spillway.testing.installed import Installed
from spillway_airflow.pages import pages, views
from spillway_airflow.pages.app import app

POLICY = placement_policy()
SEEN = snapshot(
    cluster_state(onprem_cluster()),
    cluster_state(cloud_cluster()),
    datasets={"digits": DatasetFacts(home="onprem", size_bytes=3 << 30)},
    datasets_present=frozenset({("digits", "onprem")}),
    link_rates={"cloud": 5 * 2.0**20},
)
JOB = job_spec(dataset="digits")
HOSTILE = "<script>alert(1)</script>\"'&{{ 7*7 }}"


class ReadsOwnDagsOnly(SimpleAuthManager):
    """An auth manager that lets its users read ``train`` and no other DAG."""

    def is_authorized_dag(self, *, details: Any = None, **_: Any) -> bool:
        return details is not None and details.id == "train"

    def get_authorized_dag_ids(self, **_: Any) -> set[str]:
        return {"train"}


@pytest.fixture
def logged_in(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Every request is that of a user who may read ``train``."""
    monkeypatch.setattr(_AuthManagerState, "instance", ReadsOwnDagsOnly())
    app.dependency_overrides[get_user] = lambda: SimpleAuthManagerUser(username="somebody", role="viewer")
    yield
    app.dependency_overrides.clear()


def get(path: str, **query: str) -> httpx.Response:
    async def ask() -> httpx.Response:
        async with httpx.AsyncClient(transport=httpx.ASGITransport(app=pages), base_url="http://airflow") as client:
            return await client.get(path, params=query)

    return asyncio.run(ask())


def decided(ledger: Ledger, run: str, origin: Mapping[str, Any], job: JobSpec = JOB) -> None:
    ledger.open_run(run, job, origin, SEEN.taken_at)
    ledger.reserve(
        run,
        job,
        now=SEEN.taken_at,
        lease=timedelta(minutes=1),
        snapshot=SEEN,
        policy=POLICY,
        decide=lambda whole: place(job, whole, POLICY),
    )


def task(task_id: str = "place", map_index: int = -1, **changes: str) -> dict[str, Any]:
    return {"dag_id": "train", "run_id": "manual", "task_id": task_id, "map_index": map_index} | changes


def words(page: httpx.Response) -> str:
    return re.sub(r"<[^>]*>", " ", page.text)


def test_every_route_answers_401_to_strangers_and_there_is_no_other_one() -> None:
    """The ledger is not even looked for."""
    assert all(isinstance(route, APIRoute) for route in app.routes)
    for route in app.routes:
        assert get(route.path).status_code == 401, route.path  # type: ignore[attr-defined]
    assert {get(path).status_code for path in ("/openapi.json", "/docs", "/redoc")} == {404}


@pytest.mark.usefixtures("logged_in")
def test_the_page_of_a_run_has_every_word_of_the_table_its_inputs_and_why_not(installed: Installed) -> None:
    decided(installed.ledger, "digits-1", task())
    page = get("/runs/digits-1")
    assert page.status_code == 200
    [record] = installed.ledger.decisions("digits-1")
    said = [cell for line in cells(record.decision) for cell in line]
    said += [*inputs(record.job, record.snapshot, record.policy).values()]
    said += [line for cluster in ("onprem", "cloud") for line in why_not(record.decision, cluster)]
    assert [word for word in said if escape(word) not in page.text] == []
    assert "decided again from the stored inputs: equals the stored decision" in page.text
    assert "digits, 3.0 GiB, verified to be whole at onprem" in page.text
    assert "chosen" in table(record.decision)


@pytest.mark.usefixtures("logged_in")
def test_a_task_shows_the_run_that_it_asked_for_and_any_other_task_all_of_its_dag_run(installed: Installed) -> None:
    decided(installed.ledger, "first-1", task("first.place"))
    decided(installed.ledger, "second-1", task("second.place", 3))
    decided(installed.ledger, "later-1", task("first.place", run_id="later"))

    def shown(**asked: str) -> list[str]:
        page = get("/asked-by", dag_id="train", run_id="manual", **asked)
        assert page.status_code == 200
        return re.findall(r"<h1>(.*)</h1>", page.text)

    assert shown(task_id="first.place", map_index="{MAP_INDEX}") == ["first-1"]
    assert shown(task_id="second.place", map_index="3") == ["second-1"]
    assert shown(task_id="second.train") == shown() == ["second-1", "first-1"]


@pytest.mark.usefixtures("logged_in")
def test_of_many_runs_and_decisions_the_newest_are_shown_in_full_and_the_others_named(
    installed: Installed, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("spillway_airflow.pages.app.RUNS_IN_FULL", 1)
    monkeypatch.setattr("spillway_airflow.pages.app.DECISIONS_IN_FULL", 1)
    for run in ("a-1", "b-1"):
        decided(installed.ledger, run, task(run))
    page = get("/asked-by", dag_id="train", run_id="manual").text
    assert re.findall(r"<h1>(.*)</h1>", page) == ["b-1", "More runs"]
    assert '<li><a href="runs/a-1">a-1</a></li>' in page
    assert "These are the 1 newest. All of them: <code>python -m spillway explain --run b-1</code>" in page


@pytest.mark.usefixtures("logged_in")
def test_what_asked_for_nothing_says_so(installed: Installed) -> None:
    assert "asked for here. If the task that was to ask for one has failed, its log says why." in words(
        get("/asked-by", dag_id="train", run_id="manual")
    )
    assert "No run that you may read has been decided on." in words(get("/decisions"))
    installed.ledger.open_run("digits-1", JOB, task(), SEEN.taken_at)
    assert "Nothing has been decided for it yet." in words(get("/runs/digits-1"))


@pytest.mark.usefixtures("logged_in")
def test_who_may_not_read_the_dag_gets_403_and_an_empty_list(installed: Installed) -> None:
    decided(installed.ledger, "theirs-1", task(dag_id="theirs"))
    decided(installed.ledger, "console-1", {"user": "somebody@host"})
    assert get("/asked-by", dag_id="theirs", run_id="manual").status_code == 403
    assert get("/runs/theirs-1").status_code == 403
    assert get("/runs/theirs-1", dag_id="train").status_code == 403
    assert get("/runs/console-1").status_code == 403
    assert "No run that you may read" in words(get("/decisions"))
    decided(installed.ledger, "mine-1", task())
    assert re.findall(r'<a href="runs/(.*?)">', get("/decisions").text) == ["mine-1"]


@pytest.mark.usefixtures("logged_in")
def test_hostile_names_are_text(installed: Installed) -> None:
    decided(installed.ledger, "evil-1", task(run_id=HOSTILE), job_spec(name=HOSTILE, gpu_model=HOSTILE))
    for page in (get("/asked-by", dag_id="train", run_id=HOSTILE), get("/decisions"), get("/runs/evil-1")):
        assert page.status_code == 200
        assert "<script" not in page.text
        assert escape(HOSTILE).replace("&quot;", "&#34;").replace("&#x27;", "&#39;") in page.text
        assert page.headers["content-security-policy"].startswith("default-src 'none'")


@pytest.mark.usefixtures("logged_in", "installed")
@pytest.mark.parametrize("name", ["nowhere-1", "%3Cscript%3E", "..%2F..%2Fetc%2Fpasswd"])
def test_a_run_that_is_not_there_is_a_page_with_404(name: str) -> None:
    page = get(f"/runs/{name}")
    assert page.status_code == 404
    assert "<script" not in page.text


@pytest.mark.usefixtures("logged_in", "installed")
@pytest.mark.parametrize("name", ["a%00b", "x" * 251])
def test_a_name_that_no_database_takes_is_refused(name: str) -> None:
    assert get(f"/runs/{name}").status_code == 422
    assert get(f"/asked-by?dag_id=train&run_id={name}").status_code == 422


@pytest.mark.usefixtures("logged_in")
@pytest.mark.parametrize("path", ["/decisions", "/runs/digits-1", "/asked-by?dag_id=train&run_id=manual"])
def test_a_ledger_that_cannot_be_used_is_a_page_with_503(installed: Installed, path: str) -> None:
    (installed.settings.state / "ledger.db").unlink()
    gone = get(path)
    assert (gone.status_code, gone.headers["content-type"]) == (503, "text/html; charset=utf-8")
    assert "The ledger cannot be read now" in gone.text
    installed.connection("spillway_ledger", None)
    assert "Connection &#39;spillway_ledger&#39; is not in Airflow" in get(path).text


def test_the_ui_is_given_addresses_below_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AIRFLOW__API__BASE_URL", "https://host/air/flow/")
    assert {view["href"].partition("?")[0] for view in views()} == {
        "/air/flow/spillway/asked-by",
        "/air/flow/spillway/decisions",
        "/air/flow/spillway/demand",
    }
