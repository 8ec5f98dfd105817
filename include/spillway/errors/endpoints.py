"""What stores, registries and clusters answer or do not answer."""

from __future__ import annotations

from spillway.errors.root import SpillwayError


class Unreachable(SpillwayError):
    """An endpoint did not answer, answered 5xx, or ran into its deadline."""

    retry_helps = True

    def __init__(
        self,
        endpoint: str,
        problem: str,
        *,
        retry_after_seconds: float | None = None,
        waited_seconds: float | None = None,
    ) -> None:
        """``waited_seconds``: for how long it was waited for in vain, where it was."""
        waited = "" if waited_seconds is None else f"; it was waited for {waited_seconds:.0f} s"
        super().__init__(f"{endpoint} is unreachable: {problem}{waited}")
        self.endpoint, self.problem, self.retry_after_seconds = endpoint, problem, retry_after_seconds
        self.waited_seconds = waited_seconds


class AccessDenied(SpillwayError):
    """An endpoint refused the credentials (401, 403)."""

    def __init__(self, endpoint: str, problem: str, *, fix: str) -> None:
        super().__init__(f"{endpoint} refused the credentials: {problem}; {fix}")
        self.endpoint, self.problem, self.fix = endpoint, problem, fix


class RequestRefused(SpillwayError):
    """An endpoint understood a request and will not do it (4xx), so the same request never succeeds."""

    def __init__(self, endpoint: str, request: str, problem: str) -> None:
        super().__init__(f"{endpoint} refused {request}: {problem}")
        self.endpoint, self.request, self.problem = endpoint, request, problem


class PoolRefused(SpillwayError):
    """A pool that is not scaled as it was asked for: what was asked, what was said to it, and what to do."""

    def __init__(self, pool: str, asked: str, said: str, *, fix: str) -> None:
        super().__init__(f"pool '{pool}' does not get {asked}: {said}; {fix}")
        self.pool, self.asked, self.said, self.fix = pool, asked, said, fix


class InvalidImage(SpillwayError):
    """An image reference or manifest that cannot be used: ``image 'Train:v1': expected lower case letters ...``."""

    def __init__(self, image: str, problem: str) -> None:
        super().__init__(f"image '{image}': {problem}")
        self.image, self.problem = image, problem


class Missing(SpillwayError):
    """Something that should exist does not: ``image 'train:v9' is not in registry onprem; its tags: v1, v2``."""

    def __init__(self, kind: str, name: str, where: str, *, fix: str = "") -> None:
        super().__init__(f"{kind} '{name}' is not in {where}" + (f"; {fix}" if fix else ""))
        self.kind, self.name, self.where, self.fix = kind, name, where, fix


class PreconditionFailed(SpillwayError):
    """A conditional read or write found another state of the object than the one it was conditioned on."""

    def __init__(self, where: str, key: str, condition: str) -> None:
        super().__init__(f"{where}: {key}: the condition '{condition}' no longer holds; read it again and decide anew")
        self.where, self.key, self.condition = where, key, condition


class KeepsChanging(SpillwayError):
    """Something that others went on changing while it was read or written; later it may be at rest."""

    retry_helps = True

    def __init__(self, what: str, seen: str) -> None:
        super().__init__(f"{what} went on changing {seen}; a later try may find it at rest")
        self.what, self.seen = what, seen


class DigestMismatch(SpillwayError):
    """Bytes are not what their digest promises."""

    def __init__(self, what: str, *, expected: str, seen: str) -> None:
        super().__init__(f"{what}: expected digest {expected}, the bytes have {seen}; they were not used")
        self.what, self.expected, self.seen = what, expected, seen


class KeyRefused(SpillwayError):
    """A key that a store cannot hold exactly as it is; nothing was written."""

    def __init__(self, where: str, key: str, problem: str) -> None:
        super().__init__(f"{where} cannot hold the key {key!r}: {problem}; rename the object at its source")
        self.where, self.key, self.problem = where, key, problem


class StoreFull(SpillwayError):
    """A store or a disk that has no space left; what was being written is not visible."""

    def __init__(self, where: str, problem: str) -> None:
        super().__init__(f"{where} is full: {problem}; free or add space and run it again")
        self.where, self.problem = where, problem


class IncompleteListing(SpillwayError):
    """A listing that cannot be trusted to be whole; acting on it could delete or miss objects."""

    retry_helps = True
