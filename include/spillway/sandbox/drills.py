"""Take things away as real clouds and machine rooms do.

node-loss      the machine is gone at once: its agent and pods die, nothing says goodbye, the API finds out by silence
spot-reclaim   the cloud gives notice, the node shuts down in order, then the machine and its node object are gone
evict          the node is low on memory and evicts one pod
site-outage    everything of a site stops answering at once: API, nodes, object store, registry
provider-down  the cloud's API for machines stops answering; those that there are go on, and those that boot come
quota          the cloud refuses more than so many machines
boot-failure   machines that are ordered from now on come up without their GPUs
slow-boot      machines that are ordered from now on take so many seconds
recover        what a drill took away starts again, and the cloud behaves
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from spillway.clouds.api import ApiRefusal
from spillway.errors import SandboxError, UnknownName
from spillway.sandbox.agent.process import drill
from spillway.sandbox.configuration import NAMESPACE
from spillway.sandbox.machines.fleet import Faults, change_fleet, fleet_file, nodes_now
from spillway.sandbox.settings import NodeSettings, SandboxSettings, SiteSettings
from spillway.sandbox.sites import certificates, kubernetes_api
from spillway.sandbox.supervisor import held_processes, hold, read_status, release_all

DRILLS = (
    "node-loss", "spot-reclaim", "evict", "site-outage",
    "provider-down", "quota", "boot-failure", "slow-boot", "recover",
)  # fmt: skip
TAKEN_SECONDS = 30.0
WAY_BACK = "give back what drills took: python -m spillway.sandbox drill recover"


def node_loss(settings: SandboxSettings, node: str) -> None:
    """Power off a node."""
    _take(settings, _node(settings, node)[1].process)


def spot_reclaim(settings: SandboxSettings, node: str, *, notice_seconds: float = 5.0) -> None:
    """Announce the end of a node, shut it down in order, and take the machine away when the notice is over.

    Raises:
        Unreachable: the site's API does not answer; nothing was taken unless it went away in between.
    """
    site, found = _present_node(settings, node)
    api, path = kubernetes_api(settings, site), f"/api/v1/nodes/{node}"
    api.json("GET", path)
    end = time.monotonic() + notice_seconds
    drill(found.port, "/shutdown", certificates(settings))
    time.sleep(max(end - time.monotonic(), 0))
    _take(settings, found.process)
    try:
        api.json("DELETE", path)
    except ApiRefusal as refusal:
        if refusal.status != 404:  # what somebody else has deleted is gone as well
            raise


def evict(settings: SandboxSettings, node: str, pod: str) -> None:
    """Let a node evict a pod for want of memory."""
    site, found = _present_node(settings, node)
    query = {"fieldSelector": f"spec.nodeName={node},status.phase!=Succeeded,status.phase!=Failed"}
    pods = kubernetes_api(settings, site).items(f"/api/v1/namespaces/{NAMESPACE}/pods", query)
    names = [found["metadata"]["name"] for found in pods]
    if not pod:
        raise SandboxError(f"name a pod of node {node} with --pod: {', '.join(sorted(names)) or 'it has none'}")
    if pod not in names:
        raise UnknownName(f"pod on node {node}", pod, names)
    drill(found.port, f"/evict/{NAMESPACE}/{pod}", certificates(settings))


def site_outage(settings: SandboxSettings, site: str) -> None:
    """Stop every process of a site at once."""
    sites = {found.name: found for found in settings.sites}
    if not site:
        raise SandboxError(f"name a site: {', '.join(sorted(sites))}")
    if site not in sites:
        raise UnknownName("site", site, sites)
    found = sites[site]
    provider = () if found.machines_port is None else (found.machines_process,)
    nodes = (node.process for node in nodes_now(settings.state, found))
    _take(settings, *found.servers, *provider, *nodes)


def provider_down(settings: SandboxSettings) -> None:
    """Stop the API that machines are ordered from."""
    _take(settings, *(site.machines_process for site in _with_provider(settings)))


def misbehave(settings: SandboxSettings, **faults: Any) -> None:
    """Have the provider of machines behave otherwise from now on; ``faults`` are those of ``Faults``."""
    _check_running(settings)
    for site in _with_provider(settings):
        change_fleet(
            fleet_file(settings.state, site),
            lambda fleet: replace(fleet, faults=replace(fleet.faults, **faults)),
        )


def recover(settings: SandboxSettings) -> None:
    """Give back all that drills took; the supervisor starts it again."""
    _check_running(settings)
    give_back(settings)


def give_back(settings: SandboxSettings) -> None:
    """Let nothing be kept down, and the provider of machines behave."""
    release_all(settings.state)
    for site in _with_provider(settings):
        file = fleet_file(settings.state, site)
        if file.exists():
            change_fleet(file, lambda fleet: replace(fleet, faults=Faults()))


def _with_provider(settings: SandboxSettings) -> tuple[SiteSettings, ...]:
    return tuple(site for site in settings.sites if site.machines_port is not None)


def taken(settings: SandboxSettings) -> tuple[str, ...]:
    """What drills took: nodes by their names, of a site's servers the processes."""
    nodes = {node.process: node.name for _, node in _nodes(settings)}
    return tuple(sorted(nodes.get(process, process) for process in held_processes(settings.state)))


def _take(settings: SandboxSettings, *names: str) -> None:
    """Have the supervisor kill the processes and keep them down; return when they are."""
    _check_running(settings)
    hold(settings.state, names)
    deadline = time.monotonic() + TAKEN_SECONDS
    while any((read_status(settings.state) or {}).get(name, {}).get("pid") for name in names):
        if time.monotonic() > deadline:
            raise SandboxError(f"{', '.join(names)} could not be stopped within {TAKEN_SECONDS:.0f} s")
        time.sleep(0.05)


def _check_running(settings: SandboxSettings) -> None:
    if read_status(settings.state) is None:
        raise SandboxError("no sandbox is running here; start it first: make up")


def _node(settings: SandboxSettings, name: str) -> tuple[SiteSettings, NodeSettings]:
    nodes = {node.name: (site, node) for site, node in _nodes(settings)}
    if not name:
        raise SandboxError(f"name a node: {', '.join(sorted(nodes))}")
    if name not in nodes:
        raise UnknownName("node", name, nodes)
    return nodes[name]


def _nodes(settings: SandboxSettings) -> Iterator[tuple[SiteSettings, NodeSettings]]:
    for site in settings.sites:
        for node in nodes_now(settings.state, site):
            yield site, node


def _present_node(settings: SandboxSettings, name: str) -> tuple[SiteSettings, NodeSettings]:
    """The node, where no drill has taken it before."""
    site, node = _node(settings, name)
    _check_running(settings)
    if node.process in held_processes(settings.state):
        raise SandboxError(f"a drill took the node '{name}' before; {WAY_BACK}")
    return site, node
