"""An index with fewer platforms."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from typing import Any

from spillway.errors import InvalidImage
from spillway.registries.base import Manifest
from spillway.registries.content import INDEX_MEDIA_TYPES, index_entries
from spillway.registries.digest import digest_of

SOURCE_ANNOTATION = "dev.spillway.source-digest"
"""Says in the smaller index which one it was made of."""
SUBJECT_ANNOTATION = "vnd.docker.reference.digest"
"""Says in an entry that it belongs to another one, as a build's attestations do."""


def only_platforms(manifest: Manifest, platforms: Collection[str]) -> Manifest:
    """The index with the entries of these platforms (``os/architecture[/variant]``) and what belongs to them.

    What is no index is given back as it is, and so is an index where ``platforms`` is empty or leaves nothing out. The
    same index and platforms always make the same bytes.

    Raises:
        InvalidImage: the index does not have all of the platforms.
    """
    if not platforms or manifest.media_type not in INDEX_MEDIA_TYPES:
        return manifest
    document, entries = index_entries(manifest)
    wanted = {entry["digest"] for entry in entries if any(_is(entry, platform) for platform in platforms)}
    lacking = [name for name in platforms if not any(_is(entry, name) for entry in entries)]
    if lacking:
        there = ", ".join(sorted({_platform(entry) for entry in entries} - {"unknown/unknown"})) or "none"
        raise InvalidImage(manifest.digest, f"its index has no {', '.join(lacking)}; its platforms: {there}")
    kept = [entry for entry in entries if entry["digest"] in wanted or _subject(entry) in wanted]
    if len(kept) == len(entries):
        return manifest
    annotations = {**(document.get("annotations") or {}), SOURCE_ANNOTATION: manifest.digest}
    smaller = {**document, "manifests": kept, "annotations": annotations}
    body = json.dumps(smaller, separators=(",", ":"), sort_keys=True).encode()
    return Manifest(digest=digest_of(body), media_type=manifest.media_type, body=body)


def _is(entry: Mapping[str, Any], platform: str) -> bool:
    """Whether the entry is of the platform; one that names no variant is met by every one."""
    found = _platform(entry)
    return found == platform or found.startswith(f"{platform}/")


def _platform(entry: Mapping[str, Any]) -> str:
    said = entry.get("platform") or {}
    parts = (said.get("os", "unknown"), said.get("architecture", "unknown"), said.get("variant"))
    return "/".join(str(part) for part in parts if part)


def _subject(entry: Mapping[str, Any]) -> str | None:
    subject = (entry.get("annotations") or {}).get(SUBJECT_ANNOTATION)
    return subject if isinstance(subject, str) else None
