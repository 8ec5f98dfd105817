"""Authenticated requests to one OCI registry, with the registry's answers turned into typed errors."""

from __future__ import annotations

import base64
import re
import ssl
import threading
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from time import monotonic, sleep
from urllib.parse import urlencode, urljoin, urlsplit

from spillway.errors import AccessDenied, ConfigError, RequestRefused, StoreFull, Unreachable
from spillway.registries.answers import error_text, is_full, rate_limit_seconds, read_json
from spillway.registries.wire import Answer, Wire
from spillway.stores.http_pool import Broken
from spillway.stores.patience import AWAY_SECONDS, TRIES, Patience

MAX_RATE_LIMIT_WAITS = 4
MAX_RATE_LIMIT_WAIT_SECONDS = 120.0
"""A registry that asks for a longer pause is left alone: whoever called may come back then."""
FAILURES = (500, 502, 503, 504)
FAILURE_TRIES = 3
"""Of a request that the registry fails at, as one that is written to elsewhere may."""
RESUME_TRIES = TRIES
"""Of a blob at one place of it; while the registry is away there are more."""
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
    once: bool = False
    """Sending it twice is not the same as sending it once."""
    accepted: tuple[int, ...] = (200,)
    """Statuses that the caller understands; every other one is raised."""

    @property
    def repeatable(self) -> bool:
        """Whether it may be sent again after a failure that leaves open what became of it."""
        return self.stream is None and not self.once and self.method != "POST"


def resume_patience() -> Patience:
    """That with a blob that breaks off: what was moved of it is kept for as long as the registry's restart may take."""
    return Patience(RESUME_TRIES, monotonic, away_seconds=AWAY_SECONDS)


class Transport:
    """Sends requests with Basic or token authentication, waits out rate limits, keeps connections open.

    May be used by many threads. The password goes to the registry and to its token service, to nobody else.
    """

    def __init__(
        self, *, name: str, url: str, username: str | None, password: str | None, ca_file: str | None, credentials: str
    ) -> None:
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise ConfigError(
                f"registry {name}", "url", f"expected http(s)://host[:port], got '{url.rpartition('@')[2]}'"
            )
        self.base_url = f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}"
        self.endpoint = f"registry {name} ({parts.netloc.rpartition('@')[2]})"
        self._credentials, self._place = (username, password) if username else None, credentials
        self._wire, self._ca_file = Wire(ca_file), ca_file
        self._lock = threading.Lock()
        self._challenge: Challenge | None = None
        self._tokens: dict[str, tuple[str, float]] = {}
        self._challenged_scopes: dict[str, str] = {}
        """What the registry itself calls a scope: behind a proxy its repositories may have other names than here."""
        self._welcome_at = 0.0

    def send(self, request: Request) -> Answer:
        """The answer, its body not yet read; the caller reads or closes it.

        Raises:
            Unreachable, AccessDenied, RequestRefused: the registry gave no answer that the caller accepts.
        """
        waits, patience = 0, Patience(FAILURE_TRIES, monotonic)
        while True:
            self._wait_until_welcome()
            answer = self._send_authenticated(request)
            limit = rate_limit_seconds(answer, attempt=waits)
            if limit is not None and limit <= MAX_RATE_LIMIT_WAIT_SECONDS and waits < MAX_RATE_LIMIT_WAITS:
                waits += 1
                with self._lock:
                    self._welcome_at = max(self._welcome_at, monotonic() + limit)
                if request.stream is not None:
                    return self._checked(request, answer)
                answer.drain()
            else:
                passes = answer.status in FAILURES and request.repeatable
                pause = patience.after_failure() if passes else None
                if pause is None:
                    return self._checked(request, answer)
                answer.drain()
                sleep(pause)

    def _wait_until_welcome(self) -> None:
        """Sit out a rate limit that any request has met: others would only make it longer."""
        with self._lock:
            pause = self._welcome_at - monotonic()
        if pause > 0:
            sleep(pause)

    def _send_authenticated(self, request: Request) -> Answer:
        """Send; answer a first challenge, or the end of a token's life, once."""
        url = full_url(self.base_url, request.url)
        authorization = self._authorization(request.scope) if self._own(url) else None
        answer = self._exchange(request, url, authorization)
        challenge = answer.headers.get("www-authenticate")
        if answer.status != 401 or not challenge or not self._own(url):
            return answer
        answer.drain()
        with self._lock:
            self._challenge = parse_challenge(challenge)
            self._challenged_scopes[request.scope] = self._challenge.scope
            if self._tokens.get(request.scope, ("", 0.0))[0] == authorization:
                self._tokens.pop(request.scope, None)
        if request.stream is not None:
            raise Unreachable(self.endpoint, "its token ended during an upload")
        return self._exchange(request, url, self._authorization(request.scope))

    def _own(self, url: str) -> bool:
        return origin(url) == origin(self.base_url)

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
                wanted = " ".join(dict.fromkeys(f"{scope} {self._challenged_scopes.get(scope, '')}".split()))
                token, ends_at = self._fetch_token(challenge, wanted)
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

    def _exchange(self, request: Request, url: str, authorization: str | None) -> Answer:
        headers = dict(request.headers)
        if authorization is not None:
            headers["Authorization"] = authorization
        body = request.stream if request.body is None else request.body
        try:
            return self._wire.send(request.method, url, headers, body)
        except Broken as problem:
            raise Unreachable(self.endpoint, _reason(problem)) from problem
        except ssl.SSLCertVerificationError as problem:
            unknown = "its certificate is not signed by a known authority; give the registry's CA file"
            raise Unreachable(self.endpoint, unknown) from problem
        except OSError as problem:
            text = f"the certificates in '{self._ca_file}' cannot be read: {problem}"
            raise ConfigError(self.endpoint, "", text) from problem

    def _checked(self, request: Request, answer: Answer) -> Answer:
        if answer.status in request.accepted:
            return answer
        problem = error_text(answer)
        if answer.status in (401, 403):
            raise AccessDenied(self.endpoint, problem, fix=self._fix(answer.status, request.scope))
        pause = rate_limit_seconds(answer, attempt=MAX_RATE_LIMIT_WAITS)
        if pause is not None:
            limit = f"it limits the rate of requests ({answer.status}) and asks for a pause of {pause:.0f} s"
            raise Unreachable(self.endpoint, limit, retry_after_seconds=pause)
        if is_full(answer, problem):
            raise StoreFull(self.endpoint, problem)
        if answer.status >= 500 or answer.status in (408, 425):
            raise Unreachable(self.endpoint, problem)
        raise RequestRefused(self.endpoint, f"{request.method} {urlsplit(request.url).path}", problem)

    def _fix(self, status: int, scope: str) -> str:
        if self._credentials is None:
            return f"set login and password in {self._place}"
        if status == 401:
            return f"check login '{self._credentials[0]}' and its password in {self._place}"
        return f"give '{self._credentials[0]}' the right to {scope}; it is the login in {self._place}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Challenge:
    """What a registry asks for: ``basic``, or ``bearer`` with its token service."""

    scheme: str
    realm: str = ""
    service: str = ""
    scope: str = ""


def origin(url: str) -> tuple[str, str]:
    """What a password belongs to: the scheme, and the host with its port where that is not the scheme's own."""
    parts = urlsplit(url)
    usual = {"http": ":80", "https": ":443"}.get(parts.scheme, "")
    return parts.scheme, parts.netloc.lower().removesuffix(usual)


def full_url(base_url: str, url: str) -> str:
    """Where a registry's relative or absolute URL leads.

    One that calls itself ``http``, as behind a proxy that speaks TLS for it, is asked over TLS all the same.
    """
    full, base = urlsplit(urljoin(base_url, url)), urlsplit(base_url)
    if origin(full.geturl()) == ("http", origin(base_url)[1]):
        full = full._replace(scheme=base.scheme, netloc=base.netloc)
    return full.geturl()


def parse_challenge(header: str) -> Challenge:
    """The challenge of a ``WWW-Authenticate`` header; anything but a token service counts as Basic."""
    scheme, _, rest = header.partition(" ")
    if scheme.lower() != "bearer":
        return Challenge(scheme="basic")
    fields = dict(re.findall(r'(\w+)="([^"]*)"', rest))
    known = {name: fields.get(name, "") for name in ("realm", "service", "scope")}
    return Challenge(scheme="bearer", **known)


def _reason(problem: Broken) -> str:
    """What a person can act on."""
    if "WRONG_VERSION_NUMBER" in str(problem):
        return "it does not speak TLS there; correct the port, or let the schema of its Connection be http"
    return str(problem)
