"""Blocking calls of many triggers in one event loop."""

from __future__ import annotations

import asyncio
import contextvars
import threading

from spillway_airflow.threads import in_thread

WATCHED = 40
SPEAKER = contextvars.ContextVar("SPEAKER", default="nobody")


def test_forty_calls_that_hang_do_not_hold_up_one_another_nor_the_event_loop() -> None:
    everyone = threading.Barrier(WATCHED + 1)

    async def watch() -> list[int]:
        calls = [asyncio.create_task(in_thread(everyone.wait, 60)) for _ in range(WATCHED)]
        await asyncio.sleep(0)
        return [await in_thread(everyone.wait, 60), *[await call for call in calls]]

    assert sorted(asyncio.run(watch())) == list(range(WATCHED + 1))


def test_a_call_logs_where_its_trigger_logs() -> None:
    async def speak(name: str) -> str:
        SPEAKER.set(name)
        return await in_thread(SPEAKER.get)

    async def all_speak() -> list[str]:
        return await asyncio.gather(speak("one"), speak("two"))

    assert asyncio.run(all_speak()) == ["one", "two"]
    assert SPEAKER.get() == "nobody"
