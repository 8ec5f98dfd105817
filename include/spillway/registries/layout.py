"""OCI image layouts on disk as a registry: for images that are built here, and for machines without a registry."""

from __future__ import annotations

import fcntl
import json
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from spillway.codec import from_json
from spillway.errors import InvalidImage, Missing
from spillway.registries.base import Descriptor, Manifest
from spillway.registries.content import INDEX_MEDIA_TYPES, MANIFEST_MEDIA_TYPES, blobs, children
from spillway.registries.digest import is_digest, label, verified

CHUNK_BYTES = 2**20
TAG_ANNOTATION = "org.opencontainers.image.ref.name"
LAYOUT_VERSION = {"imageLayoutVersion": "1.0.0"}


class LayoutRegistry:
    """A folder with one OCI image layout per repository: ``root/team/app/{oci-layout,index.json,blobs}``.

    May be used by many threads and processes: files appear whole, and the list of tags is changed under a lock.
    """

    def __init__(self, root: Path) -> None:
        self._root = root

    @property
    def name(self) -> str:
        return f"image layout {self._root}"

    def tags(self, repository: str) -> tuple[str, ...]:
        """All tags in the order in which they were first given; empty for a repository that does not exist."""
        return tuple(tag for tag, _ in _tagged(self._index(repository)))

    def resolve(self, repository: str, reference: str) -> str | None:
        """The digest that the reference points at, or None where the layout does not have it."""
        digest = reference if is_digest(reference) else dict(_tagged(self._index(repository))).get(reference)
        return digest if digest is not None and self._blob(repository, digest).is_file() else None

    def describe(self, repository: str, reference: str) -> Descriptor | None:
        """What the reference points at, or None where the layout does not have it."""
        digest = self.resolve(repository, reference)
        if digest is None:
            return None
        manifest = self.manifest(repository, digest)
        return Descriptor(digest=digest, size_bytes=len(manifest.body), media_type=manifest.media_type)

    def manifest(self, repository: str, reference: str) -> Manifest:
        """The manifest, byte for byte; raises Missing and DigestMismatch."""
        digest = self.resolve(repository, reference)
        if digest is None:
            raise Missing("image", label(repository, reference), self.name)
        body = b"".join(self.read_blob(repository, digest))
        return Manifest(digest=digest, media_type=_media_type(digest, body), body=body)

    def referrers(self, repository: str, digest: str) -> Manifest | None:
        """None: a layout keeps no list of them."""
        return None

    def has_blob(self, repository: str, digest: str) -> bool:
        """Whether the blob is in this repository."""
        return self._blob(repository, digest).is_file()

    def read_blob(self, repository: str, digest: str) -> Iterator[bytes]:
        """The blob's bytes in chunks; raises Missing, and DigestMismatch at the end."""
        what = label(repository, digest)
        try:
            file = self._blob(repository, digest).open("rb")
        except FileNotFoundError as problem:
            raise Missing("blob", what, self.name) from problem
        with file:
            yield from verified(iter(lambda: file.read(CHUNK_BYTES), b""), digest, what=f"blob {what} of {self.name}")

    def put_blob(
        self, repository: str, digest: str, chunks: Iterator[bytes], *, size_bytes: int, mount_from: str | None = None
    ) -> bool:
        """Store the bytes under their digest; other bytes are refused (DigestMismatch). A mount is a hard link."""
        target = self._blob(repository, digest)
        if mount_from is not None and self.has_blob(mount_from, digest):
            target.parent.mkdir(parents=True, exist_ok=True)
            with suppress(FileExistsError):
                target.hardlink_to(self._blob(mount_from, digest))
            return False
        what = f"blob {label(repository, digest)} for {self.name}"
        with _replacing(target) as file:
            for chunk in verified(chunks, digest, what=what, size_bytes=size_bytes):
                file.write(chunk)
        return True

    def put_manifest(self, repository: str, reference: str, manifest: Manifest) -> None:
        """Store the manifest under a tag or its digest; raises Missing where its content is not there yet."""
        for part in (*children(manifest), *blobs(manifest)):
            if not self.has_blob(repository, part.digest):
                raise Missing("content", f"{part.digest} of {label(repository, reference)}", self.name)
        self.put_blob(repository, manifest.digest, iter([manifest.body]), size_bytes=len(manifest.body))
        if not is_digest(reference):
            self._tag(repository, reference, manifest)

    def delete(self, repository: str, reference: str) -> None:
        """Remove a tag; by a digest, the manifest with every tag that it has."""
        by_digest = is_digest(reference)
        with self._changing(repository) as entries:
            entries[:] = [e for e in entries if reference != (e["digest"] if by_digest else _tag_of(e))]
        if by_digest:
            self._blob(repository, reference).unlink(missing_ok=True)

    def _tag(self, repository: str, tag: str, manifest: Manifest) -> None:
        entry = {
            "mediaType": manifest.media_type,
            "digest": manifest.digest,
            "size": len(manifest.body),
            "annotations": {TAG_ANNOTATION: tag},
        }
        with self._changing(repository) as entries:
            places = [number for number, known in enumerate(entries) if _tag_of(known) == tag]
            if places:
                entries[places[0]] = entry
            else:
                entries.append(entry)

    @contextmanager
    def _changing(self, repository: str) -> Iterator[list[dict[str, Any]]]:
        """The entries of the repository's index, to be changed under a lock; they are written when the block ends."""
        folder = self._folder(repository)
        folder.mkdir(parents=True, exist_ok=True)
        with (folder / ".lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            index = self._index(repository)
            yield index["manifests"]
            for name, document in (("oci-layout", LAYOUT_VERSION), ("index.json", index)):
                with _replacing(folder / name) as file:
                    file.write(json.dumps(document).encode())

    def _index(self, repository: str) -> dict[str, Any]:
        path = self._folder(repository) / "index.json"
        try:
            index: dict[str, Any] = from_json(path.read_bytes())
        except FileNotFoundError:
            return {"schemaVersion": 2, "mediaType": "application/vnd.oci.image.index.v1+json", "manifests": []}
        except ValueError as problem:
            raise InvalidImage(repository, f"{path} is not JSON ({problem})") from problem
        return index

    def _folder(self, repository: str) -> Path:
        if not all(part.strip(".") for part in repository.split("/")):
            raise InvalidImage(repository, "expected a repository name such as 'team/app'")
        return self._root / repository

    def _blob(self, repository: str, digest: str) -> Path:
        if not is_digest(digest):
            raise InvalidImage(repository, f"expected a digest 'sha256:' and 64 hex digits, got '{digest}'")
        return self._folder(repository) / "blobs" / "sha256" / digest.removeprefix("sha256:")


def _tag_of(entry: dict[str, Any]) -> str | None:
    tag = entry.get("annotations", {}).get(TAG_ANNOTATION)
    return tag if isinstance(tag, str) else None


def _tagged(index: dict[str, Any]) -> list[tuple[str, str]]:
    """(tag, digest) pairs."""
    return [(tag, entry["digest"]) for entry in index["manifests"] if (tag := _tag_of(entry)) is not None]


def _media_type(digest: str, body: bytes) -> str:
    """What the manifest says it is; one without a word, as the specification allows, is told by its content."""
    try:
        document = from_json(body)
    except ValueError:
        document = None
    if not isinstance(document, dict):
        raise InvalidImage(digest, "it is a blob, expected a manifest")
    said = document.get("mediaType")
    if said in INDEX_MEDIA_TYPES | MANIFEST_MEDIA_TYPES:
        return str(said)
    kind = "index" if "manifests" in document else "manifest"
    return f"application/vnd.oci.image.{kind}.v1+json"


@contextmanager
def _replacing(target: Path) -> Iterator[Any]:
    """A file to write that takes the target's place once the block ends well, and vanishes otherwise."""
    target.parent.mkdir(parents=True, exist_ok=True)
    descriptor, name = tempfile.mkstemp(dir=target.parent, prefix=".partial-")
    try:
        with os.fdopen(descriptor, "wb") as file:
            yield file
            file.flush()
            os.fsync(descriptor)
        Path(name).replace(target)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise
