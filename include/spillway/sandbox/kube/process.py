"""The API server as the supervisor starts it, and the kubeconfig to reach it with."""

from __future__ import annotations

import base64
import ssl
import sys
import urllib.request
from datetime import timedelta
from http.client import HTTPException
from pathlib import Path
from typing import Any

import spillway
from spillway.sandbox.certificates import Certificates
from spillway.sandbox.process import ProcessSpec

IMPORT_ROOT = Path(str(spillway.__file__)).resolve().parent.parent


def api_server_process(
    *,
    name: str,
    port: int,
    state_directory: Path,
    certificates: Certificates,
    token_file: Path,
    node_lost_after: timedelta,
    pod_eviction_after: timedelta,
    stage: int = 0,
) -> ProcessSpec:
    """A cluster's control plane; its objects are kept in ``state_directory`` and survive a kill."""
    argv = {
        "--name": name,
        "--port": port,
        "--state-dir": state_directory,
        "--tls-cert": certificates.server.certificate,
        "--tls-key": certificates.server.key,
        "--token-file": token_file,
        "--node-ca": certificates.ca_file,
        "--node-client-cert": certificates.client.certificate,
        "--node-client-key": certificates.client.key,
        "--node-lost-after": node_lost_after.total_seconds(),
        "--pod-eviction-after": int(pod_eviction_after.total_seconds()),
    }
    return ProcessSpec(
        name=f"{name}-kube-api",
        argv=(sys.executable, "-m", "spillway.sandbox.kube", *(str(word) for pair in argv.items() for word in pair)),
        environment=python_environment(),
        working_directory=state_directory,
        ready=lambda: api_answers(f"https://127.0.0.1:{port}/readyz", certificates.ca_file),
        ports=(port,),
        stage=stage,
    )


def python_environment() -> dict[str, str]:
    """The whole environment of a sandbox process that runs this package."""
    return {"PYTHONPATH": str(IMPORT_ROOT), "PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"}


def api_answers(url: str, ca_file: Path, *, token: str | None = None) -> bool:
    """Whether an HTTPS GET answers 200."""
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    request = urllib.request.Request(url, headers=headers)
    try:
        context = ssl.create_default_context(cafile=ca_file)
        with urllib.request.urlopen(request, timeout=1, context=context) as answer:
            return bool(answer.status == 200)
    except (OSError, HTTPException):
        return False


def kubeconfig(*, name: str, server: str, ca_file: Path, token: str, namespace: str = "default") -> dict[str, Any]:
    """A kubeconfig with one context, self-contained: the authority's certificate is in it."""
    authority = base64.b64encode(ca_file.read_bytes()).decode()
    return {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": name, "cluster": {"server": server, "certificate-authority-data": authority}}],
        "users": [{"name": name, "user": {"token": token}}],
        "contexts": [{"name": name, "context": {"cluster": name, "user": name, "namespace": namespace}}],
        "current-context": name,
    }
