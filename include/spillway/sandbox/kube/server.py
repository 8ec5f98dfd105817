"""The API server's HTTP side: authentication, routing, and the answer of each verb."""

from __future__ import annotations

import copy
import logging
from collections.abc import Mapping
from typing import Any

from aiohttp import web

from spillway.sandbox.kube import patches, requests, status
from spillway.sandbox.kube.discovery import discover
from spillway.sandbox.kube.disruption import violated_budget
from spillway.sandbox.kube.node_proxy import NodeProxy
from spillway.sandbox.kube.objects import Objects
from spillway.sandbox.kube.requests import Target
from spillway.sandbox.kube.resources import NAMESPACES, PODS, SERVICES, Object, name_of
from spillway.sandbox.kube.status import ApiError, bad_request
from spillway.sandbox.kube.tables import table
from spillway.sandbox.kube.watches import WatchRequest, watch

log = logging.getLogger(__name__)

_OPEN_PATHS = frozenset({"/healthz", "/livez", "/readyz"})
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
            self._authenticate(request)
            return await self._route(request)
        except ApiError as problem:
            return web.json_response(problem.body(), status=problem.code)
        except (ConnectionError, web.HTTPException):
            raise
        except OSError as problem:
            failure = ApiError(500, "InternalError", f"the journal of this API server can't be written: {problem}")
            return web.json_response(failure.body(), status=failure.code)
        except (AttributeError, IndexError, KeyError, TypeError, ValueError) as problem:
            # The objects of clients are used as they come: one of another shape than its kind has fails like this.
            log.warning("%s %s was not understood", request.method, request.path, exc_info=True)
            answer = bad_request(f"the object is not of the shape that its kind has: {problem!r}")
            return web.json_response(answer.body(), status=answer.code)

    def _authenticate(self, request: web.Request) -> None:
        scheme, _, token = request.headers.get("Authorization", "").partition(" ")
        if scheme.lower() != "bearer" or token not in self._tokens:
            raise ApiError(401, "Unauthorized", "Unauthorized")

    async def _route(self, request: web.Request) -> web.StreamResponse:
        parts = [part for part in request.path.split("/") if part]
        document = discover(parts)
        if document is not None:
            return web.json_response(document)
        target = requests.parse_path(parts)
        match request.method, target.name, target.subresource:
            case "GET", _, "log":
                return await self._nodes.logs(request, self._get(target), request.query)
            case "GET", _, _ if requests.is_true(request, "watch"):
                return await self._watch(request, target)
            case "GET", None, _:
                return self._list(request, target)
            case "GET", _, _:
                return self._answer(request, target, self._get(target))
            case "POST", None, _:
                created = self._objects.create(
                    target.resource,
                    target.namespace,
                    await requests.object_body(request),
                    dry_run=requests.is_dry_run(request),
                )
                return self._answer(request, target, created, code=201)
            case "POST", _, "binding":
                return self._bind(target, await requests.object_body(request))
            case "POST", _, "eviction":
                return self._evict(target, await requests.object_body(request))
            case "PUT", str(), _:
                return self._replace(request, target, await requests.object_body(request))
            case "PATCH", str(), _:
                return self._patch(request, target, await requests.body(request))
            case "DELETE", None, _:
                return self._delete_all(request, target, await requests.delete_options(request))
            case "DELETE", _, None:
                return self._delete(target, await requests.delete_options(request))
        raise ApiError(405, "MethodNotAllowed", "the server does not allow this method on the requested resource")

    def _get(self, target: Target) -> Object:
        return self._store.get(target.resource, target.namespace, str(target.name))

    def _answer(self, request: web.Request, target: Target, obj: Object, *, code: int = 200) -> web.Response:
        if requests.wants_table(request):
            obj = table(target.resource, [obj], self._store.revision, self._objects.clock())
        return web.json_response(obj, status=code)

    def _list(self, request: web.Request, target: Target) -> web.Response:
        items = self._store.list(target.resource, target.namespace, *requests.matchers(request, target))
        if requests.wants_table(request):
            return web.json_response(table(target.resource, items, self._store.revision, self._objects.clock()))
        return web.json_response(self._collection(target, items))

    def _collection(self, target: Target, items: list[Object]) -> Object:
        return {
            "kind": f"{target.resource.kind}List",
            "apiVersion": target.resource.group_version,
            "metadata": {"resourceVersion": str(self._store.revision)},
            "items": items,
        }

    async def _watch(self, request: web.Request, target: Target) -> web.StreamResponse:
        def shown(obj: Object) -> Object:
            if not requests.wants_table(request):
                return obj
            return table(target.resource, [obj], self._store.revision, self._objects.clock())

        asked = WatchRequest(
            resource=target.resource,
            namespace=target.namespace,
            matchers=requests.matchers(request, target),
            since=requests.revision(request),
            send_initial=requests.is_true(request, "sendInitialEvents"),
            bookmarks=requests.is_true(request, "allowWatchBookmarks"),
            timeout_seconds=float(request.query.get("timeoutSeconds") or 1800),
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

    def _replace(self, request: web.Request, target: Target, body: Object) -> web.Response:
        new = self._objects.replace(
            target.resource,
            self._get(target),
            body,
            only_status=target.subresource == "status",
            dry_run=requests.is_dry_run(request),
        )
        return self._answer(request, target, new)

    def _patch(self, request: web.Request, target: Target, patch: Any) -> web.Response:
        kind = request.content_type
        resource, namespace, name = target.resource, target.namespace, str(target.name)
        if "apply-patch" in kind and self._store.find(resource, namespace, name) is None:
            created = self._objects.create(resource, namespace, patch, dry_run=requests.is_dry_run(request))
            return self._answer(request, target, created, code=201)
        old = copy.deepcopy(self._get(target))
        if kind == "application/json-patch+json":
            new = patches.json_patch(old, patch)
        elif kind == "application/merge-patch+json":
            new = patches.merge(old, patch)
        else:
            new = patches.strategic(old, patch)
        return self._replace(request, target, new)

    def _bind(self, target: Target, binding: Object) -> web.Response:
        self._objects.bind(self._get(target), binding["target"]["name"])
        return web.json_response(status.success(201), status=201)

    def _evict(self, target: Target, eviction: Object) -> web.Response:
        pod = self._get(target)
        forbidden = violated_budget(self._store, pod)
        if forbidden:
            message = "Cannot evict pod as it would violate the pod's disruption budget."
            cause = {"reason": "DisruptionBudget", "message": forbidden}
            raise ApiError(429, "TooManyRequests", message, causes=[cause], retryAfterSeconds=10)
        options = eviction.get("deleteOptions") or {}
        self._objects.disrupt(pod, "EvictionByEvictionAPI", "Eviction API: evicting", options)
        return web.json_response(status.success(201), status=201)

    def _delete(self, target: Target, options: Object) -> web.Response:
        gone = self._objects.delete(target.resource, self._get(target), options)
        if target.resource in {PODS, NAMESPACES, SERVICES}:
            return web.json_response(gone)
        details = {"name": name_of(gone), "kind": target.resource.plural, "uid": gone["metadata"]["uid"]}
        return web.json_response(status.success(200, **details))

    def _delete_all(self, request: web.Request, target: Target, options: Object) -> web.Response:
        items = self._store.list(target.resource, target.namespace, *requests.matchers(request, target))
        for obj in items:
            self._objects.delete(target.resource, obj, options)
        return web.json_response(self._collection(target, items))
