"""A request to the API server, decoded."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

import yaml
from aiohttp import web

from spillway.sandbox.kube.resources import GROUP_VERSIONS, RESOURCES, Object, Resource
from spillway.sandbox.kube.selectors import Matcher, field_matcher, label_matcher
from spillway.sandbox.kube.status import ApiError, bad_request, no_such_path

_TRUE = frozenset({"1", "t", "T", "TRUE", "true", "True"})  # as Go parses them: the Python client sends watch=True


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """What a path names: a collection where ``name`` is None."""

    resource: Resource
    namespace: str | None
    name: str | None
    subresource: str | None


def parse_path(parts: list[str]) -> Target:
    """``/api/v1/namespaces/NS/pods/NAME/log`` and its like; raises ApiError 404 for what is not served."""
    if parts[:1] == ["api"]:
        version, rest = "/".join(parts[1:2]), parts[2:]
    else:
        version, rest = "/".join(parts[1:3]), parts[3:]
    namespace = None
    if rest[:1] == ["namespaces"] and len(rest) >= 3 and (version, rest[2]) in RESOURCES:
        namespace, rest = rest[1], rest[2:]
    if parts[0] not in {"api", "apis"} or version not in GROUP_VERSIONS or not rest or len(rest) > 3:
        raise no_such_path()
    resource = RESOURCES.get((version, rest[0]))
    name = rest[1] if len(rest) > 1 else None
    subresource = rest[2] if len(rest) > 2 else None
    if resource is None or (namespace and not resource.namespaced):
        raise no_such_path()
    if resource.namespaced and name and namespace is None:
        raise no_such_path()
    if subresource and not (subresource in resource.subresources or (subresource == "status" and resource.status)):
        raise no_such_path()
    return Target(resource=resource, namespace=namespace, name=name, subresource=subresource)


def is_true(request: web.Request, parameter: str) -> bool:
    return request.query.get(parameter) in _TRUE


def is_dry_run(request: web.Request) -> bool:
    return request.query.get("dryRun") == "All"


def wants_table(request: web.Request) -> bool:
    return request.method == "GET" and "as=Table" in request.headers.get("Accept", "")


def matchers(request: web.Request, target: Target) -> tuple[Matcher, ...]:
    """The selectors of a list or watch; a watch of one name is a selector too."""
    named = (field_matcher(f"metadata.name={target.name}"),) if target.name else ()
    return (
        *named,
        label_matcher(request.query.get("labelSelector")),
        field_matcher(request.query.get("fieldSelector")),
    )


def revision(request: web.Request) -> int | None:
    """The resourceVersion to start from; None where it is absent or 0, which mean "any"."""
    text = request.query.get("resourceVersion") or "0"
    if not text.isdigit():
        raise bad_request(f'resourceVersion: Invalid value: "{text}"')
    return int(text) or None


async def body(request: web.Request) -> Any:
    """The decoded body, None where there is none. Raises ApiError 400 or 415."""
    content = await request.read()
    if not content:
        return None
    try:
        return json.loads(content)
    except ValueError as problem:
        kind = request.content_type
        if "yaml" in kind:
            return yaml.safe_load(content)
        accepted = "accepted media types include: application/json, application/yaml"
        message = f"the body of the request was in an unknown format - {accepted}"
        if "protobuf" in kind:
            raise ApiError(415, "UnsupportedMediaType", message) from problem
        raise bad_request(f"{message}: {problem}") from problem


async def object_body(request: web.Request) -> Object:
    """The body where it must be one object."""
    content = await body(request)
    if not isinstance(content, dict):
        raise bad_request(f"expected one object in the body, got {type(content).__name__}")
    return content


async def delete_options(request: web.Request) -> Object:
    """Options of the body, overlaid with those of the query."""
    options = dict(await body(request) or {})
    for parameter in ("propagationPolicy", "dryRun"):
        if parameter in request.query:
            options[parameter] = request.query[parameter]
    if "gracePeriodSeconds" in request.query:
        options["gracePeriodSeconds"] = int(request.query["gracePeriodSeconds"])
    return options
