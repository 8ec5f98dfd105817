"""A real Kubernetes control plane, built from the Go modules of one version and kept for later."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path

from spillway.errors import SandboxError

KUBERNETES_VERSION = "v1.37.2"
ETCD_VERSION = "v3.7.3"
COMPONENTS = ("kube-apiserver", "kube-controller-manager", "kube-scheduler")
_STAGING = re.compile(r"^\s*(?:replace )?(k8s\.io/[a-z0-9-]+) (?:v0\.0\.0$|=> \./staging/)", re.MULTILINE)

Report = Callable[[str], None]


def programs_directory(cache: Path) -> Path:
    """Where etcd and the three programs of the control plane are, all of them, once they have been built."""
    return cache / "kubernetes" / f"{KUBERNETES_VERSION}-etcd-{ETCD_VERSION}"


def build(cache: Path, report: Report) -> Path:
    """The directory of the programs; built only where it is not there yet.

    Takes 13 minutes of one core, 4.5 GB of Go's caches and 0.3 GB here. What was compiled before an interruption is
    not compiled again. Raises SandboxError without a fitting Go or without the modules.
    """
    target = programs_directory(cache)
    if target.is_dir():
        return target
    if shutil.which("go") is None:
        raise SandboxError("no 'go' was found: a real control plane is built from source, install Go 1.26 or newer")
    target.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=target.parent) as scratch:
        directory = Path(scratch)
        programs = directory / "bin"
        _build_etcd(directory / "etcd", programs, report)
        _build_kubernetes(directory / "kubernetes", programs, report)
        programs.replace(target)
    return target


def _build_etcd(module: Path, programs: Path, report: Report) -> None:
    server = "go.etcd.io/etcd/server/v3"
    report(f"etcd {ETCD_VERSION}: fetching and building")
    _start_module(module)
    _go(module, "mod", "edit", f"-require={server}@{ETCD_VERSION}")
    _compile(module, programs / "etcd", server, "-s -w")


def _build_kubernetes(module: Path, programs: Path, report: Report) -> None:
    """Kubernetes refuses to be required as it is: its go.mod replaces its own parts by directories beside it.

    Those parts are published under their own version, v0.X.Y for v1.X.Y, so the same replacements are made here.
    """
    kubernetes = f"k8s.io/kubernetes@{KUBERNETES_VERSION}"
    report(f"Kubernetes {KUBERNETES_VERSION}: fetching")
    _start_module(module)
    described = json.loads(_go(module, "mod", "download", "-json", kubernetes))
    own = Path(described["GoMod"]).read_text()
    part_version = f"v0.{KUBERNETES_VERSION.removeprefix('v1.')}"
    edits = [f"-require={kubernetes}"]
    edits += [f"-replace={part}={part}@{part_version}" for part in own_parts(own)]
    if language := re.search(r"^go (\S+)$", own, re.MULTILINE):
        edits.append(f"-go={language[1]}")
    _go(module, "mod", "edit", *edits)
    minor = KUBERNETES_VERSION.split(".")[1]
    told = {"gitVersion": KUBERNETES_VERSION, "gitMajor": "1", "gitMinor": minor}
    flags = " ".join(f"-X k8s.io/component-base/version.{name}={value}" for name, value in told.items())
    for component in COMPONENTS:
        report(f"Kubernetes {KUBERNETES_VERSION}: building {component}")
        _compile(module, programs / component, f"k8s.io/kubernetes/cmd/{component}", f"-s -w {flags}")


def own_parts(go_mod: str) -> list[str]:
    """The modules that Kubernetes replaces by directories of its own, in alphabetical order."""
    return sorted(set(_STAGING.findall(go_mod)))


def _start_module(module: Path) -> None:
    module.mkdir()
    _go(module, "mod", "init", "spillway.dev/controlplane")


def _compile(module: Path, output: Path, package: str, linker_flags: str) -> None:
    _go(module, "build", "-mod=mod", "-trimpath", f"-ldflags={linker_flags}", f"-o={output}", package)


def _go(module: Path, *arguments: str) -> str:
    """The output of a go command in the module's directory."""
    environment = {**os.environ, "CGO_ENABLED": "0", "GOTOOLCHAIN": "local"}
    done = subprocess.run(["go", *arguments], cwd=module, env=environment, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise SandboxError(f"go {_shown(arguments)} failed:\n{done.stderr[-2000:]}")
    return done.stdout


def _shown(arguments: Sequence[str]) -> str:
    return " ".join(arguments)[:200]
