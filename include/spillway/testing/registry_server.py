"""Two real OCI registries for tests, as pytest fixtures."""

from __future__ import annotations

import secrets
import signal
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from spillway.registries.http import HttpRegistry
from spillway.sandbox.process import ProcessSpec
from spillway.sandbox.registry import registry_process
from spillway.sandbox.settings import cache_directory
from spillway.testing.ports import free_port
from spillway.testing.processes import start, stop, wait_ready


class RegistryServer:
    """A registry process that a test may kill and start again; what it stores stays."""

    def __init__(self, *, name: str, state_dir: Path) -> None:
        self.name, self.port = name, free_port()
        self.username, self.password = "mover", secrets.token_urlsafe(16)
        self.state_dir = state_dir
        self._log = state_dir.with_suffix(".log")
        self._spec = self._process_with(self.password)
        self._process: subprocess.Popen[bytes] | None = None

    def _process_with(self, password: str) -> ProcessSpec:
        return registry_process(
            name=f"{self.name}-registry",
            state_dir=self.state_dir,
            port=self.port,
            username=self.username,
            password=password,
            cache=cache_directory(),
        )

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def client(self, *, prefix: str = "") -> HttpRegistry:
        """A client with the right password."""
        return HttpRegistry(name=self.name, url=self.url, username=self.username, password=self.password, prefix=prefix)

    def start(self) -> None:
        """Start it and wait until it answers."""
        self._process = start(self._spec, self._log)
        wait_ready(self._spec, self._process, self._log)

    def stop(self) -> None:
        """End it; nothing happens where it does not run."""
        if self._process is not None:
            stop(self._process)
            self._process = None

    def kill(self) -> None:
        """End it in the middle of whatever it does."""
        if self._process is not None:
            self._process.send_signal(signal.SIGKILL)
            self._process.wait()
            self._process = None

    def change_password(self) -> None:
        """The one before is refused from now on."""
        self.password = secrets.token_urlsafe(16)
        self._spec = self._process_with(self.password)

    @contextmanager
    def outage(self) -> Iterator[None]:
        """Killed for the length of a ``with`` block."""
        self.kill()
        try:
            yield
        finally:
            self.start()


@pytest.fixture(scope="session")
def registries(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Mapping[str, RegistryServer]]:
    """The registries of two sites, ``onprem`` and ``cloud``; tests keep apart by the names of their repositories."""
    root = tmp_path_factory.mktemp("registries")
    servers = {name: RegistryServer(name=name, state_dir=root / name) for name in ("onprem", "cloud")}
    with ExitStack() as running:
        for server in servers.values():
            running.callback(server.stop)
            server.start()
        yield servers
