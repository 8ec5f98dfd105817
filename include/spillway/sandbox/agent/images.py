"""Images by digest: pulled from the registry that their name says, verified, unpacked once and kept."""

from __future__ import annotations

import asyncio
import base64
import gzip
import hashlib
import json
import os
import platform
import shutil
import tarfile
import uuid
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, cast

from spillway.errors import AccessDenied, DigestMismatch, Missing, SpillwayError, Unreachable
from spillway.registries.base import ImageRegistry, Manifest
from spillway.registries.http import HttpRegistry

_ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64"}
_WHITEOUT = ".wh."
_OPAQUE = ".wh..wh..opq"


class PullFailed(Exception):
    """An image that can't be had now; the text is for the pod's status."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Reference:
    """``host:port/repository@digest`` or ``host:port/repository:tag``, taken apart."""

    host: str
    repository: str
    version: str

    @property
    def url(self) -> str:
        """Plain HTTP on loopback, as container engines do; TLS anywhere else."""
        name = self.host.partition(":")[0]
        return f"{'http' if name in {'127.0.0.1', 'localhost'} else 'https'}://{self.host}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Image:
    """An unpacked image. ``config`` is the part of its configuration that containers start from."""

    digest: str
    root: Path
    config: Mapping[str, Any]

    @property
    def environment(self) -> dict[str, str]:
        return dict(entry.partition("=")[::2] for entry in self.config.get("Env") or [])


def parse_reference(text: str) -> Reference:
    """Raises PullFailed where the name has no registry or no version."""
    host, slash, rest = text.partition("/")
    name, at, digest = rest.partition("@")
    name, _, tag = name.partition(":")
    if not slash or not name or not ("." in host or ":" in host or host == "localhost"):
        raise PullFailed(f'invalid image name "{text}": expected REGISTRY/REPOSITORY@sha256:DIGEST')
    return Reference(host=host, repository=name, version=digest if at else tag or "latest")


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
        reference = parse_reference(name)
        user, password = login(docker_configs, reference.host)
        registry = HttpRegistry(name=reference.host, url=reference.url, username=user, password=password)
        try:
            async with self._locks.setdefault(name, asyncio.Lock()):
                return await asyncio.to_thread(self._pull, registry, reference)
        except SpillwayError as problem:
            raise PullFailed(f'failed to pull image "{name}": {_cause(problem)}') from problem
        except (tarfile.TarError, gzip.BadGzipFile, EOFError, OSError, ValueError, KeyError) as problem:
            raise PullFailed(f'failed to pull image "{name}": cannot be unpacked: {problem}') from problem

    def _pull(self, registry: ImageRegistry, reference: Reference) -> Image:
        manifest = _for_this_machine(registry, reference.repository, registry.manifest(*_where(reference)))
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
            staged.replace(target)
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
        try:
            staged.replace(target)
        except OSError:
            if not target.is_dir():  # another image with this layer may have been faster
                raise
        return target

    def _staging(self) -> Path:
        staged = self._root / "unpacking" / uuid.uuid4().hex
        staged.mkdir()
        return staged


def unpack(blob: Path, target: Path, plain_digest: str) -> None:
    """Unpack a layer (plain tar or gzip) as it is, whiteouts as files, and verify the digest of the plain tar."""
    with blob.open("rb") as file:
        compressed = file.read(2) == b"\x1f\x8b"
        file.seek(0)
        source = _Hashing(cast(BinaryIO, gzip.GzipFile(fileobj=file)) if compressed else file)
        with tarfile.open(fileobj=cast(BinaryIO, source), mode="r|") as archive:
            archive.extractall(target, filter="tar")  # refuses paths that lead out of the target
        while source.read(1 << 20):
            pass
    seen = f"sha256:{source.checksum.hexdigest()}"
    if seen != plain_digest:
        raise DigestMismatch(f"unpacked layer {blob.name}", expected=plain_digest, seen=seen)


def lay_over(tree: Path, layer: Path) -> None:
    """Add a layer's files to the tree by hard links, after removing what its whiteouts name.

    Whiteouts reach lower layers of the image only, never the host's files beneath it.
    """
    for directory, _, names in os.walk(layer):
        inside = tree / Path(directory).relative_to(layer)
        for name in names:
            if name == _OPAQUE:
                for child in list(inside.iterdir()) if inside.is_dir() else []:
                    _remove(child)
            elif name.startswith(_WHITEOUT):
                _remove(inside / name.removeprefix(_WHITEOUT))
    for source in _walk(layer):
        place = tree / source.relative_to(layer)
        if source.is_dir() and not source.is_symlink():
            if place.is_symlink() or not place.is_dir():
                _remove(place)
                place.mkdir()
            shutil.copystat(source, place)
        elif not source.name.startswith(_WHITEOUT):
            _remove(place)
            os.link(source, place, follow_symlinks=False)


def _walk(layer: Path) -> Iterator[Path]:
    for directory, names, files in os.walk(layer):
        for name in [*names, *files]:
            yield Path(directory) / name


def _remove(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


class _Hashing:
    """A reader that takes the digest of what passes through it."""

    def __init__(self, source: BinaryIO) -> None:
        self._source, self.checksum = source, hashlib.sha256()

    def read(self, size: int = -1) -> bytes:
        chunk = self._source.read(size)
        self.checksum.update(chunk)
        return chunk


def _where(reference: Reference) -> tuple[str, str]:
    return reference.repository, reference.version


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


def _hex(digest: str) -> str:
    return digest.partition(":")[2]
