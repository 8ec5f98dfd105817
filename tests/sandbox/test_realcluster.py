"""The real control plane: what is built, what is kept, and how its processes trust each other."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from spillway.errors import SandboxError
from spillway.sandbox.realcluster.build import ETCD_VERSION, KUBERNETES_VERSION, build, own_parts
from spillway.sandbox.realcluster.process import ControlPlane, Ports, control_plane

PORTS = Ports(api=18410, etcd=18411, etcd_peer=18412, controller_manager=18413, scheduler=18414)
GO_MOD = """\
module k8s.io/kubernetes

go 1.26.0

require (
	github.com/spf13/cobra v1.10.0
	k8s.io/api v0.0.0
	k8s.io/kube-openapi v0.0.0-20260101000000-abcdef012345
	k8s.io/klog/v2 v2.140.0
)

replace (
	k8s.io/api => ./staging/src/k8s.io/api
	k8s.io/kms => ./staging/src/k8s.io/kms
)
"""


def test_only_the_parts_that_kubernetes_keeps_beside_itself_are_replaced() -> None:
    assert own_parts(GO_MOD) == ["k8s.io/api", "k8s.io/kms"]


def test_what_was_built_before_is_used_without_go(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    kept = tmp_path / "kubernetes" / f"{KUBERNETES_VERSION}-etcd-{ETCD_VERSION}"
    kept.mkdir(parents=True)

    assert build(tmp_path, print) == kept


def test_without_go_the_message_says_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")

    with pytest.raises(SandboxError, match=r"no 'go' was found.*install Go 1\.26"):
        build(tmp_path, print)


def test_a_go_that_fails_is_told_and_nothing_half_built_stays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    programs = tmp_path / "path"
    programs.mkdir()
    (programs / "go").write_text("#!/bin/sh\necho 'no such module' >&2\nexit 1\n")
    (programs / "go").chmod(0o755)
    monkeypatch.setenv("PATH", str(programs))

    with pytest.raises(SandboxError, match=r"go mod init spillway.dev/controlplane failed:\nno such module"):
        build(tmp_path / "cache", print)
    assert list((tmp_path / "cache" / "kubernetes").iterdir()) == []


@pytest.fixture
def plane(tmp_path: Path) -> ControlPlane:
    return control_plane(Path("/programs"), tmp_path, PORTS)


def _flags(plane: ControlPlane, name: str) -> dict[str, str]:
    argv = next(process.argv for process in plane.processes if process.argv[0] == f"/programs/{name}")
    pairs = (argument.removeprefix("--").partition("=") for argument in argv[1:])
    return {flag: value for flag, _, value in pairs}


def test_processes_start_in_the_order_in_which_they_need_each_other(plane: ControlPlane) -> None:
    assert [(process.name, process.stage, process.ports) for process in plane.processes] == [
        ("real-etcd", 0, (18411, 18412)),
        ("real-kube-apiserver", 1, (18410,)),
        ("real-kube-controller-manager", 2, (18413,)),
        ("real-kube-scheduler", 2, (18414,)),
    ]


def test_nobody_is_let_in_without_a_certificate(plane: ControlPlane) -> None:
    etcd, api = _flags(plane, "etcd"), _flags(plane, "kube-apiserver")

    assert etcd["client-cert-auth"] == "true"
    assert (api["anonymous-auth"], api["authorization-mode"]) == ("false", "Node,RBAC")
    assert api["kubelet-certificate-authority"] == str(plane.certificates.ca_file)


def test_every_component_reaches_the_api_by_a_kubeconfig_of_its_own(plane: ControlPlane) -> None:
    files = {
        "admin": plane.kubeconfig_file,
        "system:kube-controller-manager": Path(_flags(plane, "kube-controller-manager")["kubeconfig"]),
        "system:kube-scheduler": Path(_flags(plane, "kube-scheduler")["kubeconfig"]),
    }

    for user, file in files.items():
        document = yaml.safe_load(file.read_text())
        assert document["users"][0]["name"] == user
        assert document["clusters"][0]["cluster"]["server"] == "https://127.0.0.1:18410"
        assert Path(document["users"][0]["user"]["client-key"]).is_file()


def test_a_second_start_keeps_the_key_of_the_service_accounts(plane: ControlPlane, tmp_path: Path) -> None:
    key = Path(_flags(plane, "kube-apiserver")["service-account-signing-key-file"])
    before = key.read_bytes()

    control_plane(Path("/programs"), tmp_path, PORTS)

    assert key.read_bytes() == before
