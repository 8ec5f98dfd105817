"""Secrets, ConfigMaps and Services brought to a given content."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from spillway.clouds.api import ApiRefusal, KubernetesApi

_COLLECTIONS = {"Secret": "secrets", "ConfigMap": "configmaps", "Service": "services"}
_MERGE_PATCH = "application/merge-patch+json"


def put_object(api: KubernetesApi, namespace: str, item: Mapping[str, Any]) -> None:
    """Create or update the object; raises ApiRefusal 404 where there is no such namespace."""
    kind, name = item["kind"], item["metadata"]["name"]
    collection = f"/api/v1/namespaces/{namespace}/{_COLLECTIONS[kind]}"
    for attempt in range(2):
        try:
            if kind == "Service":  # its address is assigned by the cluster and must stay
                api.json("PATCH", f"{collection}/{name}", body=item, content_type=_MERGE_PATCH)
            else:
                api.json("PUT", f"{collection}/{name}", body=item)
            return
        except ApiRefusal as refusal:
            if refusal.status != 404:
                raise
        try:
            api.json("POST", collection, body=item)
            return
        except ApiRefusal as refusal:
            if refusal.status != 409 or attempt:  # 409 once: somebody else created it just now
                raise
