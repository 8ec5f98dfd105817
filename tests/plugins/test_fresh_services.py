"""How often the settings of a triggerer are read, which are the same for all of its triggers."""

from __future__ import annotations

import asyncio
import logging
from datetime import timedelta
from typing import Any

import pytest

from spillway.testing.installed import Installed
from spillway_airflow import fresh_services
from spillway_airflow.fresh_services import FreshServices
from spillway_airflow.hooks import Settings, triggerer_settings

log = logging.getLogger(__name__)


def test_settings_are_not_read_at_every_poll_of_an_outage(
    installed: Installed, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fresh_services, "PERIOD_IN_DOUBT", timedelta(hours=1))
    fresh = FreshServices(log)

    async def scenario() -> None:
        first = await fresh.ask(lambda services: services)
        installed.edit("policy.yaml", lambda document: document["runs"].update(lease="7m"))
        for _ in range(3):
            fresh.doubt()
            assert await fresh.ask(lambda services: services) is first
        monkeypatch.setattr(fresh_services, "PERIOD_IN_DOUBT", timedelta())
        again = await fresh.ask(lambda services: services)
        assert again.configuration.runs.lease == timedelta(minutes=7)

    asyncio.run(scenario())


def test_hundreds_of_triggers_in_an_outage_read_the_settings_once(
    installed: Installed, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fresh_services, "PERIOD_IN_DOUBT", timedelta(hours=1))
    read: list[Settings] = []
    triggers = [FreshServices(log) for _ in range(100)]

    async def noted(known: Any = None) -> Settings:
        read.append(await triggerer_settings(known))
        return read[-1]

    async def all_ask() -> list[timedelta]:
        for fresh in triggers:
            fresh.doubt()
        asked = [fresh.ask(lambda services: services.configuration.runs.lease) for fresh in triggers]
        return await asyncio.gather(*asked)

    async def scenario() -> None:
        await all_ask()
        await all_ask()
        assert len(read) == 1
        installed.edit("policy.yaml", lambda document: document["runs"].update(lease="7m"))
        monkeypatch.setattr(fresh_services, "PERIOD_IN_DOUBT", timedelta(milliseconds=1))
        assert set(await all_ask()) == {timedelta(minutes=7)}

    monkeypatch.setattr(fresh_services, "triggerer_settings", noted)
    asyncio.run(scenario())
