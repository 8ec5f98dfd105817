"""The environment that a tag, as ``torch2.0.1-cuda11.8-deepspeed0.9.5``, promises, and what the image really holds."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

_PART = re.compile(r"(?P<name>[a-z][a-z_]*[a-z])(?P<version>[0-9]+(\.[0-9]+)*([a-z]+[0-9]*)?)")
_OPERATING_SYSTEMS = frozenset({"alma", "alpine", "amzn", "centos", "debian", "rocky", "ubi", "ubuntu"})
_LABELS = "dev.spillway."
_VARIABLES = {"CUDA_VERSION": "cuda", "PYTHON_VERSION": "python", "PYTORCH_VERSION": "torch"}
"""What the images of their makers set, and what is built upon them inherits."""
_ALIASES = {"py": "python", "pytorch": "torch"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Environment:
    """Versions by name: ``cuda``, ``python``, an operating system, libraries; what is not named is not known."""

    versions: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def of_tag(cls, tag: str | None) -> Environment:
        """What the tag promises; nothing where it does not follow the convention (``v1``, ``latest``)."""
        versions: dict[str, str] = {}
        for text in (tag or "").split("-"):
            part = _PART.fullmatch(text)
            if part is None:
                return cls()
            versions[_name(part["name"])] = part["version"]
        return cls(versions=versions)

    @classmethod
    def of_config(cls, config: Mapping[str, Any]) -> Environment:
        """What an image's configuration says of itself: our own labels, else what its base images said."""
        run = config.get("config")
        labels, variables = _mapping(run, "Labels"), dict(_variables(run))
        versions = {name: variables[key] for key, name in _VARIABLES.items() if variables.get(key)}
        base = labels.get("org.opencontainers.image.ref.name", "")
        if base in _OPERATING_SYSTEMS:
            versions[base] = labels.get("org.opencontainers.image.version", "")
        for key, value in labels.items():
            if key.startswith(_LABELS):
                versions[_name(key.removeprefix(_LABELS).removeprefix("library."))] = value
        return cls(versions={name: version for name, version in versions.items() if version})

    @property
    def cuda(self) -> str | None:
        return self.versions.get("cuda")

    def contradictions(self, real: Environment) -> tuple[str, ...]:
        """What this one promises and the real one is known not to keep, a sentence each."""
        found = [
            f"{name} is {real.versions[name]}, the tag says {promised}"
            for name, promised in self.versions.items()
            if name in real.versions and not _same(promised, real.versions[name])
        ]
        promised_system, system = (next(iter(_OPERATING_SYSTEMS & set(e.versions)), None) for e in (self, real))
        if promised_system and system and promised_system != system:
            found.append(f"the operating system is {system}, the tag says {promised_system}")
        return tuple(found)


def _name(written: str) -> str:
    return _ALIASES.get(written, written)


def _same(promised: str, real: str) -> bool:
    """Whether both are one version as far as both tell it: 11.8 and 11.8.0, 2.0.1 and 2.0.1+cu118."""
    parts = (promised.split("."), real.partition("+")[0].split("."))
    told = min(len(side) for side in parts)
    return parts[0][:told] == parts[1][:told]


def _mapping(value: Any, key: str) -> dict[str, str]:
    found = value.get(key) if isinstance(value, Mapping) else None
    return {str(name): str(text) for name, text in found.items()} if isinstance(found, Mapping) else {}


def _variables(run: Any) -> Iterator[tuple[str, str]]:
    written = run.get("Env") if isinstance(run, Mapping) else None
    for line in written if isinstance(written, list) else ():
        name, _, value = str(line).partition("=")
        yield name, value
