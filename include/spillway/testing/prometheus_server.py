"""A real Prometheus for tests, which scrapes what a test lets an exporter say."""

from __future__ import annotations

import secrets
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from subprocess import Popen
from typing import Any

import pytest
import yaml

from spillway.clouds.prometheus import Prometheus
from spillway.connections import ConnectionSpec
from spillway.sandbox import debian
from spillway.sandbox.process import ProcessSpec, http_answers
from spillway.sandbox.registry import password_line, registry_programs
from spillway.sandbox.settings import cache_directory
from spillway.testing.polling import eventually
from spillway.testing.ports import free_port
from spillway.testing.processes import start, stop, wait_ready

USER = "sampler"
SCRAPED_EVERY = "200ms"


class Exporter:
    """Serves the lines of ``series`` as metrics; while it is ``down`` it answers with an error."""

    def __init__(self) -> None:
        self.series: list[str] = []
        self.down = False
        self.scrapes = 0
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                body = "".join(f"{line}\n" for line in outer.series).encode()
                self.send_response(503 if outer.down else 200)
                self.send_header("Content-Type", "text/plain; version=0.0.4")
                self.end_headers()
                self.wfile.write(body)
                outer.scrapes += 1

            def log_message(self, format: str, *arguments: object) -> None:
                """Nothing: Prometheus says what it misses."""

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        threading.Thread(target=self.server.serve_forever, name="exporter", daemon=True).start()

    @property
    def port(self) -> int:
        return int(self.server.server_address[1])

    def close(self) -> None:
        self.server.shutdown()
        self.server.server_close()

    def tell(self, *series: str) -> None:
        """Say these from now on; returns when they have been scraped."""
        self.series, self.down = list(series), False
        self.await_scrape()

    def fail(self) -> None:
        """Say nothing any more; returns when that has been noticed."""
        self.down = True
        self.await_scrape()

    def await_scrape(self) -> None:
        """The second scrape from now began after it, and the one before is in the database by its end."""
        before = self.scrapes
        eventually(lambda: self.scrapes, lambda seen: seen >= before + 3)


class PrometheusServer:
    """A Prometheus with a password that a test may kill and start again."""

    def __init__(self, folder: Path, exporter: Exporter) -> None:
        self.port, self.password, self.exporter = free_port(), secrets.token_hex(12), exporter
        self._log = folder / "prometheus.log"
        self._spec = _process(folder, port=self.port, password=self.password, exporter=exporter.port)
        self._process: Popen[bytes] | None = None

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def client(self, *, password: str | None = None) -> Prometheus:
        return Prometheus(self.url, name="onprem", login=USER, password=password or self.password)

    def connection(self, conn_id: str, **changes: str) -> ConnectionSpec:
        """A Connection of it."""
        fields: dict[str, Any] = {
            "schema": "http",
            "host": "127.0.0.1",
            "login": USER,
            "password": self.password,
        } | changes
        return ConnectionSpec(conn_id=conn_id, conn_type="http", port=self.port, **fields)

    def start(self) -> None:
        self._process = start(self._spec, self._log)
        wait_ready(self._spec, self._process, self._log)
        self.exporter.await_scrape()

    def stop(self) -> None:
        if self._process is not None:
            stop(self._process, grace_seconds=0)
            self._process = None

    @contextmanager
    def outage(self) -> Iterator[None]:
        """It is away for the length of a ``with`` block."""
        self.stop()
        try:
            yield
        finally:
            self.start()


@pytest.fixture(scope="session")
def prometheus_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PrometheusServer]:
    """One for the session; a test lets its exporter tell what it needs."""
    exporter = Exporter()
    server = PrometheusServer(tmp_path_factory.mktemp("prometheus"), exporter)
    try:
        server.start()
        yield server
    finally:
        server.stop()
        exporter.close()


def dcgm(metric: str, value: float | str, *, node: str = "a100-0", gpu: int = 0, **labels: str) -> str:
    """A line of DCGM's exporter; ``metric`` without its prefix."""
    told: Mapping[str, str] = {"Hostname": node, "gpu": str(gpu), "UUID": f"GPU-{node}-{gpu}", **labels}
    pairs = ",".join(f'{name}="{text}"' for name, text in told.items())
    return f"DCGM_FI_DEV_{metric}{{{pairs}}} {value}"


def _process(folder: Path, *, port: int, password: str, exporter: int) -> ProcessSpec:
    """Raises SandboxError where the program cannot be had."""
    root = debian.unpack(("prometheus",), cache=cache_directory())
    line = password_line(registry_programs(cache_directory()), USER, password)
    scraped = {"job_name": "dcgm", "static_configs": [{"targets": [f"127.0.0.1:{exporter}"]}]}
    every = {"scrape_interval": SCRAPED_EVERY, "scrape_timeout": SCRAPED_EVERY}
    (folder / "prometheus.yml").write_text(yaml.safe_dump({"global": every, "scrape_configs": [scraped]}))
    (folder / "web.yml").write_text(yaml.safe_dump({"basic_auth_users": {USER: line.strip().partition(":")[2]}}))
    return ProcessSpec(
        name="prometheus",
        argv=(
            str(root / "usr/bin/prometheus"),
            f"--config.file={folder / 'prometheus.yml'}",
            f"--web.config.file={folder / 'web.yml'}",
            f"--web.listen-address=127.0.0.1:{port}",
            f"--storage.tsdb.path={folder / 'data'}",
            "--log.level=warn",
        ),
        environment=debian.environment(root) | {"GOMAXPROCS": "1"},
        working_directory=folder,
        ready=lambda: http_answers(f"http://127.0.0.1:{port}/-/ready", statuses=(200, 401)),
        ports=(port,),
    )
