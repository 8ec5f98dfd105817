"""The real control plane's processes on loopback, every connection between them by certificate."""

from __future__ import annotations

import ssl
import urllib.request
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import yaml

from spillway.sandbox.certificates import Certificates, KeyPair, issue, open_authority
from spillway.sandbox.process import ProcessSpec, port_open

MASTERS = "system:masters"
_CLIENTS = {
    "admin": MASTERS,
    "system:kube-controller-manager": None,
    "system:kube-scheduler": None,
    "front-proxy-client": None,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Ports:
    """Loopback ports of the control plane."""

    api: int
    etcd: int
    etcd_peer: int
    controller_manager: int
    scheduler: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ControlPlane:
    """Everything to start and to reach it; ``processes`` are in the order of their stages."""

    certificates: Certificates
    kubeconfig_file: Path
    processes: tuple[ProcessSpec, ...]


def control_plane(programs: Path, state: Path, ports: Ports) -> ControlPlane:
    """Write certificates and kubeconfigs below ``state`` and describe etcd, API server, controllers and scheduler."""
    pki = state / "pki"
    certificates = issue(pki)
    pairs = _client_certificates(pki)
    service_accounts = _service_account_pair(pki)
    files = {name: _kubeconfig(state, name, ports, certificates, pair) for name, pair in pairs.items()}
    plane = partial(_process, programs, state)
    processes = (
        plane("etcd", _etcd_flags(state, ports, certificates), _listens(ports.etcd), 0, (ports.etcd, ports.etcd_peer)),
        plane(
            "kube-apiserver",
            _api_server_flags(ports, certificates, pairs["front-proxy-client"], service_accounts),
            partial(_api_is_ready, ports.api, certificates.ca_file, pairs["admin"]),
            1,
            (ports.api,),
        ),
        plane(
            "kube-controller-manager",
            {
                **_component_flags(ports.controller_manager, files["system:kube-controller-manager"]),
                "service-account-private-key-file": service_accounts.key,
                "root-ca-file": certificates.ca_file,
                "use-service-account-credentials": "true",
                "node-monitor-grace-period": "20s",
            },
            _listens(ports.controller_manager),
            2,
            (ports.controller_manager,),
        ),
        plane(
            "kube-scheduler",
            _component_flags(ports.scheduler, files["system:kube-scheduler"]),
            _listens(ports.scheduler),
            2,
            (ports.scheduler,),
        ),
    )
    return ControlPlane(certificates=certificates, kubeconfig_file=files["admin"], processes=processes)


def _process(
    programs: Path, state: Path, name: str, flags: dict[str, Any], ready: Any, stage: int, ports: tuple[int, ...]
) -> ProcessSpec:
    return ProcessSpec(
        name=f"real-{name}",
        argv=(str(programs / name), *(f"--{flag}={value}" for flag, value in flags.items())),
        environment={"PATH": "/usr/bin:/bin"},
        working_directory=state,
        ready=ready,
        ports=ports,
        stage=stage,
    )


def _etcd_flags(state: Path, ports: Ports, certificates: Certificates) -> dict[str, Any]:
    client, peer = f"https://127.0.0.1:{ports.etcd}", f"http://127.0.0.1:{ports.etcd_peer}"
    return {
        "name": "main",
        "data-dir": state / "etcd",
        "listen-client-urls": client,
        "advertise-client-urls": client,
        "listen-peer-urls": peer,
        "initial-advertise-peer-urls": peer,
        "initial-cluster": f"main={peer}",
        "cert-file": certificates.server.certificate,
        "key-file": certificates.server.key,
        "client-cert-auth": "true",
        "trusted-ca-file": certificates.ca_file,
        "log-level": "warn",
    }


def _api_server_flags(
    ports: Ports, certificates: Certificates, front_proxy: KeyPair, service_accounts: KeyPair
) -> dict[str, Any]:
    server, client, ca = certificates.server, certificates.client, certificates.ca_file
    return {
        "bind-address": "127.0.0.1",
        "advertise-address": "127.0.0.1",
        "secure-port": ports.api,
        "etcd-servers": f"https://127.0.0.1:{ports.etcd}",
        "etcd-cafile": ca,
        "etcd-certfile": client.certificate,
        "etcd-keyfile": client.key,
        "tls-cert-file": server.certificate,
        "tls-private-key-file": server.key,
        "client-ca-file": ca,
        "anonymous-auth": "false",
        "authorization-mode": "Node,RBAC",
        "service-account-issuer": "https://kubernetes.default.svc",
        "service-account-key-file": service_accounts.certificate,
        "service-account-signing-key-file": service_accounts.key,
        "service-cluster-ip-range": "10.96.0.0/24",
        "endpoint-reconciler-type": "none",
        "kubelet-client-certificate": client.certificate,
        "kubelet-client-key": client.key,
        "kubelet-certificate-authority": ca,
        "kubelet-preferred-address-types": "InternalIP",
        "requestheader-client-ca-file": ca,
        "requestheader-allowed-names": "front-proxy-client",
        "requestheader-username-headers": "X-Remote-User",
        "requestheader-group-headers": "X-Remote-Group",
        "requestheader-extra-headers-prefix": "X-Remote-Extra-",
        "proxy-client-cert-file": front_proxy.certificate,
        "proxy-client-key-file": front_proxy.key,
    }


def _component_flags(port: int, kubeconfig: Path) -> dict[str, Any]:
    return {
        "kubeconfig": kubeconfig,
        "authentication-kubeconfig": kubeconfig,
        "authorization-kubeconfig": kubeconfig,
        "bind-address": "127.0.0.1",
        "secure-port": port,
        "leader-elect": "false",
    }


def _client_certificates(pki: Path) -> dict[str, KeyPair]:
    authority = open_authority(pki)
    return {name: authority.sign(pki, name, organization=group) for name, group in _CLIENTS.items()}


def _service_account_pair(pki: Path) -> KeyPair:
    """What signs service account tokens; kept, since a new one would make every token of old invalid."""
    kept = KeyPair(certificate=pki / "service-accounts.crt", key=pki / "service-accounts.key")
    both = kept.certificate.exists() and kept.key.exists()
    return kept if both else open_authority(pki).sign(pki, "service-accounts")


def _kubeconfig(state: Path, name: str, ports: Ports, certificates: Certificates, pair: KeyPair) -> Path:
    cluster = {"server": f"https://127.0.0.1:{ports.api}", "certificate-authority": str(certificates.ca_file)}
    user = {"client-certificate": str(pair.certificate), "client-key": str(pair.key)}
    document = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "real", "cluster": cluster}],
        "users": [{"name": name, "user": user}],
        "contexts": [{"name": "real", "context": {"cluster": "real", "user": name, "namespace": "default"}}],
        "current-context": "real",
    }
    file = state / f"{name.replace(':', '-')}.kubeconfig"
    file.write_text(yaml.safe_dump(document))
    return file


def _listens(port: int) -> Any:
    return partial(port_open, port)


def _api_is_ready(port: int, ca_file: Path, client: KeyPair) -> bool:
    try:
        tls = ssl.create_default_context(cafile=ca_file)
        tls.load_cert_chain(client.certificate, client.key)
        with urllib.request.urlopen(f"https://127.0.0.1:{port}/readyz", timeout=1, context=tls) as answer:
            return bool(answer.status == 200)
    except OSError:
        return False
