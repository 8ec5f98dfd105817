"""A pod that a trigger watches, and a trigger as its triggerer runs it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

from spillway.clouds.base import INSTALLATION_LABEL
from spillway.clouds.facts import TRAINER_CONTAINER
from spillway.model import Attempt, AttemptState, JobSpec
from spillway.testing.builders import job_spec
from spillway.testing.installed import Installed
from spillway.testing.kube_space import Space
from spillway.testing.ledger_values import counting, reserve
from spillway.testing.polling import eventually
from spillway.testing.runnable_image import SHELL

POLL_SECONDS = 0.2
DEADLINE_SECONDS = 150
RUN = "digits-0123456789-1"
JOB = job_spec(gpus_per_node=2, grace=timedelta(seconds=1), expected_duration=timedelta(hours=2))


class Log:
    """A trigger's log as a person reads it."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.errors: list[str] = []

    def info(self, text: str, *values: object) -> None:
        self.lines.append(text % values if values else text)

    warning = info

    def error(self, text: str, *values: object, **_: object) -> None:
        self.info(text, *values)
        self.errors.append(self.lines[-1])

    def said(self, text: str, *, after: int = 0) -> bool:
        return any(text in line for line in self.lines[after:])


class Running:
    """A trigger of Airflow in an event loop, as a triggerer has it."""

    def __init__(self, trigger: Any) -> None:
        self.log = trigger._log = Log()
        self._task = asyncio.ensure_future(anext(aiter(trigger.run())))

    async def event(self) -> Any:
        return (await asyncio.wait_for(self._task, DEADLINE_SECONDS)).payload

    async def says(self, text: str, *, after: int = 0) -> None:
        """Return when the log has the text; a trigger that has fired says nothing any more."""
        await until(lambda: self._task.done() or self.log.said(text, after=after))
        assert self.log.said(text, after=after), (self._task, self.log.lines)

    def numbers(self) -> list[int]:
        """Of the lines that the pod wrote."""
        return [int(line.removeprefix("line ")) for line in self.log.lines if line.startswith("line ")]

    def ends(self) -> None:
        """As with its triggerer."""
        self._task.cancel()


async def until(seen: Callable[[], object]) -> None:
    """Return when it is seen, while the event loop goes on."""
    await asyncio.to_thread(eventually, seen, seconds=DEADLINE_SECONDS)


def launched(installed: Installed, job: JobSpec = JOB) -> Attempt:
    """The run's open attempt, its pod asked for."""
    ledger, now = installed.ledger, datetime.now(UTC)
    attempt, _ = reserve(ledger, RUN, job, now=now, decide=counting(job, capacity=2))
    assert attempt is not None
    return ledger.advance(ledger.advance(attempt, AttemptState.STAGED), AttemptState.LAUNCHED)


def train(installed: Installed, space: Space, attempt: Attempt, script: str) -> None:
    """The attempt's pod."""
    body = space.pod(attempt.label, *SHELL, script)
    body["metadata"]["labels"][INSTALLATION_LABEL] = installed.ledger.installation()
    body["spec"]["containers"][0]["name"] = TRAINER_CONTAINER
    space.create(body)
