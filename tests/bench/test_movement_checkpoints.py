"""Checkpoints against the server's own limit and against rclone, all as processes of their own."""

from __future__ import annotations

import hashlib
import json
import os
import random
import shutil
import subprocess
import sys
from pathlib import Path
from statistics import median

import pytest

from spillway.testing.checkpoint_bench import RUN
from spillway.testing.linked_sites import Hook
from spillway.testing.movement_sites import MovementSites
from spillway.testing.paired import Contender, line, paired, scaled

SHARDS, SHARD_BYTES = 16, scaled(8) * (16 << 20)
OURS, PEER = "bench-checkpoints", "bench-peer"
RCLONE_LARGE = (
    "--transfers", "4", "--s3-upload-concurrency", "4", "--s3-chunk-size", "16M", "--s3-no-check-bucket",
    "--retries", "1",
)  # fmt: skip


@pytest.fixture(scope="module")
def shards(memory: Path) -> Path:
    """2 GiB in 16 files of random bytes."""
    folder = memory / "shards"
    folder.mkdir()
    for number in range(SHARDS):
        (folder / f"shard-{number:02}").write_bytes(random.Random(number).randbytes(SHARD_BYTES))
    return folder


def bench(sites: MovementSites, verb: str, bucket: str, folder: Path, **hooks: Hook) -> Contender:
    server = sites.servers["cloud"]
    address = {
        "bucket": bucket,
        "endpoint_url": server.endpoint_url,
        "region": server.region,
        "access_key": server.admin.access_key,
        "secret_key": server.admin.secret_key,
    }
    module = "spillway.testing.checkpoint_bench"
    argv = (sys.executable, "-m", module, verb, str(folder), json.dumps(address))
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
    return Contender(name=verb, argv=argv, environment=environment, **hooks)


def emptied(sites: MovementSites, bucket: str) -> None:
    """A new bucket of that name: the server frees the space of a bucket, not that of single objects."""
    server = sites.servers["cloud"]
    server.store(bucket)
    server.client().delete_bucket(Bucket=bucket)
    server.store(bucket)


def digests(folder: Path) -> dict[str, str]:
    return {file.name: hashlib.sha256(file.read_bytes()).hexdigest() for file in folder.iterdir()}


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_a_checkpoint_of_two_gigabytes(movement_sites: MovementSites, shards: Path) -> None:
    ours = bench(movement_sites, "commit", OURS, shards, before=lambda: emptied(movement_sites, OURS))
    limit = bench(movement_sites, "blast", PEER, shards, before=lambda: emptied(movement_sites, PEER))
    paired("checkpoint_2gib_server_limit", ours, limit, rounds=5).report(wall=1.10)
    copy = movement_sites.rclone(
        "copy", str(shards), f"cloud:{PEER}/copy", *RCLONE_LARGE, before=lambda: emptied(movement_sites, PEER)
    )
    paired("checkpoint_2gib", ours, copy).report(wall=0.95, cpu=0.30)


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_the_next_checkpoint_of_which_an_eighth_changed(movement_sites: MovementSites, shards: Path) -> None:
    ratios, told = [], []
    for _ in range(3):
        emptied(movement_sites, OURS)
        program = bench(movement_sites, "change", OURS, shards)
        done = subprocess.run(program.argv, env=dict(program.environment), capture_output=True, text=True, check=True)
        seconds = json.loads(done.stdout)
        ratios.append(seconds["changed"] / seconds["whole"])
        told.append(f"{seconds['changed']:.2f}/{seconds['whole']:.2f}")
    line("checkpoint_2of16_wall changed/whole", median(ratios), 0.15, f"seconds {' '.join(told)}")


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_a_restore_of_two_gigabytes(movement_sites: MovementSites, shards: Path, memory: Path) -> None:
    emptied(movement_sites, OURS)
    commit = bench(movement_sites, "commit", OURS, shards)
    subprocess.run(commit.argv, env=dict(commit.environment), check=True, capture_output=True)
    target = memory / "restored"

    def fresh() -> None:
        shutil.rmtree(target, ignore_errors=True)

    def whole() -> None:
        assert digests(target) == digests(shards)

    ours = bench(movement_sites, "restore", OURS, target, before=fresh, after=whole)
    copy = movement_sites.rclone("copy", f"cloud:{OURS}/{RUN}/parts", str(target), *RCLONE_LARGE, before=fresh)
    paired("checkpoint_restore_2gib", ours, copy).report(wall=1.0)
    shutil.rmtree(target)
