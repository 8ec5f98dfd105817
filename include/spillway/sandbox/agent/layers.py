"""Layers of an image: unpacked as they are, then laid over each other into one tree."""

from __future__ import annotations

import gzip
import hashlib
import os
import shutil
import tarfile
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO, cast

from spillway.errors import DigestMismatch

_WHITEOUT = ".wh."
_OPAQUE = ".wh..wh..opq"


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
