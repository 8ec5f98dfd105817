"""An uploader that is killed at any moment: what it had sent is not sent again, and the end is the undisturbed one."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from spillway.checkpoints.store import CheckpointStore
from spillway.stores.base import read_all
from spillway.testing.faulty_proxy import faulty_proxy
from spillway.testing.s3_server import S3Server

RUN = "llm-7b"
SHARDS, SHARD_BYTES = 4, 20 << 20
UPLOAD = """
import sys
from datetime import UTC, datetime
from pathlib import Path
from spillway.checkpoints.store import CheckpointStore
from spillway.stores.s3 import open_store

url, region, access_key, secret_key, bucket, folder = sys.argv[1:]
store = open_store(
    name="own", bucket=bucket, endpoint_url=url, region=region, access_key=access_key, secret_key=secret_key
)
CheckpointStore(store, "llm-7b").commit(
    step=10,
    attempt=1,
    world_size=1,
    parts={file.name: file for file in sorted(Path(folder).iterdir())},
    data_cursor={},
    metrics={},
    now=datetime(2026, 1, 5, tzinfo=UTC),
)
"""


def shards(folder: Path) -> None:
    folder.mkdir()
    for number in range(SHARDS):
        (folder / f"shard-{number}").write_bytes(random.Random(number).randbytes(SHARD_BYTES))


def start(server: S3Server, url: str, bucket: str, folder: Path) -> subprocess.Popen[bytes]:
    who = server.trainer
    words = [url, server.region, who.access_key, who.secret_key, bucket, str(folder)]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
    return subprocess.Popen([sys.executable, "-c", UPLOAD, *words], env=environment)


def kill_and_run_again(server: S3Server, folder: Path, kills: int, chance: random.Random) -> None:
    bucket = server.new_bucket()
    checkpoints = CheckpointStore(server.open(bucket), RUN)
    checkpoints.fence(1)
    with faulty_proxy(server.endpoint_url) as proxy:
        for _ in range(kills):
            uploader = start(server, proxy.url, bucket, folder)
            before = len(proxy.requests)
            requests = chance.randrange(1, 20)
            deadline = time.monotonic() + 60
            while len(proxy.requests) < before + requests and uploader.poll() is None:
                assert time.monotonic() < deadline
                time.sleep(0.005)
            uploader.send_signal(signal.SIGKILL)
            uploader.wait()
        assert start(server, proxy.url, bucket, folder).wait(120) == 0
        manifest = checkpoints.manifests()[0]
        bodies = {part.name: (folder / part.name).read_bytes() for part in manifest.parts}
        assert {name: checkpoints.load(manifest, name) for name in bodies} == bodies
        assert checkpoints.resume_point().manifest == manifest
        proxy.forget()
        assert start(server, proxy.url, bucket, folder).wait(120) == 0
        assert not [request for request in proxy.requests if request.startswith("PUT") and "/parts/" in request]
    assert read_all(checkpoints.store, f"{RUN}/HEAD").count(b'"sha256"') == 1


def test_an_uploader_that_is_killed_is_completed_by_the_next_one(s3_server: S3Server, tmp_path: Path) -> None:
    shards(tmp_path / "shards")
    kill_and_run_again(s3_server, tmp_path / "shards", 2, random.Random(7))


@pytest.mark.chaos
@pytest.mark.timeout(1800)
def test_an_uploader_that_is_killed_fifty_times_is_completed_by_the_next_one(
    s3_server: S3Server, tmp_path: Path
) -> None:
    seed = int(os.environ.get("SPILLWAY_CHAOS_SEED", str(time.time_ns() % 100000)))
    print(f"seed {seed}")
    shards(tmp_path / "shards")
    chance = random.Random(seed)
    for _ in range(10):
        kill_and_run_again(s3_server, tmp_path / "shards", 5, chance)
