"""Authenticated requests to one OCI registry, with the registry's answers turned into typed errors."""

from __future__ import annotations

import base64
import email.utils
import json
import re
import threading
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from time import monotonic, sleep, time
from typing import Any
from urllib.parse import urlencode, urljoin, urlsplit

import urllib3

from spillway.errors import AccessDenied, ConfigError, RequestRefused, Unreachable

CONNECT_SECONDS = 10.0
READ_SECONDS = 60.0
MAX_PARALLEL = 16
MAX_REDIRECTS = 5
MAX_RATE_LIMIT_WAITS = 4
MAX_RATE_LIMIT_WAIT_SECONDS = 60.0
FAILURES = (500, 502, 503, 504)
FAILURE_PAUSES_SECONDS = (0.2, 1.0)
"""Pauses before a request is repeated that the registry failed at, as one that is written to elsewhere may."""
TOKEN_SECONDS = 60.0
"""How long a token lives whose service does not say; the distribution specification's own default."""
TOKEN_MARGIN_SECONDS = 10.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """One call. ``scope`` is what a token must allow; a ``stream`` can be sent once only, so it is never repeated."""

    method: str
    url: str
    scope: str
    headers: Mapping[str, str] = field(default_factory=dict)
    body: bytes | None = None
    stream: Iterable[bytes] | None = None
    accepted: tuple[int, ...] = (200,)
    """Statuses that the caller understands; every other one is raised."""

    @property
    def repeatable(self) -> bool:
        """Whether sending it twice is the same as sending it once."""
        return self.stream is None and self.method != "POST"


class Transport:
    """Sends requests with Basic or token authentication, waits out rate limits, keeps connections open.

    May be used by many threads. The password goes to the registry and to its token service, to nobody else.
    """

    def __init__(self, *, name: str, url: str, username: str | None, password: str | None, ca_file: str | None) -> None:
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise ConfigError(
                f"registry {name}", "url", f"expected http(s)://host[:port], got '{url.rpartition('@')[2]}'"
            )
        self.base_url = f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}"
        self.endpoint = f"registry {name} ({parts.netloc.rpartition('@')[2]})"
        self._credentials = (username, password) if username else None
        self._pool = urllib3.PoolManager(
            maxsize=MAX_PARALLEL,
            timeout=urllib3.Timeout(connect=CONNECT_SECONDS, read=READ_SECONDS),
            retries=urllib3.Retry(
                total=None, connect=0, read=0, status=0, redirect=MAX_REDIRECTS, respect_retry_after_header=False
            ),
            ca_certs=ca_file,
        )
        self._lock = threading.Lock()
        self._challenge: Challenge | None = None
        self._tokens: dict[str, tuple[str, float]] = {}

    def send(self, request: Request) -> urllib3.BaseHTTPResponse:
        """The answer, its body not yet read; the caller reads or closes it.

        Raises:
            Unreachable, AccessDenied, RequestRefused: the registry gave no answer that the caller accepts.
        """
        waits = failures = 0
        while True:
            answer = self._send_authenticated(request)
            if answer.status == 429 and waits < MAX_RATE_LIMIT_WAITS and request.stream is None:
                pause = min(_retry_after_seconds(answer, attempt=waits), MAX_RATE_LIMIT_WAIT_SECONDS)
                waits += 1
            elif answer.status in FAILURES and failures < len(FAILURE_PAUSES_SECONDS) and request.repeatable:
                pause = FAILURE_PAUSES_SECONDS[failures]
                failures += 1
            else:
                return self._checked(request, answer)
            answer.drain_conn()
            sleep(pause)

    def _send_authenticated(self, request: Request) -> urllib3.BaseHTTPResponse:
        """Send; answer a first challenge, or the end of a token's life, once."""
        url = urljoin(self.base_url, request.url)
        authorization = self._authorization(request.scope) if self._own(url) else None
        answer = self._exchange(request, url, authorization)
        challenge = answer.headers.get("WWW-Authenticate")
        if answer.status != 401 or not challenge or not self._own(url):
            return answer
        answer.drain_conn()
        with self._lock:
            self._challenge = parse_challenge(challenge)
            if self._tokens.get(request.scope, ("", 0.0))[0] == authorization:
                self._tokens.pop(request.scope, None)
        if request.stream is not None:
            raise Unreachable(self.endpoint, "its token ended during an upload")
        return self._exchange(request, url, self._authorization(request.scope))

    def _own(self, url: str) -> bool:
        return urlsplit(url).netloc == urlsplit(self.base_url).netloc

    def _authorization(self, scope: str) -> str | None:
        """The header's value as far as the registry has said what it wants; None before its first challenge."""
        with self._lock:
            challenge = self._challenge
            if challenge is None:
                return None
            if challenge.scheme == "basic":
                return self._basic()
            token, ends_at = self._tokens.get(scope, ("", 0.0))
            if monotonic() >= ends_at:
                token, ends_at = self._fetch_token(challenge, scope)
                self._tokens[scope] = (token, ends_at)
            return token

    def _basic(self) -> str | None:
        if self._credentials is None:
            return None
        joined = ":".join(part or "" for part in self._credentials)
        return f"Basic {base64.b64encode(joined.encode()).decode()}"

    def _fetch_token(self, challenge: Challenge, scope: str) -> tuple[str, float]:
        if challenge.realm.startswith("http://") and self.base_url.startswith("https://"):
            raise AccessDenied(
                self.endpoint,
                f"its token service {challenge.realm} is not encrypted, so the password was not sent",
                fix="have its operator serve tokens over https",
            )
        query = urlencode([("service", challenge.service), *(("scope", part) for part in scope.split(" "))])
        url = f"{challenge.realm}{'&' if '?' in challenge.realm else '?'}{query}"
        request = Request(method="GET", url=url, scope=scope)
        answer = self._checked(request, self._exchange(request, url, self._basic()))
        document = read_json(answer, self.endpoint)
        token = document.get("token") or document.get("access_token")
        if not isinstance(token, str):
            raise Unreachable(self.endpoint, "its token service answered without a token")
        lifetime = max(float(document.get("expires_in") or TOKEN_SECONDS) - TOKEN_MARGIN_SECONDS, 1.0)
        return f"Bearer {token}", monotonic() + lifetime

    def _exchange(
        self, request: Request, url: str, authorization: str | None, *, again: bool = True
    ) -> urllib3.BaseHTTPResponse:
        headers = dict(request.headers)
        headers["Accept-Encoding"] = "identity"
        if authorization is not None:
            headers["Authorization"] = authorization
        try:
            return self._pool.request(
                request.method,
                url,
                headers=headers,
                body=request.stream if request.body is None else request.body,
                preload_content=False,
                decode_content=False,
                redirect=request.method == "GET",
            )
        except urllib3.exceptions.ProtocolError as problem:
            # A server may close an idle connection in the very moment it is used again.
            if again and request.method in ("GET", "HEAD"):
                return self._exchange(request, url, authorization, again=False)
            raise Unreachable(self.endpoint, _reason(problem)) from problem
        except urllib3.exceptions.HTTPError as problem:
            raise Unreachable(self.endpoint, _reason(problem)) from problem

    def _checked(self, request: Request, answer: urllib3.BaseHTTPResponse) -> urllib3.BaseHTTPResponse:
        if answer.status in request.accepted:
            return answer
        problem = error_text(answer)
        if answer.status in (401, 403):
            raise AccessDenied(self.endpoint, problem, fix=self._fix(answer.status, request.scope))
        if answer.status == 429:
            pause = _retry_after_seconds(answer, attempt=MAX_RATE_LIMIT_WAITS)
            raise Unreachable(self.endpoint, "it limits the rate of requests (429)", retry_after_seconds=pause)
        if answer.status >= 500 or answer.status in (408, 425):
            raise Unreachable(self.endpoint, problem)
        raise RequestRefused(self.endpoint, f"{request.method} {urlsplit(request.url).path}", problem)

    def _fix(self, status: int, scope: str) -> str:
        if self._credentials is None:
            return "set login and password in its Connection"
        if status == 401:
            return f"check login '{self._credentials[0]}' and its password in its Connection"
        return f"give '{self._credentials[0]}' the right to {scope}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Challenge:
    """What a registry asks for: ``basic``, or ``bearer`` with its token service."""

    scheme: str
    realm: str = ""
    service: str = ""


def parse_challenge(header: str) -> Challenge:
    """The challenge of a ``WWW-Authenticate`` header; anything but a token service counts as Basic."""
    scheme, _, rest = header.partition(" ")
    if scheme.lower() != "bearer":
        return Challenge(scheme="basic")
    fields = dict(re.findall(r'(\w+)="([^"]*)"', rest))
    return Challenge(scheme="bearer", realm=fields.get("realm", ""), service=fields.get("service", ""))


def read_json(answer: urllib3.BaseHTTPResponse, endpoint: str) -> dict[str, Any]:
    """The JSON object of an answer; Unreachable where something else than a registry answered."""
    try:
        document = json.loads(answer.data)
    except (ValueError, urllib3.exceptions.HTTPError) as problem:
        raise Unreachable(endpoint, "it did not answer as a registry does; check its URL") from problem
    if not isinstance(document, dict):
        raise Unreachable(endpoint, "it did not answer as a registry does; check its URL")
    return document


def error_text(answer: urllib3.BaseHTTPResponse) -> str:
    """One line: the status and, where the body has the specification's form, the codes and messages."""
    try:
        errors = json.loads(answer.data)["errors"]
        said = "; ".join(f"{error.get('code', '')} {error.get('message', '')}".strip() for error in errors)
    except (ValueError, TypeError, KeyError, AttributeError, urllib3.exceptions.HTTPError):
        said = answer.reason or ""
    return f"{answer.status} {said}".strip()


def _retry_after_seconds(answer: urllib3.BaseHTTPResponse, *, attempt: int) -> float:
    """Seconds or a date, as HTTP allows; without the header, doubling from one second."""
    header = answer.headers.get("Retry-After")
    if header is None:
        return float(2**attempt)
    if header.strip().isdigit():
        return float(header)
    try:
        return max(email.utils.parsedate_to_datetime(header).timestamp() - time(), 0.0)
    except ValueError:
        return float(2**attempt)


def _reason(problem: BaseException) -> str:
    """The innermost cause, which is what a person can act on (``connection refused``)."""
    while isinstance(problem, urllib3.exceptions.MaxRetryError) and problem.reason is not None:
        problem = problem.reason
    if isinstance(problem, urllib3.exceptions.NewConnectionError):
        return str(problem).rpartition(": ")[2]
    if isinstance(problem, urllib3.exceptions.SSLError) and "CERTIFICATE_VERIFY_FAILED" in str(problem):
        return "its certificate is not signed by a known authority; give the registry's CA file"
    return str(problem)
