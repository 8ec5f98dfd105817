"""The record of a verified sync, kept in the destination store beside the data.

While a sync changes the destination the record is marked as open, so that a half-changed dataset is never taken for a
whole one; the compare still uses it.
"""

from __future__ import annotations

import json
import logging
from dataclasses import dataclass
from urllib.parse import quote, unquote

from spillway.codec import decode, encode
from spillway.errors import ConfigError, PreconditionFailed
from spillway.model import ObjectInfo
from spillway.stores.base import ObjectStore, read_all
from spillway.sync.compare import SyncManifest

log = logging.getLogger(__name__)

OWN_PREFIX = ".spillway/"
"""Keys that belong to Spillway itself and to no dataset."""

_FOLDER = f"{OWN_PREFIX}sync/"
_WHOLE = "whole"


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredManifest:
    """A manifest as stored; ``manifest`` is None where it is absent or unreadable, ``etag`` only where it is absent."""

    manifest: SyncManifest | None = None
    etag: str | None = None
    whole: bool = False


def manifest_key(dataset: str) -> str:
    return f"{_FOLDER}{quote(dataset, safe='')}.json"


def verified_datasets(store: ObjectStore) -> frozenset[str]:
    """The datasets of which this store holds a whole copy, as verified by their last sync."""
    keys = [entry.key for entry in store.list(_FOLDER)]
    return frozenset(_dataset(key) for key in keys if _is_whole(store.head(key)))


def load_manifest(store: ObjectStore, dataset: str) -> StoredManifest:
    """What the last verified sync left; an unreadable record counts as none and will be replaced."""
    key = manifest_key(dataset)
    head, body = _read(store, key)
    if head is None:
        return StoredManifest()
    try:
        manifest = decode(SyncManifest, json.loads(body), key)
    except (ValueError, ConfigError) as problem:
        log.warning("%s/%s is not a sync manifest and will be replaced: %s", store.name, key, problem)
        return StoredManifest(etag=head.etag, whole=_is_whole(head))
    return StoredManifest(manifest=manifest, etag=head.etag, whole=_is_whole(head))


def save_manifest(store: ObjectStore, manifest: SyncManifest, *, over: StoredManifest, whole: bool) -> StoredManifest:
    """Replace exactly the version ``over``.

    Raises:
        PreconditionFailed: another sync of the dataset recorded something else meanwhile.
    """
    key = manifest_key(manifest.dataset)
    body = json.dumps(encode(manifest), separators=(",", ":"), sort_keys=True).encode()
    try:
        stored = store.put(
            key,
            body,
            size_bytes=len(body),
            if_absent=over.etag is None,
            if_match=over.etag,
            content_type="application/json",
            metadata={_WHOLE: "yes" if whole else "no"},
        )
    except PreconditionFailed:
        # Two runs that need the same dataset sync it side by side; that they agree is as good as having been first.
        theirs = load_manifest(store, manifest.dataset)
        if theirs.manifest and _versions(theirs.manifest) == _versions(manifest) and theirs.whole >= whole:
            return theirs
        if theirs.manifest and theirs.whole:
            # Copies of two versions may have crossed: only the next sync can tell what lies there now.
            save_manifest(store, theirs.manifest, over=theirs, whole=False)
        raise
    return StoredManifest(manifest=manifest, etag=stored.etag, whole=whole)


def _read(store: ObjectStore, key: str, tries: int = 3) -> tuple[ObjectInfo | None, bytes]:
    """One version, its facts and its bytes; begun again where another sync replaces it in between."""
    head = store.head(key)
    if head is None:
        return None, b""
    try:
        return head, read_all(store, key, if_match=head.etag)
    except PreconditionFailed:
        if tries == 1:
            raise
        return _read(store, key, tries - 1)


def _versions(manifest: SyncManifest) -> dict[str, str]:
    return {key: synced.source_etag for key, synced in manifest.objects.items()}


def _is_whole(head: ObjectInfo | None) -> bool:
    return head is not None and head.metadata.get(_WHOLE) == "yes"


def _dataset(key: str) -> str:
    return unquote(key.removeprefix(_FOLDER).removesuffix(".json"))
