import os
import signal
import threading
import time

from spillway.trainer.stop import StopSignal

LONG_SECONDS = 60


def stop_after(seconds: float) -> None:
    threading.Timer(seconds, os.kill, (os.getpid(), signal.SIGTERM)).start()


def test_a_pause_ends_as_soon_as_the_stop_signal_comes() -> None:
    stop = StopSignal()
    stop.install()
    began = time.monotonic()
    stop_after(0.2)
    stop.pause(LONG_SECONDS)
    assert stop.requested
    assert time.monotonic() - began < LONG_SECONDS / 2


def test_a_stop_that_came_before_the_pause_is_not_waited_for() -> None:
    stop = StopSignal()
    stop.install()
    os.kill(os.getpid(), signal.SIGTERM)
    os.kill(os.getpid(), signal.SIGTERM)
    began = time.monotonic()
    stop.pause(LONG_SECONDS)
    stop.pause(LONG_SECONDS)
    assert stop.requested
    assert time.monotonic() - began < LONG_SECONDS / 2


def test_a_pause_without_a_stop_ends_by_itself() -> None:
    stop = StopSignal()
    stop.pause(0.01)
    stop.pause(0)
    assert not stop.requested
