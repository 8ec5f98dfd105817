"""What the answers of an S3 server mean: the facts of an object, a typed error."""

from __future__ import annotations

import base64
import re
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from http import HTTPStatus
from typing import NoReturn
from xml.parsers import expat

from spillway.errors import (
    AccessDenied,
    DigestMismatch,
    Missing,
    PreconditionFailed,
    RequestRefused,
    StoreFull,
    Unreachable,
)
from spillway.model import ObjectInfo
from spillway.stores.patience import retry_after_seconds

SHA256_FIELD = "sha256"
"""The metadata field that holds the sha256 (hex) of the whole object."""
STAMP_FIELD = "spillway-write"
"""The metadata field that tells one write from another."""

_META = "x-amz-meta-"
_HEX_SHA256 = re.compile(r"[0-9a-f]{64}")
_MONTHS = "JanFebMarAprMayJunJulAugSepOctNovDec"

_DENIED = {"AccessDenied", "InvalidAccessKeyId", "SignatureDoesNotMatch", "ExpiredToken", "InvalidToken"}
_BUSY = {"SlowDown", "Throttling", "ThrottlingException", "RequestLimitExceeded"}
_FAILED = {"RequestTimeout", "InternalError"}
_SPOILED = {"BadDigest", "InvalidDigest", "XAmzContentChecksumMismatch", "XAmzContentSHA256Mismatch"}
"""The bytes that arrived are not those that were sent."""
_FIX_CLOCK = "synchronise this machine's clock and the store's: requests are signed with the time"
_SKEW_MAX_SECONDS = 15 * 60
"""A request that is signed earlier or later than this is refused."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Refusal:
    """An answer that is no success."""

    operation: str
    status: int
    code: str
    message: str
    headers: Mapping[str, str]

    @property
    def seen(self) -> str:
        return ": ".join(part for part in (self.operation, self.code, self.message) if part)

    @property
    def passes(self) -> bool:
        """Whether the same request may succeed in a moment: the server is busy, broken, or got other bytes than sent.

        A server without space stays so.
        """
        return self.status != 507 and (self.busy or self.status >= 500 or self.code in _FAILED | _SPOILED)

    @property
    def busy(self) -> bool:
        """Whether the server is well, and asks for fewer requests or says when it can take them."""
        asks = self.status >= 500 and self.retry_after_seconds is not None
        return self.status != 507 and (self.status in (429, 503) or self.code in _BUSY or asks)

    @property
    def away(self) -> bool:
        """Whether the server, or another that it needs, cannot answer at present."""
        return self.status >= 500 and self.status != 501 and self.passes and not self.busy

    @property
    def retry_after_seconds(self) -> float | None:
        """How long the server asks to be left alone."""
        return retry_after_seconds(self.headers.get("retry-after"), self.headers.get("date"))

    @property
    def clock_problem(self) -> str | None:
        """How far the clocks are apart, as far as that is known, where the request was refused for that; else None.

        The answer to HEAD does not say why it refuses; its date does.
        """
        date = _http_date(self.headers.get("date", ""))
        ahead = 0.0 if date is None else time.time() - date.timestamp()
        if abs(ahead) > _SKEW_MAX_SECONDS and self.status == 403:
            return f"this machine's clock is {abs(ahead):.0f} s {'ahead of' if ahead > 0 else 'behind'} the store's"
        return "" if self.code == "RequestTimeTooSkewed" else None


def refusal(operation: str, status: int, headers: Mapping[str, str], body: bytes) -> Refusal:
    """The answer as its XML, or for want of one its status, tells."""
    told = _texts(body, ("Code", "Message"))
    phrase = HTTPStatus(status).phrase if status in HTTPStatus._value2member_map_ else ""
    return Refusal(
        operation=operation,
        status=status,
        code=told.get("Code", str(status)),
        message=told.get("Message", phrase),
        headers=headers,
    )


def raise_typed(
    answer: Refusal,
    store: str,
    *,
    bucket: str,
    key: str = "",
    condition: str = "",
    check_keys: str,
    waited_seconds: float | None = None,
) -> NoReturn:
    """Raise what the refusal means; ``condition`` is how a message calls that of the request, where it had one."""
    status, code, seen = answer.status, answer.code, answer.seen
    if code == "NoSuchBucket":
        raise Missing("bucket", bucket, store, fix="create it, or correct the bucket's name")
    if code in _DENIED or status in (401, 403):
        if answer.clock_problem is not None:
            raise AccessDenied(store, "; ".join(filter(None, (seen, answer.clock_problem))), fix=_FIX_CLOCK)
        raise AccessDenied(store, seen, fix=check_keys)
    # A put that is to replace a version finds 404 where there is none any more.
    if condition and (status in (409, 412) or (status == 404 and answer.operation == "PutObject")):
        raise PreconditionFailed(store, key, condition)
    if status == 507:
        raise StoreFull(store, seen)
    if code in _SPOILED:
        raise DigestMismatch(f"{store}/{key}", expected="that was sent with it", seen=f"another one ({seen})")
    if answer.passes:
        raise Unreachable(
            store,
            f"{seen} (HTTP {status})",
            retry_after_seconds=answer.retry_after_seconds,
            waited_seconds=waited_seconds,
        )
    if status == 404:
        raise Missing("object", key, store)
    raise RequestRefused(store, key or bucket, f"{seen} (HTTP {status})")


def object_info(key: str, headers: Mapping[str, str], *, size_bytes: int) -> ObjectInfo:
    """The object's facts from the headers of GET and HEAD."""
    noted = stored_metadata(headers)
    return ObjectInfo(
        key=key,
        size_bytes=size_bytes,
        etag=headers.get("etag", "").strip('"'),
        modified_at=_http_date(headers.get("last-modified", "")),
        sha256=_stored_sha256(headers, noted),
        content_type=headers.get("content-type"),
        metadata={name: value for name, value in noted.items() if name not in (SHA256_FIELD, STAMP_FIELD)},
    )


def stored_metadata(headers: Mapping[str, str]) -> dict[str, str]:
    """The object's metadata, with the fields that the store itself adds."""
    return {name[len(_META) :]: value for name, value in headers.items() if name.startswith(_META)}


def _stored_sha256(headers: Mapping[str, str], noted: Mapping[str, str]) -> str | None:
    """The sha256 of the whole object: as the server computed it, or as its writer noted it."""
    checksum = headers.get("x-amz-checksum-sha256", "")
    if checksum and "-" not in checksum and headers.get("x-amz-checksum-type") != "COMPOSITE":
        return base64.b64decode(checksum).hex()
    written = noted.get(SHA256_FIELD, "")
    return written if _HEX_SHA256.fullmatch(written) else None


def _http_date(text: str) -> datetime | None:
    """``Sun, 06 Nov 1994 08:49:37 GMT``; None for anything else."""
    try:
        day, month, year, clock = text[5:-4].split(" ")
        hour, minute, second = clock.split(":")
        return datetime(
            int(year), 1 + _MONTHS.index(month) // 3, int(day), int(hour), int(minute), int(second), tzinfo=UTC
        )
    except ValueError:
        return None


def _texts(body: bytes, names: tuple[str, ...]) -> dict[str, str]:
    """The texts of the named elements; none where the body is no XML."""
    found: dict[str, str] = {}
    pieces: list[str] = []

    def end(name: str) -> None:
        if name in names:
            found[name] = "".join(pieces)

    try:
        parse_xml(body, lambda name, attributes: pieces.clear(), end, pieces.append)
    except ValueError:
        return {}
    return found


def parse_xml(
    body: bytes,
    start: Callable[[str, dict[str, str]], None],
    end: Callable[[str], None],
    text: Callable[[str], None],
) -> None:
    """Tell each element's start, end and text; raises ValueError where it is no XML."""
    parser = expat.ParserCreate()
    parser.buffer_text = True
    parser.StartElementHandler, parser.EndElementHandler, parser.CharacterDataHandler = start, end, text
    try:
        parser.Parse(body, True)
    except expat.ExpatError as problem:
        raise ValueError(f"it is not XML: {problem}") from None
