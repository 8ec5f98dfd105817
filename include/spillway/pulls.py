"""Whether an image pull that failed may still succeed, told from what the node said about it."""

from __future__ import annotations

import re

PULL_REASONS = frozenset({
    "ErrImagePull", "ImagePullBackOff", "InvalidImageName", "ErrImageNeverPull", "ImageInspectError",
    "RegistryUnavailable", "SignatureValidationFailed",
})  # fmt: skip
_NEVER_REASONS = frozenset({"InvalidImageName", "ErrImageNeverPull", "SignatureValidationFailed"})
_PASSES = re.compile(
    r"too ?many ?requests|rate limit|\b429\b|time.?out|timed out|deadline ?exceeded|connection (refused|reset)|"
    r"no such host|unreachable|unexpected eof|\b50[0-9]\b|unavailable|temporar",
    re.IGNORECASE,
)
_NEVER_WORKS = re.compile(
    r"not ?found|(manifest|name|repository|blob)[ _]unknown|does not exist|invalid (reference|image|name)|"
    r"couldn't parse|unauthorized|denied|forbidden|authentication required|no basic auth|no match for platform|"
    r"x509|\b40[134]\b|(expected|unexpected commit) digest|failed size validation",
    re.IGNORECASE,
)
_NAMES = re.compile(r'"[^"]*"|\S*[/@]\S*')
"""Image names, addresses and digests: they may hold any word or number."""


def pull_can_succeed(reason: str, message: str) -> bool:
    """False where waiting is in vain: no such image, no valid name, no access, no trust.

    A rate limit, a time-out or a registry that is down passes, also where the same message speaks of a denial. A
    message that says nothing of the cause leaves hope.
    """
    if reason in _NEVER_REASONS:
        return False
    said = _NAMES.sub(" ", message)
    return bool(_PASSES.search(said)) or not _NEVER_WORKS.search(said)
