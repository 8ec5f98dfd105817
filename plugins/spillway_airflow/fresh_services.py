"""Services of a trigger, which outlives the passwords, the tokens and the configuration that it began with."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping
from datetime import timedelta
from typing import Any, TypeVar

from spillway.connections import ConnectionSpec
from spillway.errors import SpillwayError
from spillway.runs.services import Services
from spillway_airflow.hooks import Settings, services_of, triggerer_settings
from spillway_airflow.threads import in_thread, in_waiting_thread

T = TypeVar("T")

PERIOD = timedelta(minutes=5)
"""How old settings may become unnoticed: a pool that was added, a store's password that was changed."""
PERIOD_IN_DOUBT = timedelta(seconds=20)
"""The same while a site refuses or is silent. A changed password saves the watch only if it is read before the pod's
grace and ``node_margin`` are over."""
FIRST_PAUSE, LONGEST_PAUSE = timedelta(seconds=1), timedelta(seconds=30)
PATIENCE = timedelta(minutes=2)
"""For an error that time alone should not cure: a file that is just being replaced, a Connection that Airflow cannot
find because its own database restarts."""


class Readings:
    """The settings as the triggers of one process read them; in an outage these are hundreds, and one reads for all."""

    def __init__(self) -> None:
        self._newest: asyncio.Task[Settings] | None = None
        self._begun_at = 0.0
        self._known: Mapping[str, ConnectionSpec] | None = None

    def newest(self, max_age: timedelta) -> asyncio.Task[Settings]:
        """The newest reading, which may still go on or have failed; one that begins now where that is too old."""
        too_old = time.monotonic() - self._begun_at >= max_age.total_seconds()
        if self._newest is None or (self._newest.done() and too_old):
            self._newest, self._begun_at = asyncio.ensure_future(self._read()), time.monotonic()
        return self._newest

    async def _read(self) -> Settings:
        settings = await triggerer_settings(self._known)
        self._known = settings.connections
        return settings


_READINGS = Readings()


class FreshServices:
    """The services of one trigger: settings are read again from time to time, and soon after a doubt.

    Settings that cannot be read, or that no services can be made of, leave the ones before in use. Unchanged ones do
    too, with their open connections.
    """

    def __init__(self, log: Any) -> None:
        self._log = log
        self._reading: asyncio.Task[Settings] | None = None
        self._settings: Settings | None = None
        self._services: Services | None = None
        self._doubted = False

    def doubt(self) -> None:
        """A site refused or did not answer: its credentials or its address may have changed."""
        self._doubted = True

    async def ask(self, question: Callable[[Services], T], *, waits: bool = False) -> T:
        """What ``question`` gives, asked in a thread, again and again until it is answered.

        An endpoint that does not answer is waited for as long as it takes, with pauses that grow to ``LONGEST_PAUSE``.

        Args:
            waits: whether it stands in line with many others for one answer.
        Raises:
            SpillwayError: one that no retry helps, still there after ``PATIENCE``.
        """
        pause, hopeless_since = FIRST_PAUSE, None
        while True:
            try:
                services = await self._current()
                return await (in_waiting_thread if waits else in_thread)(question, services)
            except SpillwayError as problem:
                hopeless_since = None if problem.retry_helps else hopeless_since or time.monotonic()
                if hopeless_since and time.monotonic() - hopeless_since > PATIENCE.total_seconds():
                    raise
                self._log.warning("asked again in %.0f s: %s", pause.total_seconds(), problem)
            self.doubt()
            await asyncio.sleep(pause.total_seconds())
            pause = min(2 * pause, LONGEST_PAUSE)

    async def _current(self) -> Services:
        in_doubt = self._doubted or self._services is None
        reading = _READINGS.newest(PERIOD_IN_DOUBT if in_doubt else PERIOD)
        if self._services is not None and reading is self._reading:
            return self._services
        self._reading, self._doubted = reading, False
        try:
            return await self._made_of(await asyncio.shield(reading))
        except Exception as problem:  # whatever it is, what is watched must not be let go for it
            if self._services is None:
                raise
            self._log.warning("the settings could not be read again, the old ones stay in use: %s", problem)
            return self._services

    async def _made_of(self, settings: Settings) -> Services:
        if self._services is None or settings != self._settings:
            self._services = await in_thread(services_of, settings)
            self._settings = settings
        return self._services
