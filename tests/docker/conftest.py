"""A container engine of our own, and a base image that is made here: no registry is asked for anything."""

from __future__ import annotations

import io
import subprocess
import sys
import tarfile
import tempfile
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO

import pytest

from spillway.errors import SandboxError
from spillway.sandbox import debian
from spillway.sandbox.sample_image import PYTHON, interpreter
from spillway.sandbox.settings import cache_directory

START_SECONDS = 60
PROGRAMS = ("sh", "awk", "cat", "chmod", "chown", "echo", "ls", "mkdir")
NO_NETWORK = ("--bridge", "none", "--iptables=false", "--ip6tables=false")
LEFT_OUT = frozenset({"__pycache__", "test", "tests", "idle_test", "tkinter", "ensurepip"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Engine:
    """A running dockerd and its client."""

    client: tuple[str, ...]
    environment: dict[str, str]

    def run(self, *arguments: str, stdin: IO[bytes] | None = None) -> str:
        """What the client prints; AssertionError with its complaint where it fails."""
        done = subprocess.run(
            [*self.client, *arguments], env=self.environment, stdin=stdin, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, f"docker {arguments[0]}: {(done.stdout + done.stderr)[-3000:]}"
        return done.stdout


@pytest.fixture(scope="module")
def engine() -> Iterator[Engine]:
    """Debian's dockerd on a socket of its own, without bridge and firewall rules; nothing is left of it afterwards."""
    with tempfile.TemporaryDirectory(prefix="dockerd-") as name:
        folder = Path(name)
        try:
            root = debian.unpack(["docker.io"], cache=cache_directory())
        except SandboxError as problem:
            pytest.fail(f"no container engine can be had, so the Dockerfiles were not built: {problem}")
        environment = {**debian.environment(root), "HOME": str(folder), "DOCKER_BUILDKIT": "0"}
        socket = f"unix://{folder / 'docker.sock'}"
        log = folder / "dockerd.log"
        with log.open("wb") as sink:
            arguments = ("--data-root", str(folder / "data"), "--exec-root", str(folder / "exec"))
            process = subprocess.Popen(
                ["dockerd", "--host", socket, *arguments, "--pidfile", str(folder / "dockerd.pid"), *NO_NETWORK],
                env=environment,
                stdout=sink,
                stderr=subprocess.STDOUT,
            )
        engine = Engine(client=(str(root / "usr/bin/docker"), "--host", socket), environment=environment)
        try:
            _wait_until_it_answers(engine, process, log)
            yield engine
        finally:
            process.terminate()
            process.wait(60)
            _unmount_below(folder)


def _wait_until_it_answers(engine: Engine, process: subprocess.Popen[bytes], log: Path) -> None:
    deadline = time.monotonic() + START_SECONDS
    while subprocess.run(
        [*engine.client, "version"], env=engine.environment, capture_output=True, check=False
    ).returncode:
        if process.poll() is not None or time.monotonic() > deadline:
            end = log.read_text(errors="replace")[-1500:]
            pytest.fail(f"no container engine can be started here, so the Dockerfiles were not built:\n{end}")
        time.sleep(0.2)


def _unmount_below(folder: Path) -> None:
    mounts = [line.split()[1] for line in Path("/proc/mounts").read_text().splitlines()]
    for mount in sorted((mount for mount in mounts if mount.startswith(f"{folder}/")), reverse=True):
        subprocess.run(["umount", "--lazy", mount], check=True)


@pytest.fixture(scope="module")
def base_image(engine: Engine) -> str:
    """An image with this machine's Python, the C library, a few programs, and the locked requirements installed."""
    busybox = debian.unpack(["busybox-static"], cache=cache_directory())
    with tempfile.TemporaryFile() as file:
        with tarfile.open(fileobj=file, mode="w") as archive:
            archive.add(busybox / "bin/busybox", "bin/busybox")
            for program in PROGRAMS:
                _link(archive, f"bin/{program}", "/bin/busybox")
            _add_python(archive)
            _add_text(archive, "etc/passwd", "root:x:0:0:root:/root:/bin/sh\n")
            _add_folder(archive, "tmp", 0o1777)
        file.seek(0)
        variables = "ENV PATH=/usr/local/bin:/bin LD_LIBRARY_PATH=/usr/local/lib"
        engine.run("import", "--change", variables, "-", "base:made-here", stdin=file)
    return "base:made-here"


def _add_python(archive: tarfile.TarFile) -> None:
    library = Path(sys.base_prefix, "lib", f"python{PYTHON}")
    packages = Path(sys.prefix, "lib", f"python{PYTHON}", "site-packages")
    target = f"usr/local/lib/python{PYTHON}"
    archive.add(interpreter(), f"usr/local/bin/python{PYTHON}")
    archive.add(library, target, filter=lambda entry: None if "site-packages" in entry.name else _filtered(entry))
    archive.add(packages, f"{target}/site-packages", filter=_filtered)
    for name in ("python", "python3"):
        _link(archive, f"usr/local/bin/{name}", f"python{PYTHON}")
    start = f"#!/usr/local/bin/python{PYTHON}\nimport sys\nfrom airflow.__main__ import main\nsys.exit(main())\n"
    _add_text(archive, "usr/local/bin/airflow", start, mode=0o755)
    extensions = [*library.glob("lib-dynload/*.so"), *packages.rglob("*.so")]
    for needed in _shared_libraries([interpreter(), *extensions]):
        own = needed.is_relative_to(sys.base_prefix)
        archive.add(needed.resolve(), f"usr/local/lib/{needed.name}" if own else str(needed).lstrip("/"))


def _filtered(entry: tarfile.TarInfo) -> tarfile.TarInfo | None:
    return None if LEFT_OUT.intersection(Path(entry.name).parts) else entry


def _shared_libraries(programs: Iterable[Path]) -> set[Path]:
    """The libraries outside of the packages that the programs are linked with."""
    done = subprocess.run(["ldd", *map(str, programs)], capture_output=True, text=True, check=False)
    found = {Path(word) for line in done.stdout.splitlines() for word in line.split() if word.startswith("/")}
    return {path for path in found if path.is_file() and "site-packages" not in path.parts}


def _add_text(archive: tarfile.TarFile, name: str, text: str, mode: int = 0o644) -> None:
    entry = tarfile.TarInfo(name)
    entry.size, entry.mode = len(text), mode
    archive.addfile(entry, io.BytesIO(text.encode()))


def _add_folder(archive: tarfile.TarFile, name: str, mode: int) -> None:
    entry = tarfile.TarInfo(name)
    entry.type, entry.mode = tarfile.DIRTYPE, mode
    archive.addfile(entry)


def _link(archive: tarfile.TarFile, name: str, target: str) -> None:
    entry = tarfile.TarInfo(name)
    entry.type, entry.linkname = tarfile.SYMTYPE, target
    archive.addfile(entry)
