"""Names of images, as jobs and pods write them."""

from __future__ import annotations

import re
from dataclasses import dataclass

from spillway.errors import InvalidImage

_HOST = re.compile(
    r"(localhost|[A-Za-z0-9-]+(\.[A-Za-z0-9-]+)+|[A-Za-z0-9.-]+(?=:))(:[0-9]{1,5})?|\[[0-9a-fA-F:]+\](:[0-9]{1,5})?"
)
_REPOSITORY = re.compile(r"[a-z0-9]+((\.|_|__|-+)[a-z0-9]+)*(/[a-z0-9]+((\.|_|__|-+)[a-z0-9]+)*)*")
_TAG = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,127}")
_DIGEST = re.compile(r"sha256:[0-9a-f]{64}")
_MAX_REPOSITORY_LENGTH = 255


@dataclass(frozen=True, slots=True, kw_only=True)
class ImageReference:
    """``[host[:port]/]repository[:tag][@digest]`` with a tag, a digest or both; a digest outranks a tag.

    A name without either is refused: what it stands for changes without anybody saying so.
    """

    repository: str
    tag: str | None = None
    digest: str | None = None
    registry: str | None = None

    @classmethod
    def parse(cls, text: str) -> ImageReference:
        """The parts of a name; raises InvalidImage."""
        rest, at, digest = text.partition("@")
        if at and not _DIGEST.fullmatch(digest):
            raise InvalidImage(text, f"expected a digest 'sha256:' and 64 hex digits after '@', got '{digest}'")
        registry, rest = _split_registry(rest)
        repository, colon, tag = rest.partition(":")
        if colon and not cls.is_tag(tag):
            raise InvalidImage(
                text, f"expected a tag of at most 128 letters, digits, '.', '_' and '-' after ':', got '{tag}'"
            )
        if not colon and not at:
            raise InvalidImage(text, f"expected a tag or a digest, such as '{repository or 'train'}:v1', got '{text}'")
        if not cls.is_repository(repository):
            raise InvalidImage(
                text, f"expected a repository of lower-case letters, digits, '.', '_', '-' and '/', got '{repository}'"
            )
        return cls(repository=repository, tag=tag or None, digest=digest or None, registry=registry)

    @staticmethod
    def is_tag(text: str) -> bool:
        """Whether it is the name of a tag."""
        return _TAG.fullmatch(text) is not None

    @staticmethod
    def is_repository(text: str) -> bool:
        """Whether a registry takes it as the name of a repository."""
        return len(text) <= _MAX_REPOSITORY_LENGTH and _REPOSITORY.fullmatch(text) is not None

    @property
    def reference(self) -> str:
        """What to ask a registry for: the digest, else the tag."""
        return self.digest or self.tag or ""

    def __str__(self) -> str:
        host = f"{self.registry}/" if self.registry else ""
        tag = f":{self.tag}" if self.tag else ""
        digest = f"@{self.digest}" if self.digest else ""
        return f"{host}{self.repository}{tag}{digest}"


def _split_registry(text: str) -> tuple[str | None, str]:
    """A first part is a host when it has a dot or a port or is ``localhost``, as container engines read names."""
    first, slash, rest = text.partition("/")
    if slash and _HOST.fullmatch(first):
        return first, rest
    return None, text
