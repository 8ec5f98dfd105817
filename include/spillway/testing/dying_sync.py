"""A sync in a process of its own that is killed at a chosen one of its calls of a store.

``python -m spillway.testing.dying_sync ENDS LOG KILL_AT``: ENDS is JSON, what ``open_end`` takes of each store. LOG
gets a line for each object that was stored. KILL_AT counts the beginnings and ends of the calls of both stores, 0 is
for never; their number is the last line of LOG where the process lives.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from threading import Lock
from typing import Any

from spillway.stores.base import OWN_PREFIX, ObjectStore
from spillway.stores.local import LocalStore
from spillway.stores.s3 import open_store
from spillway.sync.execute import sync_dataset

DATASET, PREFIX = "digits", "digits/"
CALLS = "calls "


def open_end(folder: str | None = None, **bucket: Any) -> ObjectStore:
    """A store that is a folder, or a bucket as ``open_store`` takes it."""
    return open_store(**bucket) if folder is None else LocalStore(Path(folder))


class Mortal:
    """The same store for a process that is killed before or after one of its calls."""

    def __init__(self, store: ObjectStore, meet: Callable[[], None], log: Callable[[str], None] | None) -> None:
        self._store, self._meet, self._log = store, meet, log

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._store, name)
        return partial(self._call, found) if callable(found) else found

    def _call(self, method: Callable[..., Any], *args: Any, **options: Any) -> Any:
        self._meet()
        answer = method(*args, **options)
        if method.__name__ == "put" and self._log is not None and not args[0].startswith(OWN_PREFIX):
            self._log(args[0])
        self._meet()
        return answer


def killed_sync(ends: Mapping[str, Mapping[str, Any]], log: Path, *, kill_at: int) -> bool:
    """Sync in a process of its own; whether it was killed."""
    argv = [sys.executable, "-m", "spillway.testing.dying_sync", json.dumps(ends), str(log), str(kill_at)]
    done = subprocess.run(argv, env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}, check=False)
    assert done.returncode in {0, -signal.SIGKILL}, done
    return done.returncode != 0


def sync(ends: Mapping[str, Mapping[str, Any]], log: Path, *, kill_at: int = 0) -> None:
    """Sync in this process, which ends at that call."""
    lock, met = Lock(), 0

    def meet() -> None:
        nonlocal met
        with lock:
            met += 1
            if met == kill_at:
                os.kill(os.getpid(), signal.SIGKILL)

    with log.open("a", buffering=1) as lines:
        source: Any = Mortal(open_end(**ends["source"]), meet, None)
        destination: Any = Mortal(open_end(**ends["destination"]), meet, lambda key: print(key, file=lines))
        report = sync_dataset(
            source=source, destination=destination, dataset=DATASET, prefix=PREFIX, delete=True, delete_share_max=0.5
        )
        print(f"{CALLS}{met}", file=lines)
    assert report.ok, report.failures


if __name__ == "__main__":
    sync(json.loads(sys.argv[1]), Path(sys.argv[2]), kill_at=int(sys.argv[3]))
