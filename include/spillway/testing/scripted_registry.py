"""What tests of the registry's client say and hear on a scripted server."""

from __future__ import annotations

import json

from spillway.registries.base import Manifest
from spillway.registries.digest import digest_of
from spillway.registries.http import HttpRegistry
from spillway.testing.images import OCI_MANIFEST, image_manifest
from spillway.testing.scripted_http import Answer, ScriptedServer

BODY = image_manifest(config=b"{}", layers=[b"a layer"])
MANIFEST = Manifest(digest=digest_of(BODY), media_type=OCI_MANIFEST, body=BODY)
FOUND = Answer(body=BODY, headers={"Content-Type": OCI_MANIFEST, "Docker-Content-Digest": MANIFEST.digest})


def client(server: ScriptedServer, *, username: str | None = "ada", password: str | None = "pw") -> HttpRegistry:
    return HttpRegistry(name="cloud", url=server.url, username=username, password=password)


def errors(code: str, message: str = "") -> bytes:
    return json.dumps({"errors": [{"code": code, "message": message}]}).encode()
