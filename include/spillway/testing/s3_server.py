"""Two real S3 servers for tests, as pytest fixtures."""

from __future__ import annotations

import os
import signal
import subprocess
import uuid
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from spillway.sandbox.objectstore import (
    ADMIN_ACTIONS,
    PORTS,
    REGION,
    Identity,
    create_buckets,
    endpoint_url,
    object_store_process,
)
from spillway.stores.s3 import S3Endpoint, S3Store
from spillway.testing import processes
from spillway.testing.ports import STORE_PORTS, free_port_block

if TYPE_CHECKING:
    from mypy_boto3_s3 import S3Client


class S3Server:
    """A running server with an administrator and the identity that training pods get."""

    region = REGION

    def __init__(self, name: str, state_dir: Path) -> None:
        self.name = name
        self.admin = Identity(
            name="admin", access_key=f"AKADMIN{name.upper()}", secret_key=uuid.uuid4().hex, actions=ADMIN_ACTIONS
        )
        self.trainer = Identity(
            name="trainer",
            access_key=f"AKTRAINER{name.upper()}",
            secret_key=uuid.uuid4().hex,
            actions=("Read", "Write", "List"),
        )
        self.base_port = free_port_block(PORTS, STORE_PORTS)
        self.endpoint_url = endpoint_url(self.base_port)
        self._log = state_dir / "log"
        self._process: subprocess.Popen[bytes] | None = None
        self._spec = object_store_process(
            name=f"s3-{name}",
            state_dir=state_dir,
            base_port=self.base_port,
            identities=(self.admin, self.trainer),
        )

    def start(self) -> None:
        """Start it (again) with what it stored before, and wait until it answers."""
        self._process = processes.start(self._spec, self._log)
        processes.wait_ready(self._spec, self._process, self._log)

    def kill(self) -> None:
        """End it at once, as a power cut would; what it acknowledged is on disk."""
        if self._process is not None:
            os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()
            self._process = None
        for leftover in self._spec.cleanup:
            leftover.unlink(missing_ok=True)

    def new_bucket(self) -> str:
        """The name of a bucket that was just created and that nobody else uses."""
        name = f"test-{uuid.uuid4().hex[:12]}"
        create_buckets(self.endpoint_url, self.admin, [name])
        return name

    def store(self, bucket: str | None = None, *, identity: Identity | None = None) -> S3Store:
        """The bucket, created when missing, as its administrator or ``identity`` sees it; a new one without a name.

        The first write to a bucket takes the server a fifth of a second.
        """
        if bucket is None:
            bucket = self.new_bucket()
        else:
            create_buckets(self.endpoint_url, self.admin, [bucket])
        return self.open(bucket, identity=identity)

    def client(self, *, attempts: int = 4) -> S3Client:
        """The administrator's plain client, to do what another tool would do."""
        return self.endpoint(attempts=attempts).client()

    def endpoint(self, *, url: str | None = None, identity: Identity | None = None, **limits: Any) -> S3Endpoint:
        """The server as its administrator or ``identity`` sees it; by another ``url``, such as a proxy's."""
        who = identity or self.admin
        return S3Endpoint(
            url=url or self.endpoint_url,
            region=self.region,
            access_key=who.access_key,
            secret_key=who.secret_key,
            **limits,
        )

    def open(self, bucket: str, *, identity: Identity | None = None) -> S3Store:
        """The bucket as it is: nothing is created."""
        return S3Store(name=f"s3://{bucket}@{self.name}", endpoint=self.endpoint(identity=identity), bucket=bucket)


@pytest.fixture(scope="session")
def s3_sites(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Mapping[str, S3Server]]:
    """The object stores of the two sites, ``onprem`` and ``cloud``, for the whole session.

    A test that kills one starts it again before it ends.
    """
    servers = {name: S3Server(name, tmp_path_factory.mktemp(f"s3-{name}")) for name in ("onprem", "cloud")}
    try:
        for server in servers.values():
            server.start()
        yield servers
    finally:
        for server in servers.values():
            server.kill()


@pytest.fixture(scope="session")
def s3_server(s3_sites: Mapping[str, S3Server]) -> S3Server:
    """One of them, for tests that need no second site."""
    return s3_sites["onprem"]


@pytest.fixture
def own_s3_server(tmp_path: Path) -> Iterator[S3Server]:
    """A server that the test may kill and restart at will."""
    server = S3Server("own", tmp_path / "s3")
    try:
        server.start()
        yield server
    finally:
        server.kill()
