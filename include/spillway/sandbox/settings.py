"""Where the sandbox lives, which ports it takes and the credentials it made for itself."""

from __future__ import annotations

import json
import os
import secrets
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from spillway.errors import SandboxError
from spillway.sandbox.process import port_open

PROJECT = Path(__file__).resolve().parents[3]
INCLUDE = PROJECT / "include"
DEFAULT_STATE = PROJECT / "build" / "sandbox"
DEFAULT_BASE_PORT = 17000
PORTS_PER_SITE = 100
MAX_NODES = 4
"""The declared maximum of every site."""
LOOPBACK = "127.0.0.1,localhost"


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeSettings:
    """One GPU node of a site; it exists as a node agent process."""

    name: str
    pool: str
    gpus: int
    gpu_model: str
    port: int

    @property
    def process(self) -> str:
        """The name of its node agent among the supervisor's processes."""
        return f"{self.name}-agent"


@dataclass(frozen=True, slots=True, kw_only=True)
class SiteSettings:
    """One site: a Kubernetes API, the GPU nodes that it starts with, an object store (ten ports) and a registry.

    Where it has a ``machines_port``, a provider switches machines on and off, up to ``most_nodes``, each with one of
    the ``machine_ports``.
    """

    name: str
    api_port: int
    store_port: int
    registry_port: int
    nodes: tuple[NodeSettings, ...]
    machine_ports: range
    machines_port: int | None = None
    most_nodes: int = MAX_NODES

    @property
    def store_endpoint(self) -> str:
        return f"http://127.0.0.1:{self.store_port}"

    @property
    def registry_endpoint(self) -> str:
        return f"http://127.0.0.1:{self.registry_port}"

    @property
    def servers(self) -> tuple[str, ...]:
        """The names of its servers among the supervisor's processes, without its nodes."""
        return (f"{self.name}-kube-api", f"{self.name}-store", f"{self.name}-registry")

    @property
    def machines_process(self) -> str:
        """The name of its provider of machines among the supervisor's processes."""
        return f"{self.name}-machines"

    @property
    def ports(self) -> tuple[int, ...]:
        store = tuple(self.store_port + offset for offset in range(10))
        machines = () if self.machines_port is None else (self.machines_port, *self.machine_ports)
        return (self.api_port, self.registry_port, *store, *(machines or (node.port for node in self.nodes)))


@dataclass(frozen=True, slots=True, kw_only=True)
class SandboxSettings:
    """The whole sandbox under one directory."""

    state: Path
    base_port: int
    sites: tuple[SiteSettings, ...]

    @property
    def airflow_port(self) -> int:
        return self.base_port + 80

    @property
    def airflow_home(self) -> Path:
        return self.state / "airflow"

    @property
    def config(self) -> Path:
        return self.state / "config"

    @property
    def connections(self) -> Path:
        return self.state / "connections.json"

    @property
    def logs(self) -> Path:
        return self.state / "logs"

    @property
    def ledger_url(self) -> str:
        return f"sqlite:///{self.state / 'ledger.db'}"

    def site(self, name: str) -> SiteSettings:
        return next(site for site in self.sites if site.name == name)


def sandbox_settings(state: Path | None = None, base_port: int | None = None) -> SandboxSettings:
    """The settings of a state directory; a sandbox that was set up keeps the ports it was set up with."""
    state = (state or Path(os.environ.get("SPILLWAY_SANDBOX_DIR") or DEFAULT_STATE)).resolve()
    remembered = state / "base_port"
    if base_port is None:
        base_port = int(remembered.read_text()) if remembered.exists() else _default_base_port()
    onprem = _site("onprem", base_port + PORTS_PER_SITE, nodes=2, gpus=2, gpu_model="NVIDIA-A100-SXM4-80GB")
    first_of_cloud = base_port + 2 * PORTS_PER_SITE
    cloud = replace(
        _site("cloud", first_of_cloud, nodes=2, gpus=4, gpu_model="NVIDIA-H100-80GB-HBM3"),
        machines_port=first_of_cloud + 1,
    )
    return SandboxSettings(state=state, base_port=base_port, sites=(onprem, cloud))


def _default_base_port() -> int:
    raw = os.environ.get("SPILLWAY_SANDBOX_PORT", str(DEFAULT_BASE_PORT))
    if not raw.isdecimal() or not 1024 <= int(raw) <= 65000:
        raise SandboxError(f"SPILLWAY_SANDBOX_PORT: expected a port from 1024 to 65000, got '{raw}'")
    return int(raw)


def _site(name: str, first_port: int, *, nodes: int, gpus: int, gpu_model: str) -> SiteSettings:
    return SiteSettings(
        name=name,
        api_port=first_port,
        store_port=first_port + 20,
        registry_port=first_port + 30,
        machine_ports=range(first_port + 11, first_port + 20),
        nodes=tuple(
            NodeSettings(
                name=f"{name}-{number}", pool="gpu", gpus=gpus, gpu_model=gpu_model, port=first_port + 10 + number
            )
            for number in range(1, nodes + 1)
        ),
    )


def check_ports(settings: SandboxSettings, *, with_airflow: bool) -> None:
    """Raise a SandboxError that names the first port that another program listens on."""
    ports = [port for site in settings.sites for port in site.ports]
    if with_airflow:
        ports += [settings.airflow_port, settings.airflow_port + 3, settings.airflow_port + 4]
    for port in ports:
        if port_open(port):
            raise SandboxError(
                f"port {port} is taken by another program, the sandbox needs it free; "
                "stop that program or choose other ports: SPILLWAY_SANDBOX_PORT=<first port>"
            )


CREDENTIALS = (
    "airflow_admin_password", "airflow_jwt_secret", "airflow_fernet_source", "cache_key_source",
    "onprem_api_token", "onprem_mover_secret", "onprem_pods_secret", "onprem_public_secret",
    "onprem_public_pods_secret", "onprem_remote_secret", "onprem_cache_secret", "onprem_registry_password",
    "cloud_api_token", "cloud_mover_secret", "cloud_pods_secret", "cloud_public_secret",
    "cloud_public_pods_secret", "cloud_remote_secret", "cloud_cache_secret", "cloud_registry_password",
    "cloud_machines_token",
)  # fmt: skip


def credentials(settings: SandboxSettings) -> Mapping[str, str]:
    """The sandbox's generated passwords and keys, made once and kept readable by the owner only."""
    path = settings.state / "credentials.json"
    known: dict[str, str] = json.loads(path.read_text()) if path.exists() else {}
    missing = [name for name in CREDENTIALS if name not in known]
    if missing:
        known |= {name: secrets.token_urlsafe(32) for name in missing}
        write_private(path, json.dumps(known, indent=1))
    return known


def write_private(path: Path, text: str) -> None:
    """Write a file that only its owner can read, whole or not at all."""
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(path.name + ".partial")
    partial.unlink(missing_ok=True)
    descriptor = os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "w") as file:
        file.write(text)
    partial.replace(path)


def keep_proxies_off_loopback() -> None:
    """Have this process and its children reach the sandbox itself although the machine names a proxy."""
    for name in ("no_proxy", "NO_PROXY"):
        known = os.environ.get(name, "")
        if known != "*" and LOOPBACK not in known:
            os.environ[name] = f"{known},{LOOPBACK}" if known else LOOPBACK


def cache_directory() -> Path:
    """Where downloads are kept between sandboxes."""
    root = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    return Path(root) / "spillway"
