"""A container's environment and command line: from its image and its pod, and from nowhere else."""

from __future__ import annotations

import base64
import re
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from spillway.sandbox.agent.images import Image

DEFAULT_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

Object = Mapping[str, Any]
Fetch = Callable[[str, str], Awaitable[dict[str, bytes] | None]]
"""The data of a ConfigMap or Secret of the pod's namespace, by ``configmaps``/``secrets`` and name; None without it."""


class BadContainerConfig(Exception):
    """The container can't be made from what its pod refers to; it may be possible later."""


async def environment(
    container: Object, image: Image, pod: Object, facts: Mapping[str, str], fetch: Fetch
) -> dict[str, str]:
    """The image's variables, then the pod's. ``facts`` answers fieldRefs that only the node knows.

    As every runtime does, PATH and HOME have a default and HOSTNAME is the pod's name. Raises BadContainerConfig.
    """
    values = {"PATH": DEFAULT_PATH, "HOME": "/root", "HOSTNAME": pod["metadata"]["name"], **image.environment}
    for source in container.get("envFrom") or []:
        _, _, data = await _referred(source, "Ref", fetch)
        values |= {source.get("prefix", "") + key: value.decode() for key, value in data.items()}
    for variable in container.get("env") or []:
        value = await _value(variable, pod, facts, fetch)
        if value is not None:
            values[variable["name"]] = expand(value, values)
    return values


def command(container: Object, image: Image, values: Mapping[str, str]) -> list[str]:
    """Entrypoint and arguments as Kubernetes combines the pod's and the image's; raises BadContainerConfig."""
    entrypoint = container.get("command") or image.config.get("Entrypoint") or []
    arguments = container.get("args") or ([] if container.get("command") else image.config.get("Cmd") or [])
    words = [expand(word, values) for word in [*entrypoint, *arguments]]
    if not words:
        raise BadContainerConfig(f"no command specified: image {image.digest} has neither Entrypoint nor Cmd")
    return words


def expand(text: str, values: Mapping[str, str]) -> str:
    """``$(NAME)`` becomes the variable's value where there is one; ``$$(NAME)`` stays ``$(NAME)``."""

    def replaced(match: re.Match[str]) -> str:
        return match[0][1:] if match[0].startswith("$$") else values.get(match[1], match[0])

    return re.sub(r"\$?\$\(([A-Za-z_][A-Za-z0-9_.-]*)\)", replaced, text)


async def _value(variable: Object, pod: Object, facts: Mapping[str, str], fetch: Fetch) -> str | None:
    source = variable.get("valueFrom")
    if source is None:
        return str(variable.get("value") or "")
    if "fieldRef" in source:
        return field(pod, source["fieldRef"]["fieldPath"], facts)
    what, reference, data = await _referred(source, "KeyRef", fetch)
    if reference["key"] in data:
        return data[reference["key"]].decode()
    if reference.get("optional"):
        return None
    raise BadContainerConfig(f"couldn't find key {reference['key']} in {what}")


async def _referred(source: Object, suffix: str, fetch: Fetch) -> tuple[str, Object, dict[str, bytes]]:
    """What a source refers to, in words; the reference itself; its data, empty where it is optional and absent."""
    for kind in ("configMap", "secret"):
        reference = source.get(f"{kind}{suffix}")
        if reference is not None:
            what = f'{kind.lower()} "{reference["name"]}"'
            data = await fetch(f"{kind.lower()}s", reference["name"])
            if data is None and not reference.get("optional"):
                raise BadContainerConfig(f"{what} not found")
            return what, reference, data or {}
    raise BadContainerConfig(f"expected a ConfigMap or a Secret as the source of a variable, got {dict(source)}")


def field(pod: Object, path: str, facts: Mapping[str, str]) -> str:
    """The value of a fieldRef; empty where the pod has no such label or annotation."""
    if match := re.fullmatch(r"metadata\.(labels|annotations)\['(.+)'\]", path):
        return str((pod["metadata"].get(match[1]) or {}).get(match[2], ""))
    if path in facts:
        return facts[path]
    value: Any = pod
    for name in path.split("."):
        value = value.get(name, "") if isinstance(value, Mapping) else ""
    return str(value)


def decoded(obj: Object) -> dict[str, bytes]:
    """The data of a ConfigMap or Secret object as bytes."""
    if obj.get("kind") == "Secret":
        return {key: base64.b64decode(value) for key, value in (obj.get("data") or {}).items()}
    return {key: value.encode() for key, value in (obj.get("data") or {}).items()}
