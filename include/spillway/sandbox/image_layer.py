"""Layers of images as reproducible archives: the same files give the same bytes, whenever and by whomever built."""

from __future__ import annotations

import gzip
import hashlib
import importlib.util
import io
import marshal
import tarfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import PurePosixPath
from types import CodeType

from spillway.registries.digest import digest_of

GZIP_LEVEL = 1
LAYER_MEDIA_TYPE = "application/vnd.oci.image.layer.v1.tar+gzip"
_HASH_BASED_UNCHECKED = 1
_MARSHAL_WITHOUT_REFERENCES = 2
"""Later versions write references that depend on what else the interpreter holds, so bytes would differ by chance."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Layer:
    """A compressed archive. ``diff_id`` is the digest of the archive before its compression."""

    body: bytes
    diff_id: str

    @property
    def digest(self) -> str:
        return digest_of(self.body)


def pack(files: Mapping[PurePosixPath, bytes]) -> Layer:
    """The layer with these files and their folders; ``.so`` files and programs below ``bin`` are executable."""
    raw = io.BytesIO()
    folders = {parent for path in files for parent in path.parents if parent.name}
    with tarfile.open(fileobj=raw, mode="w", format=tarfile.PAX_FORMAT) as archive:
        for path in sorted({*files, *folders}):
            entry = tarfile.TarInfo(str(path).lstrip("/"))
            if path in folders:
                entry.type, entry.mode = tarfile.DIRTYPE, 0o755
                archive.addfile(entry)
            else:
                entry.size = len(files[path])
                entry.mode = 0o755 if ".so" in path.suffixes or path.parent.name == "bin" else 0o644
                archive.addfile(entry, io.BytesIO(files[path]))
    plain = raw.getvalue()
    return Layer(body=gzip.compress(plain, GZIP_LEVEL, mtime=0), diff_id=f"sha256:{hashlib.sha256(plain).hexdigest()}")


def bytecode(path: PurePosixPath, source: bytes) -> tuple[PurePosixPath, bytes] | None:
    """The file that saves Python from compiling ``source`` at every start; None for a source that does not compile."""
    try:
        code: CodeType = compile(source, str(path), "exec", dont_inherit=True)
    except (SyntaxError, ValueError):
        return None
    header = importlib.util.MAGIC_NUMBER + _HASH_BASED_UNCHECKED.to_bytes(4, "little")
    body = header + importlib.util.source_hash(source) + marshal.dumps(code, _MARSHAL_WITHOUT_REFERENCES)
    return PurePosixPath(importlib.util.cache_from_source(str(path), optimization="")), body
