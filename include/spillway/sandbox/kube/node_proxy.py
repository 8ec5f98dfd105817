"""Pod logs, fetched from the node agent of the pod."""

from __future__ import annotations

import ssl
from collections.abc import Mapping

import aiohttp
from aiohttp import web

from spillway.sandbox.kube.resources import NODES, Object, name_of, namespace_of
from spillway.sandbox.kube.status import ApiError, bad_request
from spillway.sandbox.kube.store import Store


class NodeProxy:
    """Calls node agents over TLS with the client certificate that they expect."""

    def __init__(self, store: Store, tls: ssl.SSLContext) -> None:
        self._store, self._tls = store, tls

    async def logs(self, request: web.Request, pod: Object, query: Mapping[str, str]) -> web.StreamResponse:
        """The container's log as the agent streams it, empty before the pod has a node; raises ApiError."""
        containers = [c["name"] for c in pod["spec"]["containers"] + (pod["spec"].get("initContainers") or [])]
        container = query.get("container") or containers[0]
        if container not in containers:
            raise bad_request(f"container {container} is not valid for pod {name_of(pod)}")
        if not pod["spec"].get("nodeName"):
            return web.Response(text="")
        url = f"{self._address(pod)}/containerLogs/{namespace_of(pod)}/{name_of(pod)}/{container}"
        parameters = {key: value for key, value in query.items() if key != "container"}
        response = web.StreamResponse(headers={"Content-Type": "text/plain"})
        timeout = aiohttp.ClientTimeout(total=None, sock_connect=5)
        try:
            async with (
                aiohttp.ClientSession(timeout=timeout) as session,
                session.get(url, params=parameters, ssl=self._tls) as answer,
            ):
                if answer.status != 200:
                    reason = "NotFound" if answer.status == 404 else "BadRequest"
                    raise ApiError(answer.status, reason, await answer.text())
                await response.prepare(request)
                async for chunk in answer.content.iter_any():
                    await response.write(chunk)
        except aiohttp.ClientError as problem:
            if not response.prepared:
                raise ApiError(500, "InternalError", f'Get "{url}": {problem}') from problem
            if request.transport is not None:
                request.transport.abort()  # so that a reader can't take a log that broke off for a whole one
        return response

    def _address(self, pod: Object) -> str:
        node = self._store.get(NODES, None, pod["spec"]["nodeName"])
        addresses = node.get("status", {}).get("addresses") or []
        host = next((a["address"] for a in addresses if a["type"] == "InternalIP"), None)
        port = node.get("status", {}).get("daemonEndpoints", {}).get("kubeletEndpoint", {}).get("Port")
        if host is None or port is None:
            raise ApiError(500, "InternalError", f"node {name_of(node)} has told no address to fetch logs from")
        return f"https://{host}:{port}"
