"""What keeps bytes from a site."""

from __future__ import annotations

from collections.abc import Sequence

from spillway.errors.counts import counted
from spillway.errors.root import SpillwayError


class ResidencyRefused(SpillwayError):
    """Bytes that may not leave their site."""

    def __init__(self, what: str, *, tier: str, source: str, destination: str, fix: str) -> None:
        home = "" if source == destination else f" (its home is '{source}')"
        super().__init__(f"{what} is of tier '{tier}' and may not be stored at '{destination}'{home}; {fix}")
        self.what, self.tier, self.source, self.destination = what, tier, source, destination


class DeletesRefused(SpillwayError):
    """A sync would delete more than its guard allows; nothing was deleted."""


class SyncIncomplete(SpillwayError):
    """A dataset of which some objects could not be copied; what was copied is kept, the next sync goes on there.

    A retry helps unless every one of them is refused: by its key, its size, or by what the store lets anybody do.
    """

    retry_helps = True

    def __init__(self, dataset: str, where: str, *, failed: int, refused: int, first: str) -> None:
        counts = f"{counted(failed, 'object')} failed and may arrive with the next sync, refused as they are: {refused}"
        super().__init__(f"dataset '{dataset}' is not whole at {where}: {counts}; the first: {first}")
        self.dataset, self.where, self.failed, self.refused = dataset, where, failed, refused
        self.retry_helps = failed > 0


class MirrorIncomplete(SpillwayError):
    """A repository of which some tags are not at their destination as the source has them; the others are there.

    A retry helps where one failed by something that passes. A tag that has another image at the destination and one
    that may not be stored there are for somebody to decide.
    """

    def __init__(self, repository: str, where: str, failures: Sequence[str], *, retry_helps: bool) -> None:
        super().__init__(
            f"{counted(len(failures), 'tag')} of repository '{repository}' not at {where} as wanted: "
            f"{'; '.join(failures[:5])}{'; ...' if len(failures) > 5 else ''}"
        )
        self.repository, self.where, self.failures, self.retry_helps = repository, where, tuple(failures), retry_helps
