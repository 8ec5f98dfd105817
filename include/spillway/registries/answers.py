"""What a registry says in its answers beside what was asked for: problems, and when to come back."""

from __future__ import annotations

import os
from collections.abc import Mapping
from http import HTTPStatus
from typing import Any

from spillway.codec import from_json
from spillway.errors import Unreachable
from spillway.registries.wire import Answer
from spillway.stores.http_pool import Broken
from spillway.stores.patience import retry_after_seconds

_FULL = ("no space left", "disk quota exceeded", "insufficient storage")


def is_full(answer: Answer, problem: str) -> bool:
    """Whether the registry has no space left for what it was sent."""
    return answer.status == 507 or any(words in problem.lower() for words in _FULL)


def read_json(answer: Answer, endpoint: str) -> dict[str, Any]:
    """The JSON object of an answer; Unreachable where something else than a registry answered."""
    try:
        document = from_json(answer.data)
    except (ValueError, Broken) as problem:
        raise Unreachable(endpoint, "it did not answer as a registry does; check its URL") from problem
    if not isinstance(document, dict):
        raise Unreachable(endpoint, "it did not answer as a registry does; check its URL")
    return document


def error_text(answer: Answer) -> str:
    """One line: the status and, where the body has the specification's form, the codes and messages."""
    try:
        errors = from_json(answer.data)["errors"]
        told = ((error.get("code", ""), _cause(error) or error.get("message", "")) for error in errors)
        said = "; ".join(f"{code} {message}".strip() for code, message in told)
    except (ValueError, TypeError, KeyError, AttributeError, Broken):
        said = HTTPStatus(answer.status).phrase if answer.status in [*HTTPStatus] else ""
    return f"{answer.status} {said}".strip()


def _cause(error: Mapping[str, Any]) -> str | None:
    """What the system said to a registry that keeps its images in files, which tells it as a bare number."""
    detail = error.get("detail")
    enclosed = detail.get("Enclosed") if isinstance(detail, Mapping) else None
    number = enclosed.get("Err") if isinstance(enclosed, Mapping) else None
    return os.strerror(number) if isinstance(number, int) else None


def rate_limit_seconds(answer: Answer, *, attempt: int) -> float | None:
    """How long the registry wants to be left alone: seconds or a date, as HTTP allows; None where it does not say so.

    A 429 without a header that can be read doubles from one second; a 503 without one is a failure like others.
    """
    header = answer.headers.get("retry-after")
    if answer.status not in (429, 503) or (answer.status == 503 and header is None):
        return None
    asked = retry_after_seconds(header, answer.headers.get("date"))
    return float(2**attempt) if asked is None else asked
