"""Samples of demand every half minute, into the ledger, for as long as nobody ends it.

Any number of samplers may run beside each other. Their moments are the same, whoever is first writes the sample, and
one that finds it written stands by: it comes a little later from then on, and looks at no cluster unless the first one
is missing.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any, TypeVar, cast

from spillway.clouds.base import ClusterClient
from spillway.clouds.prometheus import Prometheus
from spillway.connections import require_type
from spillway.errors import ConfigError, SpillwayError, Unreachable
from spillway.measuring import measure
from spillway.model import SAMPLE_STEP, Cluster, DeviceUse, PrometheusRef
from spillway.observe import Asked, observe
from spillway.runs.services import Connect, Services
from spillway.runs.sites import ca_file
from spillway.sampling import step_start

DEADLINE = timedelta(seconds=15)
"""For all clusters together; one that is late is unknown in this sample."""
STANDS_BY = timedelta(seconds=10)
"""How much later one that is second comes."""

T = TypeVar("T")

_log = logging.getLogger(__name__)


class Sampler:
    """Takes samples; what fails is said once, and once more when it is over.

    Args:
        open_services: makes the services, at first and whenever what ``declared`` gives has changed.
    """

    def __init__(self, open_services: Callable[[], Services], declared: Callable[[], object] = lambda: None) -> None:
        self._open_services, self._declared = open_services, declared
        self._services: Services | None = None
        self._seen: object = None
        self._failing: dict[str, str] = {}
        self._asked: dict[str, threading.Lock] = {}
        self._lost = 0
        self.stands_by = False

    def run(self, stop: threading.Event, *, clock: Callable[[], datetime]) -> None:
        """Take every moment's sample until ``stop`` is set. Moments that passed meanwhile are gaps."""
        last = None
        while not stop.is_set():
            at = step_start(clock(), SAMPLE_STEP)
            if at != last:
                self.take(at)
                last = at
            offset = STANDS_BY if self.stands_by else timedelta()
            left = step_start(clock(), SAMPLE_STEP) + SAMPLE_STEP + offset - clock()
            stop.wait(min(left, SAMPLE_STEP + offset).total_seconds())

    def take(self, at: datetime) -> bool:
        """Whether there is a sample of that moment now; why not is said."""
        try:
            services = self._current()
            ledger = services.ledger
            self.stands_by = ledger.has_sample(at) or not self._measure(services, at)
            ledger.roll_up_samples(services.configuration.keep_samples, services.clock())
        except SpillwayError as problem:
            self._lost += 1
            self._note("taking samples", str(problem))
            return False
        except Exception as problem:
            _log.exception("the sample of %s failed", at.isoformat())
            self._lost += 1
            self._note("taking samples", f"{type(problem).__name__}: {problem}")
            return False
        lost, self._lost = self._lost, 0
        self._note("taking samples", None, f"; {lost} are missing" if lost else "")
        return True

    def _measure(self, services: Services, at: datetime) -> bool:
        """Whether there was nobody else who wrote all of it first."""
        over_at = time.monotonic() + DEADLINE.total_seconds()
        sources = {name: one for name, one in services.configuration.clusters.items() if one.prometheus is not None}
        asked = Asked("the GPUs of", {name: partial(self._devices, services, one) for name, one in sources.items()})
        clients = {name: self._once_at_a_time(name, client) for name, client in services.clients().items()}
        declared = services.configuration.clusters
        seen = observe(clients, now=at, deadline=DEADLINE, declared=declared)
        told = asked.answers(over_at)
        for name in seen.unreachable:
            services.forget(name)
        for name in declared:
            self._note(f"reading cluster '{name}'", seen.unreachable.get(name))
        late = f"no complete answer within {DEADLINE.total_seconds():.0f} s"
        nodes = {state.cluster.name: {node.name for node in state.nodes} for state in seen.clusters}
        for name, cluster in sources.items():
            problem = (
                unfit(cluster, told[name], nodes.get(name, ())) if name in told else asked.problems.get(name, late)
            )
            self._note(f"asking the Prometheus of cluster '{name}'", problem)
        devices = {(name, node): use for name, nodes in told.items() for node, use in nodes.items()}
        wanted = services.ledger.wanted(services.clock())
        measured = measure(at, seen, wanted.attempts, wanted.waiting, devices)
        return services.ledger.record_sample(measured.sample, measured.nodes, measured.starts)

    def _devices(self, services: Services, cluster: Cluster) -> Mapping[str, DeviceUse]:
        source = cast(PrometheusRef, cluster.prometheus)
        client = open_prometheus(cluster, services.connect)
        return self._alone(f"the Prometheus of {cluster.name}", partial(client.devices, source))

    def _once_at_a_time(self, name: str, client: ClusterClient | SpillwayError) -> ClusterClient | SpillwayError:
        if isinstance(client, SpillwayError):
            return client
        describe = partial(self._alone, f"cluster '{name}'", client.describe)
        return cast(ClusterClient, _Described(cluster=client.cluster, describe=describe))

    def _alone(self, what: str, question: Callable[[], T]) -> T:
        """The answer, unless one that was asked before is still awaited: threads that are left behind would pile up."""
        lock = self._asked.setdefault(what, threading.Lock())
        if not lock.acquire(blocking=False):
            raise Unreachable(what, "it has not answered for more than one sample")
        try:
            return question()
        finally:
            lock.release()

    def _current(self) -> Services:
        """The services by what is declared now; by what was before while that is wrong."""
        declared = self._declared()
        if self._services is None or declared != self._seen:
            try:
                self._services, self._seen = self._open_services(), declared
            except SpillwayError as problem:
                if self._services is None:
                    raise
                self._note("reading the configuration", f"{problem}; what was declared before goes on to count")
                return self._services
            self._note("reading the configuration", None)
        return self._services

    def _note(self, what: str, problem: str | None, more: str = "") -> None:
        """Say that something begins to fail, or works again."""
        if problem is None and self._failing.pop(what, None) is not None:
            _log.warning("%s works again%s", what, more)
        elif problem is not None and what not in self._failing:
            self._failing[what] = problem
            _log.warning("%s fails, which is a gap for as long as it lasts: %s", what, problem)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Described:
    """What ``observe`` needs of a client."""

    cluster: Cluster
    describe: Callable[[], Any]


def declared_files(directory: Path) -> object:
    """A value that is another one when a file of the configuration is; the same while they cannot be looked at."""
    try:
        found = [(file.name, file.stat().st_mtime_ns, file.stat().st_size) for file in directory.glob("*.yaml")]
    except OSError:
        return None
    return tuple(sorted(found))


def unfit(cluster: Cluster, told: Collection[str], nodes: Collection[str]) -> str | None:
    """Why nothing that a Prometheus tells is of the cluster, where that is so.

    Args:
        told: the names of nodes that it has figures of; ``nodes`` are those of the cluster.
    """
    label = cast(PrometheusRef, cluster.prometheus).node_label
    if nodes and not told:
        return f"it has no fresh figure of DCGM's exporter with a label '{label}'; check what it scrapes, and labels"
    if nodes and not set(nodes) & set(told):
        return f"its label '{label}' has {min(told)}, which is no node of the cluster; correct prometheus.node_label"
    return None


def open_prometheus(cluster: Cluster, connect: Connect) -> Prometheus:
    """The Prometheus of a cluster that declares one, through an ``http`` Connection; https unless that says otherwise.

    Raises:
        ConfigError, Missing: the Connection is wrong or not there.
    """
    source = cast(PrometheusRef, cluster.prometheus)
    connection = connect(source.connection)
    require_type(connection, "http")
    if not connection.host or "/" in connection.host:
        seen = "nothing" if not connection.host else f"'{connection.host}'; a path belongs into extra.path"
        raise ConfigError("Connections", f"{connection.conn_id}.host", f"expected a host alone, got {seen}")
    port = f":{connection.port}" if connection.port else ""
    path = str(connection.extra.get("path", "")).strip("/")
    vouching = ca_file(connection)
    return Prometheus(
        f"{connection.schema or 'https'}://{connection.host}{port}/{path}",
        name=cluster.name,
        login=connection.login,
        password=connection.password,
        ca_file=str(vouching) if vouching else None,
        credentials=f"Connection '{connection.conn_id}'",
    )
