"""The page of demand in the Airflow UI."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from html import unescape
from typing import Any

import httpx
import pytest
from airflow.api_fastapi.app import _AuthManagerState
from airflow.api_fastapi.auth.managers.simple.simple_auth_manager import SimpleAuthManager
from airflow.api_fastapi.auth.managers.simple.user import SimpleAuthManagerUser
from airflow.api_fastapi.core_api.security import get_user

from spillway.model import JobDemand, PoolSample, Priority, Sample
from spillway.testing.installed import Installed
from spillway_airflow.pages import pages
from spillway_airflow.pages.app import app

HOSTILE = "<script>alert(1)</script>"
PLACES = frozenset({("onprem", "a100")})
KIND: dict[str, Any] = {"priority": Priority.EXPLORATION, "business_scene": f"a&b {HOSTILE}"}


class Reads(SimpleAuthManager):
    """An auth manager whose users may read these DAGs, and every one where ``everything``."""

    everything = True
    dags = frozenset({"train"})

    def is_authorized_dag(self, **_: Any) -> bool:
        return self.everything

    def get_authorized_dag_ids(self, **_: Any) -> set[str]:
        return set(self.dags)


@pytest.fixture
def manager(monkeypatch: pytest.MonkeyPatch) -> Iterator[Reads]:
    """Every request is that of somebody who is logged in."""
    made = Reads()
    monkeypatch.setattr(_AuthManagerState, "instance", made)
    app.dependency_overrides[get_user] = lambda: SimpleAuthManagerUser(username="somebody", role="viewer")
    yield made
    app.dependency_overrides.clear()


def get(path: str) -> httpx.Response:
    async def ask() -> httpx.Response:
        async with httpx.AsyncClient(transport=httpx.ASGITransport(app=pages), base_url="http://airflow") as client:
            return await client.get(path)

    return asyncio.run(ask())


def record(installed: Installed, *, ago: timedelta = timedelta(), cloud: bool = True) -> None:
    pools = tuple(
        PoolSample(cluster=site.name, pool=site.nodes[0].pool, gpus=8, used_gpus=3, nodes=2, idle_nodes=0)
        for site in installed.settings.sites
        if cloud or site.name == "onprem"
    )
    waits = JobDemand(job=HOSTILE, department="research", places=PLACES, runs=1, gpus=4, **KIND)
    unknown = {} if cloud else {"cloud": f"refused {HOSTILE}"}
    at = datetime.now(UTC) - ago
    installed.ledger.record_sample(Sample(at=at, pools=pools, queue=(waits,), unknown=unknown))


def test_the_page_shows_each_pool_and_a_failing_cluster_never_looks_current(
    installed: Installed, manager: Reads
) -> None:
    record(installed)
    fresh = get("/demand")
    assert fresh.status_code == 200
    assert fresh.headers["cache-control"] == "no-store"
    assert "in all 6 of 16 GPUs used, 4 waited for." in fresh.text
    assert 'class="stale"' not in fresh.text
    assert '<meta http-equiv="refresh" content="60">' in fresh.text
    assert "<svg " in fresh.text
    assert "<script" not in fresh.text
    assert HOSTILE in unescape(fresh.text), "who may read every DAG sees who waits"
    data = get("/demand.json").json()
    assert (data["stale"], [pool["stale"] for pool in data["pools"]]) == (False, [False, False])


def test_the_page_is_of_the_jobs_that_were_asked_about_and_offers_the_others(
    installed: Installed, manager: Reads
) -> None:
    record(installed)
    everything = get("/demand").text
    links = [unescape(link) for link in re.findall(r'<a href="([^"]*)"', everything)]
    assert links[-6:-1] == [f"demand?priority={priority}" for priority in Priority]
    narrowed = get(f"/{links[-1]}&priority=exploration").text
    assert HOSTILE not in everything + narrowed
    assert f"of exploration jobs in the scene {KIND['business_scene']}. in all 0 of 16" in unescape(narrowed)
    assert "in all 0 of 16 GPUs used by research jobs, 0 waited for." in get("/demand?priority=research").text
    kept = re.findall(r'<a href="([^"]*)">production</a>', get("/demand?priority=research").text)
    assert [unescape(link) for link in kept] == ["demand?department=production&priority=research"]
    assert get("/demand?priority=urgent").status_code == 422


def test_a_cluster_that_fails_is_marked_with_its_age_and_the_cause(installed: Installed, manager: Reads) -> None:
    record(installed, ago=timedelta(minutes=30))
    record(installed, cloud=False)
    page, data = get("/demand"), get("/demand.json").json()
    assert re.search(r'<li class="stale">cloud/gpu: as it was 3\dm[0-9ms ]* ago: refused &lt;script', page.text)
    assert "(not of now: cloud/gpu)" in page.text
    assert page.text.count('<tr class="stale">') == 1
    assert (data["stale"], [pool["stale"] for pool in data["pools"]]) == (True, [False, True])
    assert data["pools"][1]["cause"] == f"refused {HOSTILE}"


def test_what_is_foreseen_or_why_nothing_is_stands_on_the_page_where_the_rules_look_ahead(
    installed: Installed, manager: Reads
) -> None:
    installed.edit("policy.yaml", lambda policy: policy["scaling"].update(forecast=None))
    assert "foreseen" not in get("/demand").text
    assert get("/demand.json").json()["foreseen"] is None
    installed.edit("policy.yaml", lambda policy: policy["scaling"].update(forecast={"quantile": 0.9, "ahead": "15m"}))
    nothing = "nothing is foreseen: demand is known for 0 steps of 1:00:00, which is less than a day"
    assert f"Everybody's demand: {nothing}." in unescape(get("/demand").text)
    assert get("/demand.json").json()["foreseen"] == nothing


def test_who_may_not_read_every_dag_sees_no_job(installed: Installed, manager: Reads) -> None:
    manager.everything = False
    record(installed)
    page, data = get("/demand"), get("/demand.json").json()
    assert "alert(1)" not in page.text
    assert "4 waited for" in page.text
    assert (data["queue"], data["business_scenes"]) == (None, None)
    assert "in all 0 of 16 GPUs used by jobs of production, 0 waited for." in get("/demand?department=production").text
    assert "Business scene" not in page.text
    manager.dags = frozenset()
    assert (get("/demand").status_code, get("/demand.json").status_code) == (403, 403)


def test_without_samples_or_ledger_the_page_says_so(installed: Installed, manager: Reads) -> None:
    assert "nobody takes samples" in get("/demand").text
    (installed.settings.state / "ledger.db").unlink()
    assert (get("/demand").status_code, get("/demand.json").status_code) == (503, 503)
