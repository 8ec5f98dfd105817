"""Two sites with real object stores for the figures of datasets and checkpoints."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
import yaml

from spillway.sandbox.configuration import CHECKPOINT_BUCKET, DATASET_BUCKET
from spillway.sandbox.objectstore import create_buckets
from spillway.stores.s3 import S3Store
from spillway.testing.linked_sites import Hook, LinkedSites
from spillway.testing.made_up_server import MadeUpServer
from spillway.testing.paired import Contender
from spillway.testing.peers import rclone
from spillway.testing.processes import remove_at_our_end
from spillway.testing.s3_server import S3Server

DATASET = "bench"
PREFIX = "data/"
RCLONE_TUNED = (
    "--transfers", "48", "--checkers", "48", "--fast-list", "--checksum", "--s3-no-check-bucket", "--s3-no-head",
    "--s3-upload-concurrency", "8", "--s3-chunk-size", "16M", "--s3-disable-checksum", "--retries", "1",
)  # fmt: skip


@dataclass(kw_only=True)
class MovementSites(LinkedSites):
    """Two sites with their object stores."""

    servers: Mapping[str, S3Server | MadeUpServer]

    def configure(self, config: Path) -> None:
        declared = {"name": DATASET, "home": "onprem", "prefix": PREFIX, "tier": "public"}
        (config / "datasets.yaml").write_text(yaml.safe_dump({"datasets": [declared]}))

    def connect(self, known: dict[str, dict[str, Any]]) -> None:
        for name, server in self.servers.items():
            identities = {"store": server.admin, "store_pods": server.trainer, "store_public": server.admin}
            for suffix, identity in identities.items():
                known[f"{name}_{suffix}"] |= {"login": identity.access_key, "password": identity.secret_key}
                known[f"{name}_{suffix}"]["extra"] = json.dumps(
                    {"endpoint_url": self.address(name), "region_name": server.region}
                )
            create_buckets(server.endpoint_url, server.admin, [DATASET_BUCKET, CHECKPOINT_BUCKET])

    def url(self, name: str) -> str:
        return self.servers[name].endpoint_url

    def store(self, name: str, bucket: str = DATASET_BUCKET) -> S3Store:
        """A bucket, past the link."""
        return self.servers[name].store(bucket)

    def rclone(self, *words: str, **hooks: Hook) -> Contender:
        """rclone with these words; the stores are its remotes ``onprem:`` and ``cloud:``."""
        peer = rclone()
        environment = {"PATH": os.environ["PATH"], "HOME": str(self.folder), **peer.environment}
        for name, server in self.servers.items():
            remote = {
                "TYPE": "s3", "PROVIDER": "Other", "ENDPOINT": self.address(name), "REGION": server.region,
                "ACCESS_KEY_ID": server.admin.access_key, "SECRET_ACCESS_KEY": server.admin.secret_key,
            }  # fmt: skip
            environment |= {f"RCLONE_CONFIG_{name.upper()}_{key}": value for key, value in remote.items()}
        return Contender(name="rclone", argv=(str(peer.program), *words), environment=environment, **hooks)

    def empty(self, bucket: str = DATASET_BUCKET) -> None:
        """Remove everything from the bucket at ``cloud``."""
        store = self.store("cloud", bucket)
        assert store.delete([entry.key for entry in store.list()]) == {}


@pytest.fixture(scope="session")
def memory() -> Iterator[Path]:
    """A folder in memory where the machine has one, so that no disk is measured; removed also where we are killed."""
    shared = Path("/dev/shm")  # noqa: S108
    with TemporaryDirectory(dir=shared if os.access(shared, os.W_OK) else None, prefix="spillway-bench-") as folder:
        remove_at_our_end(Path(folder))
        yield Path(folder)


@pytest.fixture(scope="session")
def movement_sites(memory: Path) -> Iterator[MovementSites]:
    servers = {name: S3Server(name, memory / f"s3-{name}") for name in ("onprem", "cloud")}
    sites = MovementSites(servers=servers, folder=memory / "installation")
    with sites.running(servers.values()):
        yield sites
