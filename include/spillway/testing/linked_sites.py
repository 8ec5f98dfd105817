"""An installation of two sites, which the command line finds; for the movers' figures a slow link may lie between."""

from __future__ import annotations

import json
import os
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from spillway.ledger import upgrade
from spillway.sandbox.configuration import write_configuration, write_connections
from spillway.sandbox.settings import INCLUDE, sandbox_settings
from spillway.sandbox.sites import certificates
from spillway.testing.paired import Contender, spillway_command
from spillway.testing.slow_link import slow_link

UNUSED_PORTS = 1
Hook = Callable[[], object]


class Server(Protocol):
    """What one of the sites runs."""

    def start(self) -> None: ...

    def kill(self) -> None: ...


@dataclass(kw_only=True)
class LinkedSites(ABC):
    """Sites ``onprem`` (the home) and ``cloud``; what talks to the latter may be sent through a link."""

    folder: Path
    links: ExitStack = field(default_factory=ExitStack)
    _linked: dict[str, str] = field(default_factory=dict)

    @contextmanager
    def running(self, servers: Collection[Server]) -> Iterator[None]:
        """The sites are declared, and their servers run, for the length of the block."""
        self.folder.mkdir(exist_ok=True)
        try:
            for server in servers:
                server.start()
            self.declare()
            yield
        finally:
            self.links.close()
            for server in servers:
                server.kill()

    def declare(self) -> None:
        """Write what an installation would: configuration, Connections, an empty ledger, no job."""
        settings = sandbox_settings(self.folder, UNUSED_PORTS)
        write_configuration(settings)
        write_connections(settings, certificates(settings))
        (self.folder / "jobs").mkdir(exist_ok=True)
        self.configure(settings.config)
        known = json.loads(settings.connections.read_text())
        self.connect(known)
        settings.connections.write_text(json.dumps(known))
        upgrade(settings.ledger_url)

    @abstractmethod
    def configure(self, config: Path) -> None:
        """Declare in the folder of the configuration what is moved."""

    @abstractmethod
    def connect(self, known: dict[str, dict[str, Any]]) -> None:
        """Let the Connections, by their ids, name the servers."""

    @abstractmethod
    def url(self, name: str) -> str:
        """Where the site's server listens itself."""

    def address(self, name: str) -> str:
        """Where clients find the server: at the other end of the link, where there is one."""
        return self._linked.get(name, self.url(name))

    def far(self, *, round_trip_seconds: float) -> None:
        """From now on the way to ``cloud`` takes that long."""
        link = slow_link(self.url("cloud"), round_trip_seconds=round_trip_seconds)
        self._linked["cloud"] = self.links.enter_context(link)
        self.declare()

    def near(self) -> None:
        """From now on nothing is between the two."""
        self.links.close()
        self._linked.clear()
        self.declare()

    def ours(self, *words: str, **hooks: Hook) -> Contender:
        """``python -m spillway`` with these words."""
        # An installed program is compiled once, not at each start.
        kept = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
        environment = {
            **kept,
            "PYTHONPATH": str(INCLUDE),
            "SPILLWAY_CONFIG_DIR": str(self.folder / "config"),
            "SPILLWAY_CONNECTIONS": str(self.folder / "connections.json"),
            "SPILLWAY_JOBS_DIR": str(self.folder / "jobs"),
        }
        return Contender(name="spillway", argv=spillway_command(*words), environment=environment, **hooks)
