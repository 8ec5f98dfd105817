"""A trigger lives for days: it outlives tokens, changed declarations and moments without a ledger."""

from __future__ import annotations

import asyncio
import json
import os
import secrets
from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import Any

import pytest
from airflow.triggers.base import BaseTrigger

from spillway.codec import encode
from spillway.errors import ConfigError
from spillway.model import Attempt, AttemptState
from spillway.runs.services import Services
from spillway.testing.installed import Installed
from spillway.testing.kube_server import KubeCluster
from spillway.testing.kube_space import Space
from spillway.testing.watched import JOB, POLL_SECONDS, RUN, Running, launched, train, until
from spillway_airflow import fresh_services
from spillway_airflow.hooks import Settings, services_of
from spillway_airflow.triggers.capacity import CapacityTrigger
from spillway_airflow.triggers.pod import PodTrigger

AT_ONCE = timedelta()

pytestmark = pytest.mark.usefixtures("_soon")


def watch(attempt: Attempt) -> PodTrigger:
    return PodTrigger(run=attempt.run, number=attempt.number, poll_seconds=POLL_SECONDS)


@pytest.fixture
def tokens(kube_api: KubeCluster) -> Iterator[Callable[[str], dict[str, Any]]]:
    """Lets the cluster accept this token and no earlier one of the test; gives the kubeconfig that has it."""
    file = kube_api.directory / "tokens"
    before = file.read_text()

    def restart(accepted: str) -> None:
        file.write_text(accepted)
        kube_api.api.kill()
        kube_api.api.start()

    def issue(token: str) -> dict[str, Any]:
        restart(f"{before}{token},tester\n")
        user = {"name": kube_api.name, "user": {"token": token}}
        return kube_api.kubeconfig | {"users": [user]}

    yield issue
    restart(before)


def test_a_token_that_is_rotated_does_not_end_the_watch_of_a_healthy_pod(
    installed: Installed, space: Space, tokens: Callable[[str], dict[str, Any]]
) -> None:
    installed.kubernetes("onprem", tokens(secrets.token_hex()))
    attempt = launched(installed)
    train(installed, space, attempt, "sleep 3600")
    space.phase(attempt.label, "Running")

    async def scenario() -> None:
        running = Running(watch(attempt))
        await running.says("running on node")
        rotated = await asyncio.to_thread(tokens, secrets.token_hex())
        await running.says("refused the credentials")
        seen = len(running.log.lines)
        installed.kubernetes("onprem", rotated)
        await running.says("running on node", after=seen)
        running.ends()

    asyncio.run(scenario())
    stored = installed.ledger.attempt(RUN, 1)
    assert (stored.state, stored.outcome) == (AttemptState.RUNNING, None)
    assert len(installed.ledger.attempts(RUN)) == 1


def test_a_job_that_waits_is_placed_on_a_pool_that_is_declared_while_it_waits(
    installed: Installed, space: Space, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fresh_services, "PERIOD", AT_ONCE)

    def no_node_matches(document: Any) -> None:
        document["clusters"][0]["pools"][0]["node_selector"] = {"rack": "not-there-yet"}

    def another_pool(document: Any) -> None:
        pools = document["clusters"][0]["pools"]
        pools.append(pools[0] | {"name": "new", "node_selector": {"spillway.dev/pool": "a100"}})

    installed.edit("clusters.yaml", no_node_matches)
    made: list[Settings] = []

    def noted(settings: Settings) -> Services:
        made.append(settings)
        return services_of(settings)

    monkeypatch.setattr(fresh_services, "services_of", noted)

    async def scenario() -> None:
        running = Running(CapacityTrigger(job=encode(JOB), poll_seconds=POLL_SECONDS))
        await until(lambda: made)
        installed.edit("clusters.yaml", another_pool)
        assert (await running.event())["chosen"]["pool"] == "new"

    asyncio.run(scenario())
    assert [len(settings.configuration.clusters["onprem"].pools) for settings in made] == [1, 2]


def test_settings_that_cannot_be_read_again_leave_the_old_ones_in_use(
    installed: Installed, space: Space, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fresh_services, "PERIOD", AT_ONCE)
    attempt = launched(installed)
    train(installed, space, attempt, "sleep 3600")
    clusters = installed.settings.config / "clusters.yaml"
    right = clusters.read_text()

    async def scenario() -> None:
        running = Running(watch(attempt))
        await running.says("running on node")
        clusters.write_text("clusters: [half-written")
        await running.says("the old ones stay in use: clusters.yaml")
        installed.connection("onprem_kubernetes", None)
        clusters.write_text(right)
        seen = len(running.log.lines)
        space.core.delete_namespaced_pod(attempt.label, space.name)
        ended = (await running.event())["ended"]
        assert ended["kind"] == "deleted-by-person", running.log.lines
        assert not running.log.said("no answer since", after=seen), running.log.lines

    asyncio.run(scenario())


@pytest.mark.parametrize(
    ("entry", "said"),
    [
        (None, "Connection 'spillway_ledger' is not in Airflow"),
        ({"conn_type": "postgres", "host": "127.0.0.1", "port": 1, "schema": "ledger"}, "unreachable"),
    ],
    ids=["Airflow's database", "the ledger"],
)
def test_a_trigger_that_starts_during_an_outage_waits_for_its_end(
    installed: Installed, space: Space, entry: dict[str, Any] | None, said: str
) -> None:
    attempt = launched(installed)
    train(installed, space, attempt, "exit 0")
    right = json.loads(os.environ["AIRFLOW_CONN_SPILLWAY_LEDGER"])

    async def scenario() -> None:
        installed.connection("spillway_ledger", entry)
        running = Running(watch(attempt))
        await running.says(said)
        installed.connection("spillway_ledger", right)
        assert (await running.event())["ended"]["kind"] == "succeeded"

    asyncio.run(scenario())


@pytest.mark.parametrize(
    "trigger", [PodTrigger(run=RUN, number=1), CapacityTrigger(job=encode(JOB))], ids=["pod", "capacity"]
)
def test_a_trigger_whose_configuration_stays_wrong_ends_its_task_with_the_message(
    installed: Installed, monkeypatch: pytest.MonkeyPatch, trigger: BaseTrigger
) -> None:
    monkeypatch.setattr(fresh_services, "PATIENCE", timedelta(seconds=2 * POLL_SECONDS))
    (installed.settings.config / "clusters.yaml").write_text("clusters: []")

    async def scenario() -> None:
        running = Running(trigger)
        with pytest.raises(ConfigError, match=r"clusters.yaml: clusters"):
            await running.event()
        assert running.log.said("asked again in"), "once was not enough"

    asyncio.run(scenario())
