"""A pod's volumes as directories on the node, and where its containers see them."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from spillway.sandbox.agent.environment import BadContainerConfig, Fetch

Object = Mapping[str, Any]


async def prepare(pod: Object, directory: Path, fetch: Fetch) -> dict[str, Path]:
    """The pod's volumes by name: host paths, and directories made below ``directory``, which hold a ConfigMap's keys.

    Raises BadContainerConfig for any other kind, and for a host path or ConfigMap that is not there.
    """
    prepared = {}
    for volume in pod["spec"].get("volumes") or []:
        files = await _files(volume, fetch)
        prepared[volume["name"]] = await asyncio.to_thread(_make, volume, directory, files)
    return prepared


async def _files(volume: Object, fetch: Fetch) -> dict[str, bytes]:
    if "configMap" not in volume:
        return {}
    name = volume["configMap"]["name"]
    files = await fetch("configmaps", name)
    if files is None:
        raise BadContainerConfig(f'configmap "{name}" not found')
    return files


def _make(volume: Object, directory: Path, files: Mapping[str, bytes]) -> Path:
    if "hostPath" in volume:
        path = Path(volume["hostPath"]["path"])
        if not path.exists():
            raise BadContainerConfig(f"hostPath {path} of volume {volume['name']} does not exist")
        return path
    # projected: the token that a real cluster gives every pod
    if not {"emptyDir", "configMap", "projected"} & volume.keys():
        raise BadContainerConfig(f"volume {volume['name']} is of a kind that this node agent does not know")
    path = directory / str(volume["name"])
    path.mkdir(parents=True, exist_ok=True)
    path.chmod(0o777)
    for name, content in files.items():
        (path / name).write_bytes(content)
    return path


def mounts(container: Object, volumes: Mapping[str, Path]) -> list[dict[str, Any]]:
    """What the launcher mounts for a container."""
    return [
        {
            "source": str(volumes[mount["name"]]),
            "target": mount["mountPath"],
            "read_only": bool(mount.get("readOnly")),
        }
        for mount in container.get("volumeMounts") or []
    ]
