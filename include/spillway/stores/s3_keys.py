"""Keys that are anything but a plain path, and what an S3 server may make of them; fields that travel as headers."""

from __future__ import annotations

import re
from collections.abc import Mapping

from spillway.errors import RequestRefused
from spillway.model import ObjectInfo

_FIELD_NAME = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]+")
_NOT_IN_XML = re.compile("[^\t\n\r -\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def is_unusual(key: str, size_bytes: int) -> bool:
    """Whether a server that keeps objects in a file tree may clean the key up; ``folder/`` without content is usual."""
    *folders, last = key.split("/")
    names = folders if folders and not last and size_bytes == 0 else [*folders, last]
    return "\\" in key or any(name in ("", ".", "..") for name in names)


def is_folder_alone(found: ObjectInfo) -> bool:
    """Whether a server that keeps objects in a file tree tells of a folder that lies there, which nobody has stored.

    SeaweedFS answers for ``e/`` once there is an ``e/x``, with the etag of an upload of no parts, which no object has;
    it lists none, and refuses what is conditioned on its etag.
    """
    return found.key.endswith("/") and found.etag.endswith("-0")


def fits_xml(key: str) -> bool:
    """Whether a request for many keys, which is XML, can name it; a request for one has it in its address."""
    return _NOT_IN_XML.search(key) is None


def check_fields(store: str, key: str, content_type: str | None, metadata: Mapping[str, str]) -> None:
    """Raise RequestRefused where a field cannot travel as a header and come back the same."""
    for name, value in (("content type", content_type or ""), *metadata.items()):
        if not value.isascii():
            raise RequestRefused(store, key, f"Non ascii characters in its field '{name}': {value!r}")
        if not value.isprintable() or value != value.strip():
            raise RequestRefused(store, key, f"its field '{name}' has spaces around it or signs that print as none")
    for name in metadata:
        if not _FIELD_NAME.fullmatch(name):
            raise RequestRefused(store, key, f"{name!r} is no name of a metadata field")
