"""Blocking calls of many triggers in one event loop."""

from __future__ import annotations

import asyncio
import contextvars
import threading

from spillway_airflow.threads import THREADS, in_thread, in_waiting_thread

WATCHED = 40
SPEAKER = contextvars.ContextVar("SPEAKER", default="nobody")


def test_forty_calls_that_hang_do_not_hold_up_one_another_nor_the_event_loop() -> None:
    everyone = threading.Barrier(WATCHED + 1)

    async def watch() -> list[int]:
        calls = [asyncio.create_task(in_thread(everyone.wait, 60)) for _ in range(WATCHED)]
        await asyncio.sleep(0)
        return [await in_thread(everyone.wait, 60), *[await call for call in calls]]

    assert sorted(asyncio.run(watch())) == list(range(WATCHED + 1))


def test_any_number_of_calls_that_stand_in_line_leave_the_threads_to_the_others() -> None:
    answered = threading.Event()

    async def watch() -> list[bool]:
        calls = [asyncio.create_task(in_waiting_thread(answered.wait, 60)) for _ in range(2 * THREADS)]
        await asyncio.sleep(0)
        await in_thread(answered.set)
        return [await call for call in calls]

    assert all(asyncio.run(watch()))


def test_a_call_logs_where_its_trigger_logs() -> None:
    async def speak(name: str) -> str:
        SPEAKER.set(name)
        return await in_thread(SPEAKER.get)

    async def all_speak() -> list[str]:
        return await asyncio.gather(speak("one"), speak("two"))

    assert asyncio.run(all_speak()) == ["one", "two"]
    assert SPEAKER.get() == "nobody"
