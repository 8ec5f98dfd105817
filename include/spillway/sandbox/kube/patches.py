"""The two ways to patch an object: JSON merge (RFC 7386) and strategic merge."""

from __future__ import annotations

from typing import Any

MERGE_KEYS = {
    "containers": "name",
    "initContainers": "name",
    "env": "name",
    "volumes": "name",
    "volumeMounts": "mountPath",
    "ports": "containerPort",
    "conditions": "type",
    "addresses": "type",
    "imagePullSecrets": "name",
    "ownerReferences": "uid",
}
"""Lists that a strategic merge patch merges by this field of their items; every other list is replaced."""


def merge(target: Any, patch: Any, *, strategic: bool = False) -> Any:
    """Null removes, a mapping merges, anything else replaces; ``strategic``, lists of ``MERGE_KEYS`` merge by item."""
    if not isinstance(patch, dict):
        return patch
    result = dict(target) if isinstance(target, dict) else {}
    for key, value in patch.items():
        if strategic and key.startswith("$"):
            continue  # how the lists are ordered, and what else kubectl adds for servers that keep field owners
        if value is None:
            result.pop(key, None)
        elif strategic and key in MERGE_KEYS and isinstance(value, list):
            result[key] = _merge_items(result.get(key) or [], value, MERGE_KEYS[key])
        else:
            result[key] = merge(result.get(key), value, strategic=strategic)
    return result


def _merge_items(current: list[Any], patch: list[Any], key: str) -> list[Any]:
    items = {item[key]: item for item in current}
    for item in patch:
        if item.get("$patch") == "delete":
            items.pop(item[key], None)
        else:
            items[item[key]] = merge(items.get(item[key]), item, strategic=True)
    return list(items.values())
