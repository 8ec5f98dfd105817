"""What clients ask first: version, groups, resources and just enough OpenAPI for kubectl to validate on the server."""

from __future__ import annotations

from spillway.sandbox.kube.resources import GROUP_VERSIONS, RESOURCES, Object, Resource
from spillway.sandbox.kube.status import no_such_path

VERSION = {
    "major": "1",
    "minor": "36",
    "gitVersion": "v1.36.0+spillway",
    "platform": "linux/amd64",
    **dict.fromkeys(("gitCommit", "gitTreeState", "buildDate", "goVersion", "compiler"), ""),
}
_VERBS = ["create", "delete", "deletecollection", "get", "list", "patch", "update", "watch"]
_SUBRESOURCE_KINDS = {"eviction": ("policy/v1", "Eviction"), "binding": ("v1", "Binding")}


def discover(parts: list[str]) -> Object | None:
    """The document at a path of discovery; None where the path is one of objects."""
    match parts:
        case []:
            return {"paths": ["/api", "/apis", "/healthz", "/openapi/v2", "/openapi/v3", "/version"]}
        case ["version"]:
            return dict(VERSION)
        case ["api"]:
            return {"kind": "APIVersions", "versions": ["v1"], "serverAddressByClientCIDRs": []}
        case ["api", version]:
            return _resources(version)
        case ["apis"]:
            return {
                "kind": "APIGroupList",
                "apiVersion": "v1",
                "groups": [_group(g) for g in GROUP_VERSIONS if "/" in g],
            }
        case ["apis", group]:
            version = next((v for v in GROUP_VERSIONS if v.startswith(f"{group}/")), "")
            if not version:
                raise no_such_path()
            return {"kind": "APIGroup", "apiVersion": "v1", **_group(version)}
        case ["apis", group, version]:
            return _resources(f"{group}/{version}")
        case ["openapi", *rest]:
            return _openapi(rest)
    return None


def _group(group_version: str) -> Object:
    group, _, version = group_version.partition("/")
    served = {"groupVersion": group_version, "version": version}
    return {"name": group, "versions": [served], "preferredVersion": served}


def _resources(group_version: str) -> Object:
    if group_version not in GROUP_VERSIONS:
        raise no_such_path()
    entries = []
    for resource in _of(group_version):
        common = {"singularName": "", "namespaced": resource.namespaced}
        entries.append(
            {
                **common,
                "name": resource.plural,
                "singularName": resource.kind.lower(),
                "kind": resource.kind,
                "verbs": _VERBS,
                "shortNames": list(resource.short_names),
            }
        )
        if resource.status:
            name = f"{resource.plural}/status"
            entries.append({**common, "name": name, "kind": resource.kind, "verbs": ["get", "patch", "update"]})
        for sub in resource.subresources:
            version, kind = _SUBRESOURCE_KINDS.get(sub, (group_version, resource.kind))
            group, _, plain = version.rpartition("/")
            entries.append(
                {
                    **common,
                    "name": f"{resource.plural}/{sub}",
                    "group": group,
                    "version": plain,
                    "kind": kind,
                    "verbs": ["get"] if sub == "log" else ["create"],
                }
            )
    return {"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": group_version, "resources": entries}


def _of(group_version: str) -> list[Resource]:
    return [resource for resource in RESOURCES.values() if resource.group_version == group_version]


def _openapi(rest: list[str]) -> Object:
    info = {"title": "Kubernetes", "version": VERSION["gitVersion"]}
    if rest == ["v2"]:
        paths = {path: item for version in GROUP_VERSIONS for path, item in _paths(version).items()}
        return {"swagger": "2.0", "info": info, "paths": paths, "definitions": {}}
    if rest == ["v3"]:
        roots = [_root(version).removeprefix("/") for version in GROUP_VERSIONS]
        return {"paths": {root: {"serverRelativeURL": f"/openapi/v3/{root}?hash=1"} for root in roots}}
    for version in GROUP_VERSIONS:
        if ["v3", *_root(version).strip("/").split("/")] == rest:
            return {"openapi": "3.0.0", "info": info, "paths": _paths(version), "components": {"schemas": {}}}
    raise no_such_path()


def _root(group_version: str) -> str:
    return f"/apis/{group_version}" if "/" in group_version else f"/api/{group_version}"


def _paths(group_version: str) -> Object:
    paths = {}
    parameters = [{"name": n, "in": "query", "schema": {"type": "string"}} for n in ("fieldValidation", "dryRun")]
    for resource in _of(group_version):
        group, _, version = group_version.rpartition("/")
        kind = {"group": group, "kind": resource.kind, "version": version}
        operation = {
            "parameters": parameters,
            "x-kubernetes-group-version-kind": kind,
            "responses": {"200": {"description": "OK"}},
        }
        base = f"{_root(group_version)}/{'namespaces/{namespace}/' if resource.namespaced else ''}{resource.plural}"
        paths[base] = {"post": {**operation, "x-kubernetes-action": "post"}}
        paths[f"{base}/{{name}}"] = {"patch": {**operation, "x-kubernetes-action": "patch"}}
    return paths
