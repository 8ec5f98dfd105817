"""Two sites with real registries for the figures of images."""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml

from spillway.testing.linked_sites import Hook, LinkedSites
from spillway.testing.paired import Contender
from spillway.testing.peers import skopeo
from spillway.testing.registry_server import RegistryServer

REPOSITORY = "bench/pytorch"
OURS, PEERS = "mirror", "peer"
"""The prefixes below which the two keep what they mirrored."""


@dataclass(kw_only=True)
class ImageSites(LinkedSites):
    """Two sites with their registries."""

    servers: Mapping[str, RegistryServer]

    def configure(self, config: Path) -> None:
        declared = {"repository": REPOSITORY, "tier": "public", "move_tags": True}
        (config / "images.yaml").write_text(yaml.safe_dump({"images": [declared]}))
        clusters = yaml.safe_load((config / "clusters.yaml").read_text())
        for cluster in clusters["clusters"]:
            cluster["registry"]["prefix"] = OURS if cluster["name"] == "cloud" else ""
        (config / "clusters.yaml").write_text(yaml.safe_dump(clusters))

    def connect(self, known: dict[str, dict[str, Any]]) -> None:
        for name, server in self.servers.items():
            host, _, port = self.host(name).partition(":")
            known[f"{name}_registry"] |= {
                "schema": "http", "host": host, "port": int(port), "login": server.username, "password": server.password
            }  # fmt: skip

    def url(self, name: str) -> str:
        return self.servers[name].url

    def host(self, name: str) -> str:
        """``host:port`` where clients find the registry."""
        return self.address(name).removeprefix("http://")

    def empty(self) -> None:
        """Remove all images from ``cloud``."""
        server = self.servers["cloud"]
        server.stop()
        shutil.rmtree(server.state_dir / "images" / "docker", ignore_errors=True)
        server.start()

    def mirror(self, **hooks: Hook) -> Contender:
        """``python -m spillway images sync`` of the repository."""
        return self.ours("images", "sync", REPOSITORY, **hooks)

    def skopeo(self, **hooks: Hook) -> Contender:
        """``skopeo sync`` of the repository."""
        home, cloud = self.servers["onprem"], self.servers["cloud"]
        # It keeps the last part of a repository's name only.
        parent = REPOSITORY.rpartition("/")[0]
        wanted = {self.host("onprem"): {"tls-verify": False, "images": {REPOSITORY: []}}}
        (self.folder / "skopeo.yaml").write_text(yaml.safe_dump(wanted))
        return skopeo_sync(
            self.folder,
            "--src", "yaml", "--dest", "docker",
            "--src-creds", f"{home.username}:{home.password}", "--dest-creds", f"{cloud.username}:{cloud.password}",
            str(self.folder / "skopeo.yaml"), f"{self.host('cloud')}/{PEERS}/{parent}",
            **hooks,
        )  # fmt: skip


def skopeo_sync(home: Path, *words: str, **hooks: Hook) -> Contender:
    """``skopeo sync`` of everything below a tag, byte for byte; ``home`` is where it keeps what it remembers."""
    peer = skopeo()
    argv = (str(peer.program), "--insecure-policy", "sync", "--all", "--preserve-digests", "--dest-tls-verify=false")
    environment = {**peer.environment, "HOME": str(home)}
    return Contender(name="skopeo", argv=(*argv, *words), environment=environment, **hooks)


@pytest.fixture(scope="session")
def image_sites(memory: Path) -> Iterator[ImageSites]:
    servers = {name: RegistryServer(name=name, state_dir=memory / f"registry-{name}") for name in ("onprem", "cloud")}
    sites = ImageSites(servers=servers, folder=memory / "image-installation")
    with sites.running(servers.values()):
        yield sites
