"""A node agent as the supervisor starts it, and the drills that it answers to."""

from __future__ import annotations

import json
import ssl
import sys
import urllib.request
from collections.abc import Sequence
from pathlib import Path

from spillway.errors import SandboxError
from spillway.sandbox.certificates import Certificates
from spillway.sandbox.kube.process import python_environment
from spillway.sandbox.process import ProcessSpec, port_open
from spillway.sandbox.settings import NodeSettings

NODE_STAGE = 1


def node_agent_process(
    node: NodeSettings, *, kubeconfig: Path, root: Path, certificates: Certificates, masks: Sequence[Path] = ()
) -> ProcessSpec:
    """One GPU node; ``masks`` are directories of the host that its containers must not see.

    It starts when the API server that ``kubeconfig`` names, and the registry, answer.
    """
    argv: list[object] = ["--kubeconfig", kubeconfig, "--node", node.name, "--port", node.port, "--root", root]
    argv += ["--gpus", node.gpus, "--gpu-model", node.gpu_model, "--label", f"spillway.dev/pool={node.pool}"]
    argv += ["--tls-cert", certificates.server.certificate, "--tls-key", certificates.server.key]
    argv += ["--client-ca", certificates.ca_file]
    for mask in masks:
        argv += ["--mask", mask]
    return ProcessSpec(
        name=node.process,
        argv=(sys.executable, "-m", "spillway.sandbox.agent", *map(str, argv)),
        environment=python_environment(),
        working_directory=root,
        ready=lambda: port_open(node.port),  # it opens when the API server has the node as ready
        ports=(node.port,),
        stage=NODE_STAGE,
    )


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
