"""An asynchronous client of any Kubernetes API server: requests, lists that go on as watches, and patience."""

from __future__ import annotations

import asyncio
import base64
import json
import logging
import ssl
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import aiohttp
import yaml

from spillway.errors import SandboxError

log = logging.getLogger(__name__)

Object = dict[str, Any]

_BACK_OFF_SECONDS = (0.5, 1, 2, 4, 8)
_GONE = frozenset({404, 409})
_REQUEST_SECONDS = 20
_WATCH_SECONDS = 240
_MAX_LINE_BYTES = 8 << 20


class ApiFailure(Exception):
    """The server refused a request."""

    def __init__(self, what: str, status: int, message: str) -> None:
        super().__init__(f"{what}: {status} {message}")
        self.status = status


UNAVAILABLE = (aiohttp.ClientError, TimeoutError, ConnectionError)
"""What a call raises while the server is away; trying again later helps."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Access:
    """Where an API server is and how to be let in."""

    server: str
    token: str | None = field(repr=False)
    tls: ssl.SSLContext


def read_kubeconfig(path: Path) -> Access:
    """The current context of a kubeconfig file; raises SandboxError where it can't be used."""
    try:
        document = yaml.safe_load(path.read_text())
        context = _named(document["contexts"], document["current-context"])["context"]
        cluster = _named(document["clusters"], context["cluster"])["cluster"]
        user = _named(document["users"], context["user"])["user"]
        authority = cluster.get("certificate-authority-data")
        tls = ssl.create_default_context(
            cafile=cluster.get("certificate-authority"),
            cadata=base64.b64decode(authority).decode() if authority else None,
        )
        if "client-certificate" in user:
            tls.load_cert_chain(user["client-certificate"], user["client-key"])
        return Access(server=cluster["server"].rstrip("/"), token=user.get("token"), tls=tls)
    except (OSError, KeyError, TypeError, ValueError, StopIteration, yaml.YAMLError) as problem:
        raise SandboxError(f"{path}: expected a kubeconfig with a current context, got {problem!r}") from problem


class ApiClient:
    """Calls raise ``ApiFailure`` for a refusal and one of ``UNAVAILABLE`` while the server is away."""

    def __init__(self, access: Access) -> None:
        self._access = access
        headers = {"Authorization": f"Bearer {access.token}"} if access.token else {}
        self._session = aiohttp.ClientSession(
            headers=headers,
            connector=aiohttp.TCPConnector(ssl=access.tls),
            timeout=aiohttp.ClientTimeout(total=_REQUEST_SECONDS),
        )

    async def find(self, path: str) -> Object | None:
        """The object, or None where there is none."""
        try:
            return await self.send("GET", path)
        except ApiFailure as problem:
            if problem.status == 404:
                return None
            raise

    async def apply(self, collection: str, obj: Object) -> None:
        """Create the object, or bring what is given of it up to date."""
        try:
            await self.send("PATCH", f"{collection}/{obj['metadata']['name']}", obj)
        except ApiFailure as problem:
            if problem.status != 404:
                raise
            await self.send("POST", collection, obj)

    async def send(
        self, method: str, path: str, body: Object | None = None, *, query: Mapping[str, str] | None = None
    ) -> Object:
        """The decoded answer; a PATCH is a strategic merge."""
        data = None if body is None else json.dumps(body)
        kind = "strategic-merge-patch+json" if method == "PATCH" else "json"
        headers = {"Content-Type": f"application/{kind}"}
        url = self._access.server + path
        async with self._session.request(method, url, data=data, headers=headers, params=query) as answer:
            content = await answer.read()
            try:
                document: Object = json.loads(content or b"{}")
            except ValueError as problem:
                raise ApiFailure(f"{method} {path}", answer.status, f"no JSON: {content[:200]!r}") from problem
            if answer.status >= 400:
                raise ApiFailure(f"{method} {path}", answer.status, str(document.get("message", "")))
            return document

    async def follow(self, path: str, query: Mapping[str, str]) -> AsyncIterator[tuple[str, Any]]:
        """``("LIST", items)``, then every change as ``(type, object)``, until the watch can't go on; then list again.

        Ends without an error where the server ended the watch or forgot the revision.
        """
        listed = await self.send("GET", path, query=query)
        yield "LIST", listed["items"]
        revision = listed["metadata"]["resourceVersion"]
        timeout = aiohttp.ClientTimeout(total=_WATCH_SECONDS + 30, sock_connect=5)
        while True:
            watching = {**query, "watch": "true", "resourceVersion": revision, "timeoutSeconds": str(_WATCH_SECONDS)}
            url = self._access.server + path
            async with self._session.get(url, params=watching, timeout=timeout, read_bufsize=_MAX_LINE_BYTES) as answer:
                if answer.status != 200:
                    return
                async for line in answer.content:
                    try:
                        event = json.loads(line)
                    except ValueError:  # a server that was killed inside a line
                        return
                    if event["type"] == "ERROR":
                        return
                    revision = event["object"]["metadata"]["resourceVersion"]
                    yield event["type"], event["object"]

    async def close(self) -> None:
        await self._session.close()


async def persist(call: Callable[[], Coroutine[Any, Any, Any]]) -> None:
    """Call until the API server has answered; that the object is gone or another one is an answer too."""
    for pause in back_off():
        try:
            await call()
            return
        except ApiFailure as problem:
            if problem.status in _GONE:
                return
            log.warning("the API server refused: %s", problem)
        except UNAVAILABLE as problem:
            log.warning("the API server is away: %r", problem)
        await asyncio.sleep(pause)


def back_off() -> Iterator[float]:
    """Seconds to wait before each next try, for ever."""
    yield from _BACK_OFF_SECONDS
    while True:
        yield _BACK_OFF_SECONDS[-1]


def _named(items: list[Object], name: str) -> Object:
    return next(item for item in items if item["name"] == name)
