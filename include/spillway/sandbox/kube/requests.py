"""A request to the API server, decoded."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from aiohttp import web

from spillway.sandbox.kube.resources import RESOURCES, Object, Resource
from spillway.sandbox.kube.selectors import Matcher, field_matcher, label_matcher
from spillway.sandbox.kube.status import ApiError, bad_request, no_such_path

TRUE = frozenset({"1", "t", "T", "TRUE", "true", "True"})
"""As Go parses them: the Python client sends ``watch=True``."""
_PATCHES = {"application/merge-patch+json": False, "application/strategic-merge-patch+json": True}
"""The kinds of patches that are served, and whether they are strategic."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """What a path names: a collection where ``name`` is None."""

    resource: Resource
    namespace: str | None
    name: str | None
    subresource: str | None


def parse_path(parts: list[str]) -> Target:
    """``/api/v1/namespaces/NS/pods/NAME/log`` and its like; raises ApiError 404 for what is not served."""
    root = 2 if parts[:1] == ["api"] else 3
    version, rest = "/".join(parts[1:root]), parts[root:]
    namespace = None
    if rest[:1] == ["namespaces"] and len(rest) >= 3 and (version, rest[2]) in RESOURCES:
        namespace, rest = rest[1], rest[2:]
    plural, name, subresource = [*rest, None, None, None][:3]
    resource = RESOURCES.get((version, str(plural)))
    if resource is None or parts[0] not in {"api", "apis"} or len(rest) > 3:
        raise no_such_path()
    misplaced = (name is not None and namespace is None) if resource.namespaced else namespace is not None
    if misplaced or subresource not in {None, *resource.subresources}:
        raise no_such_path()
    return Target(resource=resource, namespace=namespace, name=name, subresource=subresource)


def wants_table(request: web.Request) -> bool:
    return request.method == "GET" and "as=Table" in request.headers.get("Accept", "")


def is_strategic(request: web.Request) -> bool:
    """Whether a patch merges lists item by item. Raises ApiError 415 for a kind of patch that is not served."""
    if request.content_type not in _PATCHES:
        message = f"patches of type {request.content_type} are not served; served are: {', '.join(_PATCHES)}"
        raise ApiError(415, "UnsupportedMediaType", message)
    return _PATCHES[request.content_type]


def matchers(request: web.Request) -> tuple[Matcher, ...]:
    """The selectors of a list or watch."""
    return label_matcher(request.query.get("labelSelector")), field_matcher(request.query.get("fieldSelector"))


def revision(request: web.Request) -> int | None:
    """The resourceVersion to start from; None where it is absent or 0, which mean "any"."""
    text = request.query.get("resourceVersion") or "0"
    if not text.isdigit():
        raise bad_request(f'resourceVersion: Invalid value: "{text}"')
    return int(text) or None


async def body(request: web.Request) -> Object:
    """The one object of the body, empty where there is no body. Raises ApiError 400 or 415."""
    content = await request.read()
    if "protobuf" in request.content_type:
        raise ApiError(415, "UnsupportedMediaType", "accepted media types include: application/json")
    try:
        decoded: Any = json.loads(content or b"{}")
    except ValueError as problem:
        raise bad_request(f"the body of the request is no JSON: {problem}") from problem
    if not isinstance(decoded, dict):
        raise bad_request(f"expected one object in the body, got {type(decoded).__name__}")
    return decoded


async def delete_options(request: web.Request) -> Object:
    """Options of the body, overlaid with the grace of the query."""
    options = await body(request)
    if "gracePeriodSeconds" in request.query:
        options["gracePeriodSeconds"] = int(request.query["gracePeriodSeconds"])
    return options
