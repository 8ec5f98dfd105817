"""The environment that a tag such as ``torch2.0.1-cuda11.8-deepspeed0.9.5`` promises."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

_PART = re.compile(r"(?P<name>[a-z][a-z_]*[a-z])(?P<version>[0-9]+(\.[0-9]+)*([a-z]+[0-9]*)?)")
_OPERATING_SYSTEMS = frozenset({"alma", "alpine", "amzn", "centos", "debian", "rocky", "ubi", "ubuntu"})


@dataclass(frozen=True, slots=True, kw_only=True)
class EnvironmentTag:
    """Versions by name, in the order of the tag; a part that the tag does not name is None, not "any"."""

    libraries: Mapping[str, str] = field(default_factory=dict)
    cuda: str | None = None
    python: str | None = None
    operating_system: tuple[str, str] | None = None

    @classmethod
    def parse(cls, tag: str) -> EnvironmentTag | None:
        """The environment, or None where the tag does not follow the convention (``v1``, ``latest``)."""
        libraries: dict[str, str] = {}
        cuda = python = operating_system = None
        for text in tag.split("-"):
            part = _PART.fullmatch(text)
            if part is None:
                return None
            name, version = part["name"], part["version"]
            if name == "cuda":
                cuda = version
            elif name in ("py", "python"):
                python = version
            elif name in _OPERATING_SYSTEMS:
                operating_system = (name, version)
            else:
                libraries[name] = version
        return cls(libraries=libraries, cuda=cuda, python=python, operating_system=operating_system)

    def __str__(self) -> str:
        parts = [f"{name}{version}" for name, version in self.libraries.items()]
        parts += [f"cuda{self.cuda}"] if self.cuda else []
        parts += [f"py{self.python}"] if self.python else []
        parts += ["".join(self.operating_system)] if self.operating_system else []
        return "-".join(parts)
