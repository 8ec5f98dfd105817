"""Jobs that are over in a moment, and runs of them that a thread carries on the sandbox."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from spillway.clouds import node_pools
from spillway.config import load_job
from spillway.images import patience
from spillway.model import JobSpec
from spillway.registries import transport
from spillway.runs import sites
from spillway.runs.services import Services
from spillway.sandbox.settings import INCLUDE
from spillway.testing.builders import job_fields
from spillway.testing.carried_run import Carried

GRACE = timedelta(seconds=3)

MakeJob = Callable[..., JobSpec]


@pytest.fixture(autouse=True)
def short_outages(monkeypatch: pytest.MonkeyPatch) -> None:
    """What these tests take away stays away; what follows is not waited for as long as a restart may take."""
    for module in (sites, patience, transport):
        monkeypatch.setattr(module, "AWAY_SECONDS", 1.0)
    monkeypatch.setattr(node_pools, "SETTLE_SECONDS", 0.0)  # the sandbox's scheduler knows at once what is cordoned


@pytest.fixture
def make_job(services: Services) -> MakeJob:
    """The declared job of the digits, smaller: ``steps``, a commit ``every`` so many, ``pace`` seconds a step."""
    declared = load_job(INCLUDE / "jobs" / "digits.yaml", services.configuration.datasets)

    def make(*, steps: int = 6, every: int = 2, pace: float = 0.0, **fields: Any) -> JobSpec:
        environment = {
            "SPILLWAY_STEPS": str(steps),
            "SPILLWAY_CHECKPOINT_EVERY": str(every),
            "SPILLWAY_STEP_SECONDS": str(pace),
            "SPILLWAY_SEED": "7",
        }
        changes: dict[str, Any] = {"environment": environment, "grace": GRACE} | job_fields(fields)
        return replace(declared, **changes)

    return make


Carry = Callable[[JobSpec], Carried]


@pytest.fixture
def open_run(services: Services) -> Iterator[Carry]:
    """Opens a run of the job that nobody carries yet; a thread that carries it at the end of the test is ended."""
    opened: list[Carried] = []

    def opened_run(job: JobSpec) -> Carried:
        run = f"{job.name}-{uuid.uuid4().hex[:8]}"
        services.ledger.open_run(run, job, {"test": run}, services.clock())
        opened.append(Carried(services=services, run=run, job=job))
        return opened[-1]

    yield opened_run
    for carried in opened:
        carried.stop()


@pytest.fixture
def start_run(open_run: Carry) -> Carry:
    """Opens a run of the job and carries it in a thread."""
    return lambda job: open_run(job).start()
