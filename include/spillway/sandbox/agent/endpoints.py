"""What the agent serves on its own port: container logs for the API server, and drills."""

from __future__ import annotations

import ssl
from datetime import datetime
from pathlib import Path

from aiohttp import web

from spillway.sandbox.agent.agent import Agent
from spillway.sandbox.agent.logs import LogRequest, read_log, since_seconds
from spillway.sandbox.kube.requests import TRUE


async def serve(agent: Agent, address: str, port: int, tls: ssl.SSLContext) -> web.AppRunner:
    """Start serving; only callers with a certificate of the cluster's authority are let in."""
    endpoints = _Endpoints(agent)
    application = web.Application()
    application.router.add_get("/containerLogs/{namespace}/{pod}/{container}", endpoints.logs)
    application.router.add_post("/evict/{namespace}/{pod}", endpoints.evict)
    application.router.add_post("/shutdown", endpoints.shut_down)
    runner = web.AppRunner(application, access_log=None, shutdown_timeout=1)
    await runner.setup()
    await web.TCPSite(runner, address, port, ssl_context=tls).start()
    return runner


def server_tls(certificate: Path, key: Path, client_ca: Path) -> ssl.SSLContext:
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cafile=client_ca)
    context.load_cert_chain(certificate, key)
    context.verify_mode = ssl.CERT_REQUIRED
    return context


class _Endpoints:
    def __init__(self, agent: Agent) -> None:
        self._agent = agent

    async def logs(self, request: web.Request) -> web.StreamResponse:
        uid = self._uid(request)
        name = request.match_info["container"]
        pod = self._agent.running(uid)
        container = pod.container(name) if pod else None
        file = self._agent.log_file(uid, name)
        if not file.exists() and container is not None and "waiting" in container.state:
            reason = container.state["waiting"]["reason"]
            text = f'container "{name}" in pod "{request.match_info["pod"]}" is waiting to start: {reason}'
            raise web.HTTPBadRequest(text=text)

        def is_over() -> bool:
            return container is None or pod is None or pod.over or "terminated" in container.state

        response = web.StreamResponse(headers={"Content-Type": "text/plain"})
        await response.prepare(request)
        async for chunk in read_log(file, _log_request(request), is_over):
            await response.write(chunk)
        return response

    async def evict(self, request: web.Request) -> web.Response:
        return web.json_response(await self._agent.evict(self._uid(request)))

    async def shut_down(self, _: web.Request) -> web.Response:
        return web.json_response(await self._agent.shut_down())

    def _uid(self, request: web.Request) -> str:
        pod = self._agent.find(request.match_info["namespace"], request.match_info["pod"])
        if pod is None:
            raise web.HTTPNotFound(text=f"pod {request.match_info['pod']} is not on this node")
        return str(pod["metadata"]["uid"])


def _log_request(request: web.Request) -> LogRequest:
    query = request.query
    since = None
    if "sinceSeconds" in query:
        since = since_seconds(int(query["sinceSeconds"]))
    elif "sinceTime" in query:
        since = datetime.fromisoformat(query["sinceTime"].replace("Z", "+00:00"))
    return LogRequest(
        follow=query.get("follow") in TRUE,
        timestamps=query.get("timestamps") in TRUE,
        since=since,
        tail=int(query["tailLines"]) if "tailLines" in query else None,
        limit_bytes=int(query["limitBytes"]) if "limitBytes" in query else None,
    )
