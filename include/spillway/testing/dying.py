"""A process that carries a run and is killed at a chosen one of the calls by which it changes anything."""

from __future__ import annotations

import dataclasses
import multiprocessing
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from spillway.errors import SpillwayError
from spillway.model import Cluster
from spillway.runs.carrying import carry
from spillway.runs.local import local_services
from spillway.runs.services import Services, Site

DIED, FAILED = 9, 10
CHANGES = frozenset({
    "reserve", "advance", "amend", "settle", "expire", "book", "cool_down", "record_transfer",  # of the ledger
    "order_move", "drain_move", "confirm_move",
    "launch", "stop", "apply",  # of a cluster
    "put",  # of a store
})  # fmt: skip
PRELOADED = [
    "pytest", "spillway.testing.dying", "spillway.clouds.kubernetes", "kubernetes.client", "kubernetes.config",
    "sqlalchemy.dialects.sqlite",
]  # fmt: skip
"""What every such process would import anew otherwise."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Death:
    """The first such change; ``done`` says whether it is made before the process dies.

    ``change`` is the name of the call, for ``advance`` with the state and for ``amend`` with the facts behind it:
    ``advance:staged``, ``amend:pod_uid``.
    """

    change: str
    done: bool

    def meet(self, call: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        if _label(call.__name__, args, kwargs) != self.change:
            return call(*args, **kwargs)
        if self.done:
            call(*args, **kwargs)
        os._exit(DIED)


class Mortal:
    """The same object for a process that meets its death in one of its calls."""

    def __init__(self, target: Any, death: Death) -> None:
        self._target, self._death = target, death

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._target, name)
        return partial(self._death.meet, found) if name in CHANGES else found


Work = Callable[[Services, str], object]
"""What a process does for a run; a function of a module, so that a process of its own can be given it."""


def carry_to_its_end(services: Services, run: str) -> object:
    """Carry the run until it is over."""
    return carry(services, run, services.ledger.job(run), lambda text: None, poll_seconds=0.2)


def carry_until(death: Death, *, config: Path, connections: Path, run: str, work: Work = carry_to_its_end) -> int:
    """Carry the run in a process of its own; gives its exit code: DIED, FAILED, or 0 where the work was done."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(PRELOADED)
    process = context.Process(target=_carry, args=(death, config, connections, run, work))
    with _path_for_new_interpreters():
        process.start()
    process.join()
    code = process.exitcode
    process.close()
    assert code is not None
    return code


@contextmanager
def _path_for_new_interpreters() -> Iterator[None]:
    """The server that forks is an interpreter of its own, to which pytest's import path is not handed on."""
    before = os.environ.get("PYTHONPATH")
    os.environ["PYTHONPATH"] = os.pathsep.join(sys.path)
    try:
        yield
    finally:
        if before is None:
            del os.environ["PYTHONPATH"]
        else:
            os.environ["PYTHONPATH"] = before


def _carry(death: Death, config: Path, connections: Path, run: str, work: Work) -> None:
    services = _mortal(local_services(config, connections), death)
    try:
        work(services, run)
    except SpillwayError as problem:
        print(problem)
        os._exit(FAILED)


def _mortal(services: Services, death: Death) -> Services:
    def open_site(cluster: Cluster) -> Site:
        site = services.open_site(cluster)
        client: Any = Mortal(site.client, death)
        checkpoints: Any = Mortal(site.checkpoints, death)
        return dataclasses.replace(site, client=client, checkpoints=checkpoints)

    ledger: Any = Mortal(services.ledger, death)
    return dataclasses.replace(services, open_ledger=lambda: ledger, open_site=open_site)


def _label(name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> str:
    if name == "advance":
        return f"advance:{args[1]}"
    return f"amend:{','.join(sorted(kwargs))}" if name == "amend" else name
