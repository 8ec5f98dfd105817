"""A pod's volumes as directories on the node, and where its containers see them."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from spillway.sandbox.agent.environment import BadContainerConfig, Fetch

Object = Mapping[str, Any]
_KINDS = {"secret": ("secrets", "secretName"), "configMap": ("configmaps", "name")}


async def prepare(pod: Object, directory: Path, fetch: Fetch) -> dict[str, Path]:
    """The pod's volumes by name, made or filled under ``directory``. Raises BadContainerConfig."""
    return {volume["name"]: await _prepare(volume, directory, fetch) for volume in pod["spec"].get("volumes") or []}


async def _prepare(volume: Object, directory: Path, fetch: Fetch) -> Path:
    if "hostPath" in volume:
        return await asyncio.to_thread(_host_path, volume["name"], volume["hostPath"])
    path = directory / str(volume["name"])
    if "emptyDir" in volume:
        return await asyncio.to_thread(_write, path, {}, 0o644)
    if "projected" in volume:  # the service account's token, which every pod of a real cluster is given
        return await asyncio.to_thread(_write, path, {}, 0o644)
    for kind, (plural, name_field) in _KINDS.items():
        if kind in volume:
            source = volume[kind]
            files = await _chosen(plural, source[name_field], source, fetch)
            return await asyncio.to_thread(_write, path, files, int(source.get("defaultMode") or 0o644))
    raise BadContainerConfig(f"volume {volume['name']} is of a kind that this node agent does not know")


def _host_path(name: str, source: Object) -> Path:
    path = Path(source["path"])
    if "Create" in (source.get("type") or ""):
        path.mkdir(parents=True, exist_ok=True)
    if not path.exists():
        raise BadContainerConfig(f"hostPath {path} of volume {name} does not exist")
    return path


async def _chosen(plural: str, name: str, source: Object, fetch: Fetch) -> dict[str, bytes]:
    """The files of a ConfigMap or Secret by their path in the volume."""
    data = await fetch(plural, name)
    if data is None:
        if source.get("optional"):
            return {}
        raise BadContainerConfig(f'{plural[:-1]} "{name}" not found')
    paths = {item["key"]: item["path"] for item in source.get("items") or []} or {key: key for key in data}
    for key in paths:
        if key not in data:
            raise BadContainerConfig(f'couldn\'t find key {key} in {plural[:-1]} "{name}"')
    return {path: data[key] for key, path in paths.items()}


def _write(directory: Path, files: Mapping[str, bytes], mode: int) -> Path:
    """A directory that everybody may write to, with the files in it."""
    directory.mkdir(parents=True, exist_ok=True)
    directory.chmod(0o777)
    for name, content in files.items():
        file = directory / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(content)
        file.chmod(mode)
    return directory


def mounts(container: Object, volumes: Mapping[str, Path]) -> list[dict[str, Any]]:
    """What the launcher mounts for a container."""
    found = []
    for mount in container.get("volumeMounts") or []:
        source = volumes[mount["name"]] / mount.get("subPath", "")
        if not source.exists():
            source.mkdir(parents=True)
        found.append({"source": str(source), "target": mount["mountPath"], "read_only": bool(mount.get("readOnly"))})
    return found
