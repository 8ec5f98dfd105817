"""Images by digest: pulled from the registry that their name says, verified, unpacked once and kept."""

from __future__ import annotations

import asyncio
import json
import platform
import shutil
import tarfile
import tempfile
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from spillway.errors import AccessDenied, Missing, SpillwayError, Unreachable
from spillway.images.reference import ImageReference
from spillway.registries.base import ImageRegistry, Manifest
from spillway.registries.http import HttpRegistry
from spillway.sandbox.agent.layers import lay_over, unpack

_BROKEN = (tarfile.TarError, zlib.error, EOFError, OSError, ValueError, KeyError)
_ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64"}
DEFAULT_REGISTRY = "docker.io"
"""Where names without a registry point to, for every container engine."""


class PullFailed(Exception):
    """An image that can't be had now; the text is for the pod's status."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Image:
    """An unpacked image. ``config`` is the part of its configuration that containers start from."""

    digest: str
    root: Path
    config: Mapping[str, Any]

    @property
    def environment(self) -> dict[str, str]:
        return dict(entry.partition("=")[::2] for entry in self.config.get("Env") or [])


def url_of(host: str) -> str:
    """Plain HTTP on loopback, as container engines do; TLS anywhere else."""
    name = host.partition(":")[0]
    return f"{'http' if name in {'127.0.0.1', 'localhost'} else 'https'}://{host}"


def login(docker_configs: list[Mapping[str, Any]], host: str) -> tuple[str | None, str | None]:
    """User and password for a registry in the contents of ``.dockerconfigjson`` secrets; (None, None) without any."""
    for config in docker_configs:
        if entry := (config.get("auths") or {}).get(host):
            return entry["username"], entry["password"]
    return None, None


class ImageStore:
    """Unpacked images under one directory, shared by every pod of a node; one is pulled at a time."""

    def __init__(self, root: Path) -> None:
        self._images, self._unpacking = root / "images", root / "unpacking"
        self._lock = asyncio.Lock()
        self._images.mkdir(parents=True, exist_ok=True)
        shutil.rmtree(self._unpacking, ignore_errors=True)  # left by an agent that was killed in the middle
        self._unpacking.mkdir()

    async def pull(self, name: str, docker_configs: list[Mapping[str, Any]]) -> Image:
        """The image, from the cache where its digest is there already. Raises PullFailed.

        The registry is asked for the manifest each time: an image that was taken out of it can't be started any more.
        """
        try:
            reference = ImageReference.parse(name)
            host = reference.registry or DEFAULT_REGISTRY
            user, password = login(docker_configs, host)
            registry = HttpRegistry(name=host, url=url_of(host), username=user, password=password)
            async with self._lock:
                return await asyncio.to_thread(self._pull, registry, reference.repository, reference.reference)
        except SpillwayError as problem:
            raise PullFailed(f'failed to pull image "{name}": {_in_words_of_runtimes(problem)}') from problem
        except _BROKEN as problem:
            raise PullFailed(f'failed to pull image "{name}": cannot be unpacked: {problem!r}') from problem

    def _pull(self, registry: ImageRegistry, repository: str, reference: str) -> Image:
        manifest = _for_this_machine(registry, repository, registry.manifest(repository, reference))
        document = json.loads(manifest.body)
        config = json.loads(b"".join(registry.read_blob(repository, document["config"]["digest"])))
        target = self._images / manifest.digest.partition(":")[2]
        if not target.is_dir():
            with tempfile.TemporaryDirectory(dir=self._unpacking) as scratch:
                tree, layer, blob = (Path(scratch) / name for name in ("tree", "layer", "blob"))
                tree.mkdir()
                for described, plain_digest in zip(document["layers"], config["rootfs"]["diff_ids"], strict=True):
                    with blob.open("wb") as file:
                        file.writelines(registry.read_blob(repository, described["digest"]))
                    layer.mkdir()
                    unpack(blob, layer, plain_digest)
                    lay_over(tree, layer)
                    shutil.rmtree(layer)
                tree.replace(target)
        return Image(digest=manifest.digest, root=target, config=config.get("config") or {})


def _in_words_of_runtimes(problem: SpillwayError) -> str:
    """What container runtimes say, which whoever judges a failed pull looks for, and then the whole story."""
    silent = "connection refused" if "connection refused" in str(problem).lower() else "registry unavailable"
    words = {Missing: "not found", AccessDenied: "unauthorized", Unreachable: silent}
    return f"{words.get(type(problem), 'refused')}: {problem}"


def _for_this_machine(registry: ImageRegistry, repository: str, manifest: Manifest) -> Manifest:
    document = json.loads(manifest.body)
    if "manifests" not in document:
        return manifest
    wanted = "linux", _ARCHITECTURES.get(platform.machine(), platform.machine())
    for entry in document["manifests"]:
        described = entry.get("platform") or {}
        if (described.get("os"), described.get("architecture")) == wanted:
            return registry.manifest(repository, entry["digest"])
    raise Missing("image", f"{repository} for {'/'.join(wanted)}", registry.name)
