"""What clients ask first: version, groups, resources and just enough OpenAPI for kubectl to validate on the server."""

from __future__ import annotations

from spillway.sandbox.kube.resources import GROUP_VERSIONS, RESOURCES, Object, Resource
from spillway.sandbox.kube.status import no_such_path

VERSION = {"major": "1", "minor": "36", "gitVersion": "v1.36.0+spillway", "platform": "linux/amd64"}
VERSION |= dict.fromkeys(("gitCommit", "gitTreeState", "buildDate", "goVersion", "compiler"), "")
_VERBS = ["create", "delete", "get", "list", "patch", "update", "watch"]


def discover(parts: list[str]) -> Object | None:
    """The document at a path of discovery; None where the path is one of objects."""
    match parts:
        case ["version"]:
            return dict(VERSION)
        case ["api"]:
            return {"kind": "APIVersions", "versions": ["v1"], "serverAddressByClientCIDRs": []}
        case ["apis"]:
            groups = [_group(version) for version in GROUP_VERSIONS if "/" in version]
            return {"kind": "APIGroupList", "apiVersion": "v1", "groups": groups}
        case ["api", version]:
            return _resources(version)
        case ["apis", group, version]:
            return _resources(f"{group}/{version}")
        case ["openapi", "v3"]:
            roots = [_root(version) for version in GROUP_VERSIONS]
            return {"paths": {root: {"serverRelativeURL": f"/openapi/v3/{root}"} for root in roots}}
        case ["openapi", "v3", *root]:
            version = next((version for version in GROUP_VERSIONS if _root(version).split("/") == root), "")
            return {"openapi": "3.0.0", "paths": dict(map(_patch_path, _of(version))), "components": {"schemas": {}}}
    return None


def _group(group_version: str) -> Object:
    group, _, version = group_version.partition("/")
    served = {"groupVersion": group_version, "version": version}
    return {"name": group, "versions": [served], "preferredVersion": served}


def _resources(group_version: str) -> Object:
    entries = []
    for resource in _of(group_version):
        common = {"singularName": resource.kind.lower(), "namespaced": resource.namespaced, "kind": resource.kind}
        short_names = [resource.short_name] if resource.short_name else []
        entries.append({**common, "name": resource.plural, "verbs": _VERBS, "shortNames": short_names})
        entries += [{**common, "name": f"{resource.plural}/{name}", "verbs": []} for name in resource.subresources]
    return {"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": group_version, "resources": entries}


def _of(group_version: str) -> list[Resource]:
    """The resources of a group's version; raises ApiError 404 for one that is not served."""
    found = [resource for resource in RESOURCES.values() if resource.group_version == group_version]
    if not found:
        raise no_such_path()
    return found


def _root(group_version: str) -> str:
    return f"apis/{group_version}" if "/" in group_version else f"api/{group_version}"


def _patch_path(resource: Resource) -> tuple[str, Object]:
    """The one operation of a kind that kubectl looks up: whether its PATCH checks fields on the server."""
    group, _, version = resource.group_version.rpartition("/")
    operation = {
        "parameters": [{"name": "fieldValidation", "in": "query", "schema": {"type": "string"}}],
        "x-kubernetes-action": "patch",
        "x-kubernetes-group-version-kind": {"group": group, "kind": resource.kind, "version": version},
        "responses": {"200": {"description": "OK"}},
    }
    return f"/{_root(resource.group_version)}/{resource.plural}/{{name}}", {"patch": operation}
