"""A node agent as the supervisor starts it, and the drills that it answers to."""

from __future__ import annotations

import base64
import json
import ssl
import sys
import urllib.request
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml

from spillway.errors import SandboxError
from spillway.sandbox.certificates import Certificates
from spillway.sandbox.kube.process import python_environment
from spillway.sandbox.process import ProcessSpec


def node_agent_process(
    *,
    node: str,
    kubeconfig: Path,
    port: int,
    root: Path,
    certificates: Certificates,
    gpus: int,
    gpu_model: str,
    labels: Mapping[str, str],
    masks: Sequence[Path],
    stage: int = 1,
) -> ProcessSpec:
    """One GPU node; ``masks`` are directories of the host that its containers must not see."""
    argv: list[object] = ["--kubeconfig", kubeconfig, "--node", node, "--port", port, "--root", root]
    argv += ["--gpus", gpus, "--gpu-model", gpu_model]
    argv += ["--tls-cert", certificates.server.certificate, "--tls-key", certificates.server.key]
    argv += ["--client-ca", certificates.ca_file]
    for key, value in labels.items():
        argv += ["--label", f"{key}={value}"]
    for mask in masks:
        argv += ["--mask", mask]
    return ProcessSpec(
        name=f"{node}-agent",
        argv=(sys.executable, "-m", "spillway.sandbox.agent", *map(str, argv)),
        environment=python_environment(),
        working_directory=root,
        ready=lambda: node_is_ready(kubeconfig, node),
        ports=(port,),
        stage=stage,
    )


def node_is_ready(kubeconfig: Path, node: str) -> bool:
    """Whether the node's object says Ready."""
    config = yaml.safe_load(kubeconfig.read_text())
    cluster, user = config["clusters"][0]["cluster"], config["users"][0]["user"]
    try:
        found = _get_json(f"{cluster['server']}/api/v1/nodes/{node}", cluster, user)
    except OSError:
        return False
    conditions = found.get("status", {}).get("conditions") or []
    return any(condition["type"] == "Ready" and condition["status"] == "True" for condition in conditions)


def drill(port: int, path: str, certificates: Certificates, *, timeout_seconds: float = 60) -> list[str]:
    """POST ``/evict/NAMESPACE/POD`` or ``/shutdown`` to a node agent; gives the pods that it ended.

    Returns when they have ended. Raises SandboxError where the agent does not answer.
    """
    tls = ssl.create_default_context(cafile=certificates.ca_file)
    tls.load_cert_chain(certificates.client.certificate, certificates.client.key)
    request = urllib.request.Request(f"https://127.0.0.1:{port}{path}", method="POST")
    try:
        with urllib.request.urlopen(request, timeout=timeout_seconds, context=tls) as answer:
            pods: list[str] = json.loads(answer.read())
            return pods
    except OSError as problem:
        raise SandboxError(f"the node agent on port {port} did not do {path}: {problem}") from problem


def _get_json(url: str, cluster: Mapping[str, Any], user: Mapping[str, Any]) -> dict[str, Any]:
    authority = cluster.get("certificate-authority-data")
    tls = ssl.create_default_context(
        cafile=cluster.get("certificate-authority"),
        cadata=base64.b64decode(authority).decode() if authority else None,
    )
    if "client-certificate" in user:
        tls.load_cert_chain(user["client-certificate"], user["client-key"])
    headers = {"Authorization": f"Bearer {user['token']}"} if "token" in user else {}
    request = urllib.request.Request(url, headers=headers)
    with urllib.request.urlopen(request, timeout=1, context=tls) as answer:
        document: dict[str, Any] = json.loads(answer.read())
        return document
