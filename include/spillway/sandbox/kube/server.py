"""The API server's HTTP side: authentication, routing, and the answer of each verb."""

from __future__ import annotations

import logging
import sqlite3
from collections.abc import Mapping

from aiohttp import web

from spillway.sandbox.kube import requests, rights, status
from spillway.sandbox.kube.discovery import discover
from spillway.sandbox.kube.node_proxy import NodeProxy
from spillway.sandbox.kube.objects import Objects
from spillway.sandbox.kube.patches import merge
from spillway.sandbox.kube.requests import Target
from spillway.sandbox.kube.resources import PODS, SERVICES, Object, name_of
from spillway.sandbox.kube.status import ApiError, bad_request
from spillway.sandbox.kube.tables import table
from spillway.sandbox.kube.watches import WatchRequest, watch

log = logging.getLogger(__name__)

_OPEN_PATHS = frozenset({"/healthz", "/livez", "/readyz"})
_WATCH_SECONDS = 1800
_MAX_BODY_BYTES = 4 << 20


class ApiServer:
    """Answers every request; a failure of any kind is a Status body."""

    def __init__(self, objects: Objects, tokens: Mapping[str, str], nodes: NodeProxy) -> None:
        self._objects, self._tokens, self._nodes = objects, tokens, nodes
        self._store = objects.store

    def application(self) -> web.Application:
        application = web.Application(client_max_size=_MAX_BODY_BYTES)
        application.router.add_route("*", "/{path:.*}", self._handle)
        return application

    async def _handle(self, request: web.Request) -> web.StreamResponse:
        if request.path in _OPEN_PATHS:
            return web.Response(text="ok")
        try:
            return await self._allowed(request, self._user(request))
        except ApiError as problem:
            refusal = problem
        except (ConnectionError, web.HTTPException):
            raise
        except (OSError, sqlite3.Error) as problem:
            refusal = ApiError(500, "InternalError", f"the state of this API server can't be written: {problem}")
        except (AttributeError, IndexError, KeyError, TypeError, ValueError) as problem:
            # The objects of clients are used as they come: one of another shape than its kind has fails like this.
            log.warning("%s %s was not understood", request.method, request.path, exc_info=True)
            refusal = bad_request(f"the object is not of the shape that its kind has: {problem!r}")
        return web.json_response(refusal.body(), status=refusal.code)

    def _user(self, request: web.Request) -> str:
        scheme, _, token = request.headers.get("Authorization", "").partition(" ")
        if scheme.lower() != "bearer" or token not in self._tokens:
            raise ApiError(401, "Unauthorized", "Unauthorized")
        return self._tokens[token]

    async def _allowed(self, request: web.Request, user: str) -> web.StreamResponse:
        if request.method == "POST" and request.path == rights.REVIEWS:
            return web.json_response(rights.review(user, await requests.body(request)), status=201)
        rights.check(user, request.method)
        return await self._route(request)

    async def _route(self, request: web.Request) -> web.StreamResponse:
        parts = [part for part in request.path.split("/") if part]
        document = discover(parts)
        if document is not None:
            return web.json_response(document)
        target = requests.parse_path(parts)
        match request.method, target.name, target.subresource:
            case "GET", _, "log":
                return await self._nodes.logs(request, self._get(target), request.query)
            case "GET", None, _ if request.query.get("watch") in requests.TRUE:
                return await self._watch(request, target)
            case "GET", None, _:
                return self._list(request, target)
            case "GET", _, _:
                return self._answer(request, target, self._get(target))
            case "POST", None, _:
                return self._create(request, target, await requests.body(request))
            case "POST", _, "binding":
                return self._bind(target, await requests.body(request))
            case "POST", _, "eviction":
                return self._evict(target, await requests.body(request))
            case "PUT", str(), _:
                return self._replace(target, await requests.body(request))
            case "PATCH", str(), _:
                strategic = requests.is_strategic(request)
                return self._patch(target, await requests.body(request), strategic=strategic)
            case "DELETE", str(), None:
                return self._delete(target, await requests.delete_options(request))
        raise ApiError(405, "MethodNotAllowed", "the server does not allow this method on the requested resource")

    def _get(self, target: Target) -> Object:
        return self._store.get(target.resource, target.namespace, str(target.name))

    def _answer(self, request: web.Request, target: Target, obj: Object) -> web.Response:
        if requests.wants_table(request):
            obj = table(target.resource, [obj], self._objects.clock())
        return web.json_response(obj)

    def _list(self, request: web.Request, target: Target) -> web.Response:
        items = self._store.list(target.resource, target.namespace, *requests.matchers(request))
        if requests.wants_table(request):
            listed = table(target.resource, items, self._objects.clock())
        else:
            version = target.resource.group_version
            listed = {"kind": f"{target.resource.kind}List", "apiVersion": version, "items": items}
        return web.json_response({**listed, "metadata": {"resourceVersion": str(self._store.revision)}})

    async def _watch(self, request: web.Request, target: Target) -> web.StreamResponse:
        def shown(obj: Object) -> Object:
            return table(target.resource, [obj], self._objects.clock()) if requests.wants_table(request) else obj

        asked = WatchRequest(
            resource=target.resource,
            namespace=target.namespace,
            matchers=requests.matchers(request),
            since=requests.revision(request),
            marks_initial=request.query.get("sendInitialEvents") in requests.TRUE,
            timeout_seconds=float(request.query.get("timeoutSeconds") or _WATCH_SECONDS),
            shown=shown,
        )
        response = web.StreamResponse(headers={"Content-Type": "application/json"})
        await response.prepare(request)
        async for line in watch(self._store, asked):
            if request.transport is None or request.transport.is_closing():
                break
            if line:
                await response.write(line)
        return response

    # The methods below change objects. They are not coroutines on purpose: between reading the object that a request
    # names and storing its successor no other request may run.

    def _create(self, request: web.Request, target: Target, body: Object) -> web.Response:
        dry_run = request.query.get("dryRun") == "All"
        created = self._objects.create(target.resource, target.namespace, body, dry_run=dry_run)
        return web.json_response(created, status=201)

    def _replace(self, target: Target, body: Object) -> web.Response:
        only_status = target.subresource == "status"
        return web.json_response(
            self._objects.replace(target.resource, self._get(target), body, only_status=only_status)
        )

    def _patch(self, target: Target, patch: Object, *, strategic: bool) -> web.Response:
        return self._replace(target, merge(self._get(target), patch, strategic=strategic))

    def _bind(self, target: Target, binding: Object) -> web.Response:
        self._objects.bind(self._get(target), binding["target"]["name"])
        return web.json_response(status.success(201), status=201)

    def _evict(self, target: Target, eviction: Object) -> web.Response:
        options = eviction.get("deleteOptions") or {}
        self._objects.disrupt(self._get(target), "EvictionByEvictionAPI", "Eviction API: evicting", options)
        return web.json_response(status.success(201), status=201)

    def _delete(self, target: Target, options: Object) -> web.Response:
        gone = self._objects.delete(target.resource, self._get(target), options)
        if target.resource in {PODS, SERVICES}:
            return web.json_response(gone)
        details = {"name": name_of(gone), "kind": target.resource.plural, "uid": gone["metadata"]["uid"]}
        return web.json_response(status.success(200, **details))
