"""Sweeps of a later hour, by somebody who knows whether the tasks of runs are alive."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

from spillway.model import PodPhase
from spillway.runs.services import Services


def nobody(origin: Mapping[str, Any]) -> bool:
    """No task is alive."""
    return False


def somebody(origin: Mapping[str, Any]) -> bool:
    """Every task is alive."""
    return True


def later_by(services: Services, hours: int) -> Services:
    """The services as they are so many hours later."""
    return replace(services, clock=lambda: datetime.now(UTC) + timedelta(hours=hours))


def an_hour_later(services: Services) -> Services:
    """The same, after every lease that nobody has renewed since is over."""
    return later_by(services, 1)


def phase(services: Services, pod: str) -> PodPhase:
    """Of the pod of that name on premises."""
    return services.site("onprem").client.state(pod).phase
