"""Small images for tests: plain ones, and a multi-architecture index with attestations."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from spillway.registries.base import ImageRegistry, Manifest
from spillway.registries.digest import digest_of

OCI_INDEX = "application/vnd.oci.image.index.v1+json"
OCI_MANIFEST = "application/vnd.oci.image.manifest.v1+json"
OCI_CONFIG = "application/vnd.oci.image.config.v1+json"
OCI_LAYER = "application/vnd.oci.image.layer.v1.tar+gzip"
IN_TOTO = "application/vnd.in-toto+json"


def descriptor(body: bytes, media_type: str, **more: Any) -> dict[str, Any]:
    """How a manifest refers to the bytes."""
    return {"mediaType": media_type, "digest": digest_of(body), "size": len(body), **more}


def image_manifest(*, config: bytes, layers: Sequence[bytes], layer_type: str = OCI_LAYER) -> bytes:
    """The body of a manifest."""
    document = {
        "schemaVersion": 2,
        "mediaType": OCI_MANIFEST,
        "config": descriptor(config, OCI_CONFIG),
        "layers": [descriptor(layer, layer_type) for layer in layers],
    }
    return json.dumps(document).encode()


def put_image(
    registry: ImageRegistry,
    repository: str,
    tag: str | None,
    *,
    layer: bytes = b"a layer",
    architecture: str = "amd64",
    layer_type: str = OCI_LAYER,
    labels: Mapping[str, str] | None = None,
) -> Manifest:
    """Store an image of one layer, under a tag or by its digest only."""
    run = {"Labels": {"tag": tag, **(labels or {})}}
    config = json.dumps({"architecture": architecture, "os": "linux", "config": run}).encode()
    for blob in (config, layer):
        if not registry.has_blob(repository, digest_of(blob)):
            registry.put_blob(repository, digest_of(blob), iter([blob]), size_bytes=len(blob))
    body = image_manifest(config=config, layers=[layer], layer_type=layer_type)
    manifest = Manifest(digest=digest_of(body), media_type=OCI_MANIFEST, body=body)
    registry.put_manifest(repository, tag or manifest.digest, manifest)
    return manifest


def put_index(
    registry: ImageRegistry, repository: str, tag: str, *, labels: Mapping[str, str] | None = None
) -> Manifest:
    """Store an index of amd64 and arm64, each with a build attestation that is marked as of no platform."""
    entries = []
    for architecture in ("amd64", "arm64"):
        layer = f"layer of {tag} for {architecture}".encode()
        image = put_image(registry, repository, None, layer=layer, architecture=architecture, labels=labels)
        platform = {"architecture": architecture, "os": "linux"}
        entries.append(descriptor(image.body, OCI_MANIFEST, platform=platform))
        statement = json.dumps({"subject": image.digest}).encode()
        proof = put_image(registry, repository, None, layer=statement, architecture="unknown", layer_type=IN_TOTO)
        entries.append(
            descriptor(
                proof.body,
                OCI_MANIFEST,
                platform={"architecture": "unknown", "os": "unknown"},
                annotations={
                    "vnd.docker.reference.type": "attestation-manifest",
                    "vnd.docker.reference.digest": image.digest,
                },
            )
        )
    body = json.dumps({"schemaVersion": 2, "mediaType": OCI_INDEX, "manifests": entries}).encode()
    manifest = Manifest(digest=digest_of(body), media_type=OCI_INDEX, body=body)
    registry.put_manifest(repository, tag, manifest)
    return manifest
