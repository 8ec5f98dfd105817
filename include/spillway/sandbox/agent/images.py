"""Images by digest: pulled from the registry that their name says, verified, unpacked once and kept."""

from __future__ import annotations

import asyncio
import base64
import json
import platform
import shutil
import tarfile
import uuid
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
        entry = (config.get("auths") or {}).get(host) or (config.get("auths") or {}).get(f"http://{host}")
        if entry:
            if "username" in entry:
                return entry["username"], entry.get("password", "")
            user, _, password = base64.b64decode(entry["auth"]).decode().partition(":")
            return user, password
    return None, None


class ImageStore:
    """Unpacked layers and images under one directory, shared by every pod of a node."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._locks: dict[str, asyncio.Lock] = {}
        for part in ("layers", "images"):
            (root / part).mkdir(parents=True, exist_ok=True)
        shutil.rmtree(root / "unpacking", ignore_errors=True)  # left by an agent that was killed in the middle
        (root / "unpacking").mkdir()

    async def pull(self, name: str, docker_configs: list[Mapping[str, Any]]) -> Image:
        """The image, from the cache where its digest is there already. Raises PullFailed.

        The registry is asked for the manifest each time: an image that was taken out of it can't be started any more.
        """
        try:
            reference = ImageReference.parse(name)
            host = reference.registry or DEFAULT_REGISTRY
            user, password = login(docker_configs, host)
            registry = HttpRegistry(name=host, url=url_of(host), username=user, password=password)
            async with self._locks.setdefault(name, asyncio.Lock()):
                return await asyncio.to_thread(self._pull, registry, reference)
        except SpillwayError as problem:
            raise PullFailed(f'failed to pull image "{name}": {_cause(problem)}') from problem
        except _BROKEN as problem:
            raise PullFailed(f'failed to pull image "{name}": cannot be unpacked: {problem!r}') from problem

    def _pull(self, registry: ImageRegistry, reference: ImageReference) -> Image:
        manifest = _for_this_machine(
            registry, reference.repository, registry.manifest(reference.repository, reference.reference)
        )
        document = json.loads(manifest.body)
        config = json.loads(b"".join(registry.read_blob(reference.repository, document["config"]["digest"])))
        plain_digests = config["rootfs"]["diff_ids"]
        layers = [
            self._layer(registry, reference.repository, layer["digest"], plain)
            for layer, plain in zip(document["layers"], plain_digests, strict=True)
        ]
        target = self._root / "images" / _hex(manifest.digest)
        if not target.is_dir():
            staged = self._staging()
            for layer in layers:
                lay_over(staged, layer)
            _publish(staged, target)
        return Image(digest=manifest.digest, root=target, config=config.get("config") or {})

    def _layer(self, registry: ImageRegistry, repository: str, digest: str, plain_digest: str) -> Path:
        target = self._root / "layers" / _hex(digest)
        if target.is_dir():
            return target
        staged = self._staging()
        blob = staged.with_suffix(".blob")
        try:
            with blob.open("wb") as file:
                for chunk in registry.read_blob(repository, digest):
                    file.write(chunk)
            unpack(blob, staged, plain_digest)
        finally:
            blob.unlink(missing_ok=True)
        _publish(staged, target)
        return target

    def _staging(self) -> Path:
        staged = self._root / "unpacking" / uuid.uuid4().hex
        staged.mkdir()
        return staged


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


def _cause(problem: SpillwayError) -> str:
    """The words that people look for in a pod's status, then the whole story."""
    if isinstance(problem, Missing):
        return f"not found: {problem}"
    if isinstance(problem, AccessDenied):
        return f"unauthorized: {problem}"
    if isinstance(problem, Unreachable) and "refused" in str(problem).lower():
        return f"connection refused: {problem}"
    if isinstance(problem, Unreachable):
        return f"timeout or failure: {problem}"
    return str(problem)


def _publish(staged: Path, target: Path) -> None:
    """Make a finished directory visible, whole; another pull of the same content may have been faster."""
    try:
        staged.replace(target)
    except OSError:
        if not target.is_dir():
            raise
        shutil.rmtree(staged)


def _hex(digest: str) -> str:
    return digest.partition(":")[2]
