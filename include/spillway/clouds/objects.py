"""Secrets, ConfigMaps and Services brought to a given content."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from spillway.clouds.api import ApiRefusal, KubernetesApi

_COLLECTIONS = {"Secret": "secrets", "ConfigMap": "configmaps", "Service": "services"}
_MERGE_PATCH = "application/merge-patch+json"


def collection(namespace: str, kind: str) -> str:
    """The path of all objects of the kind in the namespace."""
    return f"/api/v1/namespaces/{namespace}/{_COLLECTIONS[kind]}"


def put_object(api: KubernetesApi, namespace: str, item: Mapping[str, Any]) -> None:
    """Create or update the object; raises ApiRefusal 404 where there is no such namespace."""
    kind, name = item["kind"], item["metadata"]["name"]
    path = collection(namespace, kind)
    for attempt in range(2):
        try:
            if kind == "Service":  # its address is assigned by the cluster and must stay
                api.json("PATCH", f"{path}/{name}", body=item, content_type=_MERGE_PATCH)
            else:
                api.json("PUT", f"{path}/{name}", body=item)
            return
        except ApiRefusal as refusal:
            if refusal.status != 404:
                raise
        try:
            api.json("POST", path, body=item)
            return
        except ApiRefusal as refusal:
            if refusal.status != 409 or attempt:  # 409 once: somebody else created it just now
                raise
