"""The machines of a sandbox's site, through the API of their provider."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from datetime import datetime
from http.client import HTTPConnection, HTTPException
from typing import Any

from spillway.clouds.base import Machine, NodeGroup
from spillway.errors import AccessDenied, Missing, PoolRefused, Unreachable
from spillway.model import ScalableNode

_SECONDS = 10.0


class SandboxMachines:
    """A ``NodeProvider``; ``pool`` is how messages call it, ``group`` how the provider does."""

    def __init__(self, *, pool: str, group: str, host: str, port: int, token: str) -> None:
        self._pool, self._path = pool, f"/pools/{group}"
        self._address, self._headers = (host, port), {"Authorization": f"Bearer {token}"}
        self._endpoint = f"the provider of machines {host}:{port}"

    def group(self, nodes: Sequence[ScalableNode]) -> NodeGroup:
        found = self._asked("GET")
        return NodeGroup(
            wanted=found["wanted"],
            machines=tuple(
                Machine(name=machine["name"], ordered_at=datetime.fromisoformat(machine["ordered_at"]))
                for machine in found["machines"]
            ),
        )

    def resize(self, wanted: int, *, kept: Sequence[ScalableNode], leaving: Sequence[str]) -> None:
        self._asked("PUT", {"nodes": wanted, "terminate": list(leaving)})

    def _asked(self, method: str, body: Mapping[str, Any] | None = None) -> Any:
        connection = HTTPConnection(*self._address, timeout=_SECONDS)
        try:
            connection.request(method, self._path, None if body is None else json.dumps(body), self._headers)
            answer = connection.getresponse()
            status, document = answer.status, json.loads(answer.read())
        except (OSError, HTTPException, ValueError) as problem:
            raise Unreachable(self._endpoint, f"{method} {self._path}: {problem}") from problem
        finally:
            connection.close()
        match status:
            case 200:
                return document
            case 401:
                raise AccessDenied(self._endpoint, document["message"], fix="renew the password of its Connection")
            case 404:
                raise Missing("pool of machines", self._path, self._endpoint, fix=document["message"])
            case 409:
                raise PoolRefused(
                    self._pool, f"{(body or {}).get('nodes')} nodes", document["message"], fix="raise the quota"
                )
        raise Unreachable(self._endpoint, f"{method} {self._path}: {status} {document}")
