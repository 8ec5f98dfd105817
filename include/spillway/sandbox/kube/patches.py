"""The three ways to patch an object: JSON merge (RFC 7386), strategic merge, JSON patch (RFC 6902)."""

from __future__ import annotations

import copy
from typing import Any

from spillway.sandbox.kube.status import ApiError

MERGE_KEYS = {
    "containers": "name",
    "initContainers": "name",
    "env": "name",
    "volumes": "name",
    "volumeMounts": "mountPath",
    "ports": "containerPort",
    "conditions": "type",
    "taints": "key",
    "addresses": "type",
    "imagePullSecrets": "name",
    "ownerReferences": "uid",
}
"""Lists that a strategic merge patch merges by this field of their items; every other list is replaced."""


def merge(target: Any, patch: Any) -> Any:
    """RFC 7386: null removes, a mapping merges, anything else replaces."""
    if not isinstance(patch, dict):
        return patch
    result = dict(target) if isinstance(target, dict) else {}
    for key, value in patch.items():
        if value is None:
            result.pop(key, None)
        else:
            result[key] = merge(result.get(key), value)
    return result


def strategic(target: Any, patch: Any) -> Any:
    """Like ``merge``, but lists of ``MERGE_KEYS`` are merged item by item; ``$patch`` directives are honoured."""
    if not isinstance(patch, dict):
        return patch
    if patch.get("$patch") == "replace":
        return {key: value for key, value in patch.items() if key != "$patch"}
    result = dict(target) if isinstance(target, dict) else {}
    for key, value in patch.items():
        if key.startswith("$deleteFromPrimitiveList/"):
            field = key.partition("/")[2]
            result[field] = [item for item in result.get(field) or [] if item not in value]
        elif key.startswith("$"):
            continue
        elif value is None:
            result.pop(key, None)
        elif isinstance(value, list) and key in MERGE_KEYS and all(isinstance(item, dict) for item in value):
            result[key] = _merge_items(result.get(key) or [], value, MERGE_KEYS[key])
        else:
            result[key] = strategic(result.get(key), value)
    return result


def _merge_items(current: list[Any], patch: list[Any], key: str) -> list[Any]:
    if {"$patch": "replace"} in patch:
        return [item for item in patch if "$patch" not in item]
    result = list(current)
    for item in patch:
        at = next((i for i, old in enumerate(result) if old.get(key) == item.get(key)), None)
        if item.get("$patch") == "delete":
            if at is not None:
                result.pop(at)
        elif at is None:
            result.append(strategic({}, item))
        else:
            result[at] = strategic(result[at], item)
    return result


def json_patch(target: Any, operations: list[dict[str, Any]]) -> Any:
    """RFC 6902; raises ApiError 422 where an operation does not apply, a failed test included."""
    document = copy.deepcopy(target)
    try:
        for operation in operations:
            _apply(document, operation)
    except (KeyError, IndexError, TypeError, ValueError) as problem:
        raise ApiError(422, "Invalid", f"the JSON patch does not apply: {problem!r}") from problem
    return document


def _apply(document: Any, operation: dict[str, Any]) -> None:
    kind = operation["op"]
    value = operation.get("value")
    if kind in {"copy", "move"}:
        holder, key = _locate(document, operation["from"])
        value = copy.deepcopy(holder[key])
        if kind == "move":
            del holder[key]
    holder, key = _locate(document, operation["path"])
    if kind == "test":
        if holder[key] != value:
            raise ValueError(f"test of {operation['path']} failed")
    elif kind == "remove":
        del holder[key]
    elif kind == "replace" or isinstance(holder, dict):
        holder[key] = value
    else:
        holder.insert(key, value)


def _locate(document: Any, path: str) -> tuple[Any, Any]:
    """The container that the pointer's last part names an item of, and its key or index."""
    *parents, last = [part.replace("~1", "/").replace("~0", "~") for part in path.split("/")[1:]]
    for part in parents:
        document = document[int(part)] if isinstance(document, list) else document[part]
    if isinstance(document, list):
        return document, len(document) if last == "-" else int(last)
    return document, last
