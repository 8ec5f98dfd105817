"""The requests that a mover makes by the thousand (LIST, HEAD, GET, PUT), signed and retried; boto3 has the others."""

from __future__ import annotations

import os
import random
import ssl
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, NoReturn
from urllib.parse import quote, urlsplit

from spillway.errors import AccessDenied, ConfigError, Missing, Unreachable
from spillway.stores.environment import environment_proxies
from spillway.stores.http_pool import Broken, HttpPool, Origin, Reply
from spillway.stores.parts import FileBody
from spillway.stores.patience import Patience
from spillway.stores.s3_answers import Refusal, raise_typed, refusal
from spillway.stores.s3_endpoint import FIX_CERTIFICATE, S3Endpoint
from spillway.stores.signing import Signer

if TYPE_CHECKING:
    from spillway.stores.proxied import ProxiedSession

UNSIGNED = "UNSIGNED-PAYLOAD"
_MISDIRECTED = {"PermanentRedirect", "TemporaryRedirect", "AuthorizationHeaderMalformed", "IncorrectEndpoint"}


class S3Requests:
    """Requests to one bucket; safe to share between threads.

    A server that asks to be left alone, or is busy, is left alone by all of them. Once one has waited in vain for a
    server that is away, the others do not, until it answers again.
    """

    def __init__(
        self,
        endpoint: S3Endpoint,
        bucket: str,
        *,
        store: str,
        credentials: str,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self.store, self.bucket = store, bucket
        self.check_keys = f"check the access key and the secret key of {credentials}, and what its identity may do"
        self._endpoint, self._clock, self._sleep = endpoint, clock, sleep
        self._not_before = 0.0
        self._waited_in_vain: float | None = None

    def send(
        self,
        operation: str,
        method: str,
        key: str | None = None,
        *,
        query: Sequence[tuple[str, str]] = (),
        headers: Mapping[str, str] | None = None,
        body: bytes | memoryview | FileBody = b"",
        payload: str = UNSIGNED,
        condition: str = "",
        expected: frozenset[int] = frozenset(),
    ) -> Reply:
        """The answer to one request, a success or of an ``expected`` status; its body is still to be read.

        Args:
            headers: by lower-case name.
            payload: the sha256 (hex) of the body, where the caller knows it.
            condition: how a message calls the request's condition.
        Raises:
            SpillwayError: what the last answer means, where trying again did not help.
        """
        patience = self._patience()
        while True:
            try:
                reply = self._exchange(method, key, query, headers or {}, body, payload)
                if reply.status < 300 or reply.status in expected:
                    self._waited_in_vain = None
                    patience.answered()
                    return reply
                answer = refusal(operation, reply.status, reply.headers, b"".join(reply.chunks()))
            except Broken as problem:
                self._pause_after(problem, patience)
                continue
            moved = self._moved(answer)
            if answer.busy:
                pause = patience.after_busy(self.store, answer.seen, answer.retry_after_seconds)
            elif answer.away:
                pause = patience.after_away(self.store, answer.seen)
            else:
                pause = patience.after_failure() if moved or answer.passes else None
            if pause is None:
                waited = self._waited(patience) if answer.away else patience.waited_seconds
                self.refuse(answer, key or "", condition, waited_seconds=waited)
            if answer.busy:
                self._not_before = max(self._not_before, self._clock() + pause)
            elif not moved:
                self._sleep(pause)

    def read(self, operation: str, method: str, key: str | None = None, **wanted: object) -> tuple[Reply, bytes]:
        """The answer with its whole body, begun again where that breaks off."""
        patience = self._patience()
        while True:
            reply = self.send(operation, method, key, **wanted)  # type: ignore[arg-type]
            try:
                return reply, b"".join(reply.chunks())
            except Broken as problem:
                self._pause_after(problem, patience)

    def check_bucket(self) -> None:
        """Raise Missing where there is no such bucket: as the answer to HEAD has no body, a missing object looks alike.

        Whoever may use some keys of it only may not ask, and was told of the object by a server that has the bucket.
        """
        try:
            self.send("HeadBucket", "HEAD").close()
        except AccessDenied:
            return
        except Missing as problem:
            raise Missing("bucket", self.bucket, self.store, fix="create it, or correct the bucket's name") from problem

    def _patience(self) -> Patience:
        away_seconds = self._endpoint.away_seconds if self._waited_in_vain is None else 0.0
        return Patience(self._endpoint.attempts, self._clock, away_seconds=away_seconds)

    def _pause_after(self, problem: Broken, patience: Patience) -> None:
        pause = patience.after_away(self.store, str(problem))
        if pause is None:
            raise Unreachable(self.store, str(problem), waited_seconds=self._waited(patience)) from problem
        self._sleep(pause)

    def _waited(self, patience: Patience) -> float | None:
        """For how long the server that is away was waited for in vain, by this request or by one before it."""
        if patience.waited_seconds is not None:
            self._waited_in_vain = patience.waited_seconds
        return self._waited_in_vain

    def refuse(self, answer: Refusal, key: str, condition: str, *, waited_seconds: float | None = None) -> NoReturn:
        """Raise what the answer means."""
        raise_typed(
            answer,
            self.store,
            bucket=self.bucket,
            key=key,
            condition=condition,
            check_keys=self.check_keys,
            waited_seconds=waited_seconds,
        )

    def _exchange(
        self,
        method: str,
        key: str | None,
        query: Sequence[tuple[str, str]],
        headers: Mapping[str, str],
        body: bytes | memoryview | FileBody,
        payload: str,
    ) -> Reply:
        self._wait_for_turn()
        place = self._place
        # The path of a bucket with a host of its own is empty, that of a request never is.
        target = place.path or "/" if key is None else f"{place.path}/{quote(key, safe='/~')}"
        if query:
            target += "?" + "&".join(f"{name}={quote(value, safe='-_.~')}" for name, value in query)
        plain = {"host": place.host, **headers}
        signed = place.signer.sign(method, target, plain, payload=payload)
        if body or method == "PUT":
            length = body.size_bytes if isinstance(body, FileBody) else len(body)
            signed = {**signed, "content-length": str(length)}
        try:
            return place.session.send(method, target, signed, body)
        except ssl.SSLCertVerificationError as problem:
            text = f"its certificate cannot be verified ({problem.verify_message or problem}); {FIX_CERTIFICATE}"
            raise ConfigError(self.store, "", text) from problem

    @cached_property
    def _place(self) -> _Place:
        return _Place.find(self._endpoint, self.bucket)

    def _moved(self, answer: Refusal) -> bool:
        """Whether the bucket turns out to be in another region, where the next try will find it."""
        region = answer.headers.get("x-amz-bucket-region", "")
        elsewhere = answer.code in _MISDIRECTED or answer.status in (301, 307)
        if not elsewhere or not region or region == self._endpoint.region:
            return False
        self._endpoint = replace(self._endpoint, region=region)
        self.__dict__.pop("_place", None)
        return True

    def _wait_for_turn(self) -> None:
        pause = self._not_before - self._clock()
        if pause > 0:
            # Not all at once when the time has come.
            self._sleep(pause * random.uniform(1.0, 1.25))


@dataclass(frozen=True, slots=True, kw_only=True)
class _Place:
    """A bucket at its present address."""

    origin_url: str
    host: str
    path: str
    signer: Signer
    session: HttpPool | ProxiedSession

    @classmethod
    def find(cls, endpoint: S3Endpoint, bucket: str) -> _Place:
        url = endpoint.bucket_url(quote(bucket, safe=""))
        parts = urlsplit(url)
        origin = Origin.of(url)
        origin_url = f"{parts.scheme}://{parts.netloc}"
        return cls(
            origin_url=origin_url,
            host=_host_header(origin),
            path=parts.path,
            signer=Signer(endpoint.access_key, endpoint.secret_key, endpoint.session_token, endpoint.region),
            session=_session(endpoint, origin, origin_url),
        )


def _host_header(origin: Origin) -> str:
    host = f"[{origin.host}]" if ":" in origin.host else origin.host
    usual = 443 if origin.tls else 80
    return host if origin.port == usual else f"{host}:{origin.port}"


def _session(endpoint: S3Endpoint, origin: Origin, origin_url: str) -> HttpPool | ProxiedSession:
    try:
        tls = ssl.create_default_context(cafile=_authorities(endpoint)) if origin.tls else None
    except OSError as problem:
        text = f"the certificates in '{_authorities(endpoint)}' cannot be read: {problem}"
        raise ConfigError("connection", origin_url, text) from problem
    proxies = environment_proxies(origin_url)
    if origin_url.partition(":")[0] in proxies:
        from spillway.stores.proxied import ProxiedSession

        timeouts = (endpoint.connect_seconds, endpoint.timeout_seconds)
        return ProxiedSession(origin_url, proxies, verify=_authorities(endpoint), timeouts=timeouts)
    return HttpPool(
        origin,
        tls=tls,
        connect_seconds=endpoint.connect_seconds,
        silence_seconds=endpoint.timeout_seconds,
    )


def _authorities(endpoint: S3Endpoint) -> str:
    """The file of certificate authorities, found as boto3 finds it."""
    from botocore.httpsession import get_cert_path

    return str(endpoint.ca_file or os.environ.get("AWS_CA_BUNDLE") or get_cert_path(True))
