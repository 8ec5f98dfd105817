"""What a manifest or index refers to."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from spillway.codec import from_json
from spillway.errors import InvalidImage
from spillway.registries.base import Descriptor, Manifest
from spillway.registries.digest import is_digest

OCI_INDEX_MEDIA_TYPE = "application/vnd.oci.image.index.v1+json"
INDEX_MEDIA_TYPES = frozenset({OCI_INDEX_MEDIA_TYPE, "application/vnd.docker.distribution.manifest.list.v2+json"})
MANIFEST_MEDIA_TYPES = frozenset(
    {"application/vnd.oci.image.manifest.v1+json", "application/vnd.docker.distribution.manifest.v2+json"}
)


def children(manifest: Manifest) -> tuple[Descriptor, ...]:
    """The manifests of an index, every one of them: platforms, attestations and indexes; empty for an image."""
    document = _document(manifest)
    if manifest.media_type not in INDEX_MEDIA_TYPES:
        return ()
    return tuple(_descriptor(manifest, entry) for entry in _entries(manifest, document, "manifests"))


def index_entries(manifest: Manifest) -> tuple[Mapping[str, Any], list[Mapping[str, Any]]]:
    """The whole document of an index and the entries of its manifests, each known to have a digest."""
    document = _document(manifest)
    entries = _entries(manifest, document, "manifests")
    for entry in entries:
        _descriptor(manifest, entry)
    return document, entries


def blobs(manifest: Manifest) -> tuple[Descriptor, ...]:
    """The configuration and the layers of an image, each digest once; empty for an index.

    Layers that their publisher forbids to redistribute are left out: they are fetched from him, never from a registry.
    """
    document = _document(manifest)
    if manifest.media_type in INDEX_MEDIA_TYPES:
        return ()
    found = [_descriptor(manifest, document.get("config"))]
    found += [_descriptor(manifest, entry) for entry in _entries(manifest, document, "layers")]
    kept = [part for part in found if "nondistributable" not in part.media_type and "foreign" not in part.media_type]
    return tuple({part.digest: part for part in kept}.values())


def _document(manifest: Manifest) -> Mapping[str, Any]:
    try:
        document = from_json(manifest.body)
    except ValueError as problem:
        raise InvalidImage(manifest.digest, f"its manifest is not JSON ({problem})") from problem
    if not isinstance(document, Mapping):
        raise InvalidImage(manifest.digest, "its manifest is not a JSON object")
    if manifest.media_type not in INDEX_MEDIA_TYPES | MANIFEST_MEDIA_TYPES:
        raise InvalidImage(
            manifest.digest,
            f"its manifest is of type '{manifest.media_type}'; expected an OCI or Docker v2 image or index",
        )
    return document


def _entries(manifest: Manifest, document: Mapping[str, Any], key: str) -> list[Any]:
    entries = document.get(key)
    if not isinstance(entries, list):
        raise InvalidImage(manifest.digest, f"'{key}' of its manifest: expected a list, got {entries!r}")
    return entries


def _descriptor(manifest: Manifest, entry: Any) -> Descriptor:
    match entry:
        case {"digest": str(digest), "size": int(size), "mediaType": str(media_type)} if is_digest(digest):
            return Descriptor(digest=digest, size_bytes=size, media_type=media_type)
    raise InvalidImage(
        manifest.digest, f"its manifest refers to {entry!r}; expected mediaType, size and a sha256 digest"
    )
