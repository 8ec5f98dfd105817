"""How a command ends when it is told to: within seconds, whatever it waits for, with the code that shells expect."""

from __future__ import annotations

import os
import signal
import sys
import threading
from contextlib import suppress
from types import FrameType
from typing import NoReturn

from spillway.threads import leave

PATIENCE_SECONDS = 8.0
"""For what is left to say and to record: a store or a ledger that is silent would take minutes."""


class Terminated(KeyboardInterrupt):
    """SIGTERM. Whatever tidies up after Ctrl-C does so after this too."""


def exit_code(ending: KeyboardInterrupt) -> int:
    """128 and the signal's number, as shells count."""
    return 128 + (signal.SIGTERM if isinstance(ending, Terminated) else signal.SIGINT)


def end_on_signals() -> None:
    """Let SIGTERM interrupt the process as Ctrl-C does; a second Ctrl-C ends it at once.

    One that was started with SIGINT ignored, as a shell does in the background, goes on to ignore it.
    """

    def interrupt(number: int, frame: FrameType | None) -> None:
        ending = Terminated() if number == signal.SIGTERM else KeyboardInterrupt()
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        signal.signal(signal.SIGTERM, signal.SIG_IGN)  # `timeout` and others send it more than once
        threading.Thread(target=_end_after_all, args=(exit_code(ending),), name="ending", daemon=True).start()
        raise ending

    signal.signal(signal.SIGTERM, interrupt)
    if signal.getsignal(signal.SIGINT) is not signal.SIG_IGN:
        signal.signal(signal.SIGINT, interrupt)


def end(code: int) -> NoReturn:
    """End the process without the threads that still wait for somebody; what they do is safe to cut anywhere."""
    leave(thread for thread in threading.enumerate() if thread.name != "ending")
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError, ValueError):
            stream.flush()
    os._exit(code)


def _end_after_all(code: int) -> None:
    threading.Event().wait(PATIENCE_SECONDS)
    with suppress(OSError):
        os.write(2, b"spillway: interrupted while it waited for an answer; the same command goes on from there\n")
    os._exit(code)
