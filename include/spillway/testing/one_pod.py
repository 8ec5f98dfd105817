"""A watch of an attempt on a cluster whose one pod is what a test makes it."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

from spillway.clouds.base import LogLines
from spillway.model import Attempt, Cluster, PodPhase, PodState
from spillway.runs.services import Services, Site
from spillway.runs.watching import Watch
from spillway.testing.carried_run import Carried


class OnePod:
    """A cluster with one pod, which is what a test makes it; it counts how often that is asked to end."""

    def __init__(self, attempt: Attempt, installation: str, **facts: Any) -> None:
        self.stopped = 0
        healthy = {"phase": PodPhase.RUNNING, "node": "onprem-1", "node_exists": True, "node_ready": True}
        began = datetime.now(UTC)
        fixed = {"name": attempt.label, "uid": "u-1", "started_at": began, "created_at": began}
        self.pod = PodState(**{**fixed, **healthy, "installation": installation, **facts})

    def state(self, pod_name: str, *, last_node: str | None = None) -> PodState:
        return self.pod

    def logs(self, pod_name: str, **_: Any) -> LogLines:
        return LogLines(lines=(), until=None)

    def stop(self, pod_name: str, *, grace: timedelta) -> None:
        self.stopped += 1


def watched(run: Carried, attempt: Attempt, **facts: Any) -> tuple[Watch, OnePod]:
    """A watch of the attempt on a cluster whose pod has these facts."""
    cluster = OnePod(attempt, run.services.ledger.installation(), **facts)

    def open_site(declared: Cluster) -> Site:
        return replace(run.services.open_site(declared), client=cluster)  # type: ignore[arg-type]

    services: Services = replace(run.services, open_site=open_site, _opened={})
    return Watch(services=services, attempt=attempt, logs_until=None), cluster
