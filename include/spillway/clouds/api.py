"""Requests to a Kubernetes API, and the one place where its failures become errors of Spillway."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from email.utils import parsedate_to_datetime
from typing import Any

from spillway.clouds.facts import Json
from spillway.errors import AccessDenied, RequestRefused, Unreachable

CONNECT_SECONDS = 5.0
READ_SECONDS = 20.0
PAGE_SIZE = 500
JSON = "application/json, */*"
METADATA = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1, application/json"
"""Asks for a list without what its objects hold."""

_ADMISSION = re.compile(r"exceeded quota|must specify|violates PodSecurity|denied the request|no PriorityClass")
"""A 403 that is about the object, not about who sent it."""


class ApiRefusal(RequestRefused):
    """A 4xx answer that is neither about credentials nor about load; ``status`` is its code."""

    def __init__(self, endpoint: str, request: str, problem: str, *, status: int) -> None:
        super().__init__(endpoint, request, problem)
        self.status = status


class KubernetesApi:
    """Plain JSON from and to one API, through an ``ApiClient`` of the official client.

    Every method raises Unreachable (5xx, 429, no or no proper answer), AccessDenied (401, 403) or ApiRefusal. Nothing
    is repeated: whoever polls decides when to ask again. ``clock_ahead`` is how far the API's clock was ahead of the
    one here at the last answer; None where a proxy left its header out.
    """

    clock_ahead: timedelta | None = None

    def __init__(self, api_client: Any, *, endpoint: str) -> None:
        self.endpoint = endpoint
        self._client = api_client
        # By default a 429 would be slept on inside the call for as long as the server asks, whatever its time-out.
        api_client.rest_client.pool_manager.connection_pool_kw["retries"] = False

    def json(
        self,
        method: str,
        path: str,
        query: Mapping[str, Any] | None = None,
        *,
        body: Json | None = None,
        content_type: str = "application/json",
        accept: str = JSON,
    ) -> Any:
        """The decoded answer."""
        answer = self.bytes(method, path, query, body=body, content_type=content_type, accept=accept)
        try:
            return json.loads(answer)
        except ValueError as problem:
            raise Unreachable(
                self.endpoint, f"{method} {path} was not answered with JSON: {answer[:80]!r}"
            ) from problem

    def bytes(
        self,
        method: str,
        path: str,
        query: Mapping[str, Any] | None = None,
        *,
        body: Json | None = None,
        content_type: str = "application/json",
        accept: str = JSON,
    ) -> bytes:
        """The answer as it was sent."""
        headers = {"Accept": accept, "Content-Type": content_type}
        return bytes(self._answer(method, path, query, body=body, headers=headers).data)

    def _answer(
        self, method: str, path: str, query: Mapping[str, Any] | None, *, body: Json | None, headers: Mapping[str, str]
    ) -> Any:
        from kubernetes.client.exceptions import ApiException
        from urllib3.exceptions import HTTPError

        sent_at = datetime.now(UTC)
        try:
            answer = self._client.call_api(
                path,
                method,
                query_params=list((query or {}).items()),
                header_params=dict(headers),
                body=body,
                auth_settings=["BearerToken"],
                _preload_content=False,
                _request_timeout=(CONNECT_SECONDS, READ_SECONDS),
            )
            self.clock_ahead = clock_ahead(answer.headers.get("Date"), sent_at, datetime.now(UTC))
            answer.read(cache_content=True)  # within the try: the body may break off too
            return answer
        except ApiException as problem:
            raise self._error(f"{method} {path}", problem) from problem
        except AttributeError as problem:
            # The official client trips over an error without a body, which is what it makes of a failed TLS handshake.
            if not isinstance(problem.__context__, ApiException):
                raise
            raise self._error(f"{method} {path}", problem.__context__) from problem
        except (HTTPError, OSError) as problem:
            raise Unreachable(self.endpoint, f"{method} {path}: {_first_line(str(problem))}") from problem

    def items(self, path: str, query: Mapping[str, Any] | None = None, *, metadata_only: bool = False) -> list[Json]:
        """Every object of a list; with ``metadata_only`` perhaps without anything else of it.

        Read page by page; where a page comes too late and the server has forgotten the moment it listed, the whole
        list is read anew in one answer.
        """
        accept = METADATA if metadata_only else JSON
        asked: dict[str, Any] = {**(query or {}), "limit": PAGE_SIZE}
        found: list[Json] = []
        while True:
            try:
                page = self.json("GET", path, asked, accept=accept)
            except ApiRefusal as refusal:
                if refusal.status != 410 or "continue" not in asked:
                    raise
                return list(self.json("GET", path, query, accept=accept)["items"])
            found += page["items"]
            following = (page.get("metadata") or {}).get("continue")
            if not following:
                return found
            asked["continue"] = following

    def _error(self, request: str, problem: Any) -> Exception:
        status, text = problem.status or 0, _message(problem)
        if status == 401:
            return AccessDenied(self.endpoint, f"401 {text}", fix="renew the token or certificate of its Connection")
        if status == 403 and not _ADMISSION.search(text):
            fix = "grant the Connection's identity this right in the cluster (see docs/clusters.md)"
            return AccessDenied(self.endpoint, f"403 {text}", fix=fix)
        if status == 429 or status >= 500 or status < 400:
            pause = _retry_after_seconds(problem.headers)
            return Unreachable(self.endpoint, f"{request}: {status or 'TLS'} {text}", retry_after_seconds=pause)
        return ApiRefusal(self.endpoint, request, f"{status} {text}", status=status)


def clock_ahead(date: str | None, sent_at: datetime, received_at: datetime) -> timedelta | None:
    """How far a server's clock is ahead of the one here, at least, by its header Date, which is cut to the second.

    It was written at some moment between the two of ours, so that a slow answer is not taken for a wrong clock.
    """
    try:
        told = parsedate_to_datetime(date or "")
    except ValueError:
        return None
    if told.tzinfo is None:
        return None
    if told > received_at:
        return told - received_at
    return min(told + timedelta(seconds=1) - sent_at, timedelta(0))


def _message(problem: Any) -> str:
    try:
        return str(json.loads(problem.body)["message"])
    except (ValueError, TypeError, KeyError):
        return _first_line(str(problem.body or problem.reason))


def _first_line(text: str) -> str:
    return " ".join(text.split())[:300]


def _retry_after_seconds(headers: Mapping[str, str] | None) -> float | None:
    """The pause that the server asks for; Kubernetes always gives seconds, other forms are not understood."""
    try:
        seconds = float((headers or {}).get("Retry-After", "nan"))
    except ValueError:
        return None
    return seconds if math.isfinite(seconds) and seconds >= 0 else None
