"""Keys that a folder of files can hold exactly."""

from __future__ import annotations

OWN_FOLDER = ".spillway-local"
"""What the store itself keeps beside the objects."""
_NAME_MAX_BYTES = 255


def key_problem(key: str) -> str | None:
    """Why a file system can't hold the key exactly, or would let it escape from its folder."""
    names = key.split("/")
    if any(name in ("", ".", "..") for name in names):
        return "an empty, '.' or '..' segment is not a file name"
    try:
        key.encode()
    except UnicodeEncodeError:
        return "it is not UTF-8, so other stores cannot name it"
    if "\0" in key or any(len(name.encode()) > _NAME_MAX_BYTES for name in names):
        return f"a file name holds at most {_NAME_MAX_BYTES} bytes and no NUL"
    if names[0] == OWN_FOLDER:
        return f"'{OWN_FOLDER}' is the store's own folder"
    return None
