"""Requests to a server that is behind a proxy of the environment (``HTTPS_PROXY``): botocore's HTTP session."""

from __future__ import annotations

import ssl
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from botocore.awsrequest import AWSRequest
from botocore.exceptions import BotoCoreError
from botocore.httpsession import URLLib3Session

from spillway.errors import SpillwayError
from spillway.errors.counts import counted
from spillway.stores.http_pool import CHUNK_BYTES, Broken


class ProxiedSession:
    """The same as an ``HttpPool`` to whoever sends; several times its cost, but it knows every kind of proxy."""

    def __init__(
        self, origin_url: str, proxies: Mapping[str, str], *, verify: str | bool, timeouts: tuple[float, float]
    ) -> None:
        self._origin_url = origin_url
        # Its stubs know neither a file of authorities nor the two timeouts, for connecting and for silence.
        limits: dict[str, Any] = {"verify": verify, "timeout": timeouts}
        self._session = URLLib3Session(proxies=dict(proxies), max_pool_connections=64, **limits)

    def send(
        self,
        method: str,
        target: str,
        headers: Mapping[str, str],
        body: bytes | memoryview | Iterable[bytes],
        *,
        again: bool = False,
    ) -> ProxiedReply:
        """One exchange, whether or not it might be sent again.

        Raises:
            Broken: whether the server acted on the request is not known.
            ssl.SSLCertVerificationError: the certificate of the server, or of the proxy, does not hold.
            SpillwayError: what the body raised while it was read.
        """
        data = bytes(body) if isinstance(body, bytes | memoryview) else iter(body)
        request = AWSRequest(
            method=method, url=self._origin_url + target, headers=dict(headers), data=data, stream_output=True
        )
        try:
            return ProxiedReply(self._session.send(request.prepare()))
        except BotoCoreError as problem:
            if (cause := _cause(problem)) is not None:
                raise cause from None
            raise Broken(str(problem)) from problem


def _cause(problem: BaseException) -> ssl.SSLCertVerificationError | SpillwayError | None:
    """The error of the TLS library, or of the body, that others were made of."""
    cause: BaseException | None = problem
    while cause is not None and not isinstance(cause, (ssl.SSLCertVerificationError, SpillwayError)):
        cause = cause.__context__
    return cause


class ProxiedReply:
    """A ``Reply``. Where only the end of its connection ends a body, a cut one looks whole, so it is ``Broken``."""

    def __init__(self, answer: Any) -> None:
        self._raw = answer.raw
        self.status: int = answer.status_code
        self.headers = {name.lower(): value for name, value in answer.headers.items()}
        # Also what http.client makes of headers that are cut off: it takes their end for that of the headers.
        if self.status < 300 and self.status != 204 and not self._raw.chunked and "content-length" not in self.headers:
            self.close()
            raise Broken("its answer does not say how long it is")

    def chunks(self, size: int = CHUNK_BYTES) -> Iterator[bytes]:
        from urllib3.exceptions import HTTPError

        try:
            yield from self._raw.stream(size, decode_content=False)
        except (HTTPError, OSError) as problem:
            raise Broken(f"the body broke off: {problem}") from problem
        finally:
            self.close()
        # botocore's session lets a short body pass.
        if self._raw.length_remaining:
            raise Broken(f"the body broke off: {counted(self._raw.length_remaining, 'byte')} missing")

    def close(self) -> None:
        # A body that was read to its end has given its connection back already.
        self._raw.close()
        self._raw.release_conn()
