"""Images that a node agent can run, put into a real registry: a few files over the host's root file system."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Any

from spillway.registries.base import Manifest
from spillway.registries.digest import digest_of
from spillway.sandbox.image_layer import Layer, pack
from spillway.testing.images import OCI_MANIFEST, image_manifest
from spillway.testing.registry_server import RegistryServer

SHELL = ("/bin/sh", "-c")


@dataclass(frozen=True, kw_only=True)
class ImageSource:
    """A registry to put images into; ``docker_config`` is what a pull secret for it holds."""

    server: RegistryServer

    def put(self, repository: str, *layers: Mapping[str, bytes], **config: Any) -> str:
        """Store an image of these layers (path -> content) with fields of an OCI image config; gives its full name."""
        return self.put_layers(repository, [self.layer(files) for files in layers], **config)

    def put_layers(self, repository: str, layers: list[Layer], **config: Any) -> str:
        """The same for layers that are packed already."""
        document = {
            "architecture": "amd64",
            "os": "linux",
            "config": config,
            "rootfs": {"type": "layers", "diff_ids": [layer.diff_id for layer in layers]},
        }
        configuration = json.dumps(document).encode()
        registry = self.server.client()
        for blob in (*(layer.body for layer in layers), configuration):
            registry.put_blob(repository, digest_of(blob), iter([blob]), size_bytes=len(blob))
        body = image_manifest(config=configuration, layers=[layer.body for layer in layers])
        manifest = Manifest(digest=digest_of(body), media_type=OCI_MANIFEST, body=body)
        registry.put_manifest(repository, manifest.digest, manifest)
        return f"{self.host}/{repository}@{manifest.digest}"

    @staticmethod
    def layer(files: Mapping[str, bytes]) -> Layer:
        return pack({PurePosixPath(path): content for path, content in files.items()})

    @property
    def host(self) -> str:
        return f"127.0.0.1:{self.server.port}"

    @property
    def docker_config(self) -> dict[str, Any]:
        login = {"username": self.server.username, "password": self.server.password}
        return {"auths": {self.host: login}}
