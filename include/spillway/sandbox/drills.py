"""Take things away as real clouds and machine rooms do.

node-loss      the machine is gone at once: its agent and pods die, nothing says goodbye, the API finds out by silence
spot-reclaim   the cloud gives notice, the node shuts down in order, then the machine and its node object are gone
evict          the node is low on memory and evicts one pod
site-outage    everything of a site stops answering at once: API, nodes, object store, registry
recover        what a drill took away starts again
"""

from __future__ import annotations

import contextlib
import json
import shutil
import time
from pathlib import Path

from spillway.connections import connections_from_file
from spillway.errors import SandboxError, UnknownName
from spillway.sandbox.agent.process import drill
from spillway.sandbox.settings import NodeSettings, SandboxSettings, SiteSettings
from spillway.sandbox.sites import certificates
from spillway.sandbox.supervisor import read_status

DRILLS = ("node-loss", "spot-reclaim", "evict", "site-outage", "recover")
TAKEN_SECONDS = 30.0


def node_loss(settings: SandboxSettings, node: str) -> None:
    """Power off a node."""
    _hold(settings, _node(settings, node)[1].process)


def spot_reclaim(settings: SandboxSettings, node: str, *, notice_seconds: float = 5.0) -> None:
    """Announce the end of a node, shut it down in order, and take the machine away when the notice is over."""
    site, found = _node(settings, node)
    end = time.monotonic() + notice_seconds
    drill(found.port, "/shutdown", certificates(settings))
    time.sleep(max(end - time.monotonic(), 0))
    _hold(settings, found.process)
    _delete_node(settings, site, node)


def evict(settings: SandboxSettings, node: str, namespace: str, pod: str) -> None:
    """Let a node evict a pod for want of memory."""
    drill(_node(settings, node)[1].port, f"/evict/{namespace}/{pod}", certificates(settings))


def site_outage(settings: SandboxSettings, site: str) -> None:
    """Stop every process of a site at once."""
    found = _site(settings, site)
    nodes = [node.process for node in found.nodes]
    _hold(settings, f"{found.name}-kube-api", f"{found.name}-store", f"{found.name}-registry", *nodes)


def recover(settings: SandboxSettings) -> None:
    """Give back all that drills took."""
    shutil.rmtree(settings.state / "held", ignore_errors=True)


def _hold(settings: SandboxSettings, *names: str) -> None:
    """Have the supervisor kill the processes and keep them down; return when they are."""
    status = read_status(settings.state)
    if status is None:
        raise SandboxError("no sandbox is running here; start it first: make up")
    held = settings.state / "held"
    held.mkdir(exist_ok=True)
    for name in names:
        if name not in status:
            raise UnknownName("process", name, status)
        (held / name).touch()
    deadline = time.monotonic() + TAKEN_SECONDS
    while any((read_status(settings.state) or {}).get(name, {}).get("pid") for name in names):
        if time.monotonic() > deadline:
            raise SandboxError(f"{', '.join(names)} could not be stopped")
        time.sleep(0.05)


def _site(settings: SandboxSettings, name: str) -> SiteSettings:
    sites = {site.name: site for site in settings.sites}
    if name not in sites:
        raise UnknownName("site", name, sites)
    return sites[name]


def _node(settings: SandboxSettings, name: str) -> tuple[SiteSettings, NodeSettings]:
    nodes = {node.name: (site, node) for site in settings.sites for node in site.nodes}
    if name not in nodes:
        raise UnknownName("node", name, nodes)
    return nodes[name]


def _delete_node(settings: SandboxSettings, site: SiteSettings, node: str) -> None:
    from kubernetes.client import CoreV1Api
    from kubernetes.client.exceptions import ApiException
    from kubernetes.config import new_client_from_config_dict

    connection = connections_from_file(Path(settings.connections))[f"{site.name}_kubernetes"]
    api = CoreV1Api(new_client_from_config_dict(json.loads(connection.extra["kube_config"])))
    with contextlib.suppress(ApiException):
        api.delete_node(node)
