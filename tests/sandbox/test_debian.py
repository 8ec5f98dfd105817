"""Unpacked Debian packages, with the machine's own apt: once from the machine's own sources, else from a small one."""

from __future__ import annotations

import hashlib
import os
import re
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from spillway.errors import SandboxError
from spillway.sandbox import debian
from spillway.sandbox.settings import INCLUDE
from spillway.testing.disks import filled, small_disk

NOBODY = 65534
NO_NETWORK = dict.fromkeys(("http_proxy", "https_proxy", "HTTP_PROXY", "HTTPS_PROXY"), "http://127.0.0.1:1")
NEAR = {"no_proxy": "127.0.0.1"}
ABOUT = "Package: hello\nVersion: 1.0\nArchitecture: all\nMaintainer: tests\nDescription: test\n"
INSTALLED = "base-files"
"""A package that every Debian has."""
APT_CONFIG = """\
Dir::Etc::sourcelist "{0}/sources.list";
Dir::Etc::sourceparts "/dev/null";
Dir::State::lists "{0}/lists";
"""


@pytest.fixture(scope="module")
def apt_config() -> Iterator[Path]:
    """Settings under which apt knows a repository of two packages only."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "lists/partial").mkdir(parents=True)
        (folder / "repository").mkdir()
        add_package(folder / "repository", "hello", ABOUT)
        add_package(folder / "repository", INSTALLED, about_installed(INSTALLED))
        for directory in (folder, *folder.rglob("*/")):
            directory.chmod(0o755)
        handler = partial(SimpleHTTPRequestHandler, directory=str(folder / "repository"))
        with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
            threading.Thread(target=server.serve_forever, daemon=True).start()
            source = f"deb [trusted=yes] http://127.0.0.1:{server.server_port}/ ./\n"
            (folder / "sources.list").write_text(source)
            settings = folder / "apt.conf"
            settings.write_text(APT_CONFIG.format(folder))
            variables = dict(os.environ) | {"APT_CONFIG": str(settings)} | NEAR
            update = ["apt-get", "update", "-o", "APT::Sandbox::User=root"]
            subprocess.run(update, env=variables, check=True, capture_output=True)
            yield settings
            server.shutdown()


def about_installed(name: str) -> str:
    """How the machine knows the package that it has: a repository's that is described otherwise is another to apt."""
    shown = subprocess.run(["dpkg-query", "--status", name], capture_output=True, text=True, check=True).stdout
    fields = re.split(r"\n(?=\S)", shown.strip())
    return "".join(f"{field}\n" for field in fields if not field.startswith(("Status:", "Conffiles:")))


def add_package(repository: Path, name: str, about: str) -> None:
    """A package whose program says its name, with half a megabyte of zeros that its archive hardly shows."""
    with tempfile.TemporaryDirectory() as scratch:
        tree = Path(scratch)
        for file, content in {
            "DEBIAN/control": about,
            f"usr/bin/say-{name}": f"#!/bin/sh\necho {name}\n",
            f"usr/share/{name}/zeros": "\0" * (512 << 10),
        }.items():
            (tree / file).parent.mkdir(parents=True, exist_ok=True)
            (tree / file).write_text(content)
        (tree / f"usr/bin/say-{name}").chmod(0o755)
        tree.chmod(0o755)
        archive = repository / f"{name}.deb"
        subprocess.run(["dpkg-deb", "--build", "--root-owner-group", tree, archive], check=True, capture_output=True)
    body = archive.read_bytes()
    entry = f"{about}Filename: ./{archive.name}\nSize: {len(body)}\nSHA256: {hashlib.sha256(body).hexdigest()}\n\n"
    with (repository / "Packages").open("a") as packages:
        packages.write(entry)


@pytest.fixture(autouse=True)
def small_source(apt_config: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The repository of two packages is the machine's only source for the test."""
    for name, value in {"APT_CONFIG": str(apt_config), **NEAR}.items():
        monkeypatch.setenv(name, value)


def cut_network(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in NEAR:
        monkeypatch.delenv(name)
    for name, value in NO_NETWORK.items():
        monkeypatch.setenv(name, value)


def test_a_program_of_the_machines_own_sources_runs_with_libraries_the_host_lacks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("APT_CONFIG")
    root = debian.unpack(["apache2-utils"], cache=tmp_path)
    done = subprocess.run(
        [root / "usr/bin/htpasswd", "-nbB", "ada", "secret"],
        env=debian.environment(root),
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.startswith("ada:$2y$")


def test_a_finished_folder_is_used_again_without_network(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = debian.unpack(["hello"], cache=tmp_path)
    cut_network(monkeypatch)
    assert debian.unpack(["hello"], cache=tmp_path) == first


def test_a_package_that_the_host_has_installed_is_unpacked_too(tmp_path: Path) -> None:
    root = debian.unpack([INSTALLED], cache=tmp_path)
    assert (root / "usr/bin" / f"say-{INSTALLED}").is_file()


def test_half_finished_work_is_done_again(tmp_path: Path) -> None:
    whole = debian.unpack(["hello"], cache=tmp_path / "another")
    partial = tmp_path / "debian" / f"{whole.name}.partial"
    (partial / "tree/usr/bin").mkdir(parents=True)
    (partial / "tree/usr/bin/say-hello").write_bytes(b"cut")
    again = debian.unpack(["hello"], cache=tmp_path)
    program = "usr/bin/say-hello"
    assert (again / program).read_bytes() == (whole / program).read_bytes()
    assert not partial.exists()


def test_without_network_the_error_names_the_packages_and_leaves_nothing_to_reuse(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cut_network(monkeypatch)
    with pytest.raises(SandboxError, match=r"hello could not be had; check that this machine reaches"):
        debian.unpack(["hello"], cache=tmp_path)
    assert list(tmp_path.glob("debian/hello-*")) == []


def test_an_unknown_package_is_named_after_the_lists_were_refreshed(tmp_path: Path) -> None:
    with pytest.raises(SandboxError, match=r"(?s)no-such-package-here could not be had; check the names.*Unable"):
        debian.unpack(["no-such-package-here"], cache=tmp_path)
    assert any((tmp_path / "debian/lists").glob("*Packages*"))


def test_a_machine_without_apt_is_told_apart(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(SandboxError, match=r"'apt-get' is not on this machine.*run the sandbox on Debian"):
        debian.unpack(["hello"], cache=tmp_path)


@pytest.mark.parametrize("room", [0, 200 << 10], ids=["at-once", "while-it-unpacks"])
def test_a_full_disk_is_named_and_the_next_run_heals_it(tmp_path: Path, room: int) -> None:
    with small_disk(tmp_path / "disk", "size=2m") as disk:
        full = pytest.raises(SandboxError, match=r"hello.* could not be had; free some disk space")
        with filled(disk, left_bytes=room), full:
            debian.unpack(["hello"], cache=disk)
        assert [file.name for file in disk.rglob("*") if file.is_file() and file.name != "lock"] == []
        assert debian.unpack(["hello"], cache=disk).is_dir()


def test_a_cache_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(SandboxError, match=rf"choose a cache directory that you may write.*\n{tmp_path}/file/debian: "):
        debian.unpack(["hello"], cache=tmp_path / "file")


def test_two_that_want_the_same_packages_at_once_get_the_same_whole_folder(tmp_path: Path) -> None:
    program = (
        "import sys, pathlib; from spillway.sandbox import debian; "
        "print(debian.unpack(['hello'], cache=pathlib.Path(sys.argv[1])))"
    )
    whole = debian.unpack(["hello"], cache=tmp_path / "another")
    both = [
        subprocess.Popen(
            [sys.executable, "-c", program, str(tmp_path)],
            env=dict(os.environ) | {"PYTHONPATH": str(INCLUDE)},
            stdout=subprocess.PIPE,
            text=True,
        )
        for _ in range(2)
    ]
    folders = {process.communicate()[0].strip() for process in both}
    assert folders == {str(tmp_path / "debian" / whole.name)}
    assert files(Path(folders.pop())) == files(whole)


def files(root: Path) -> list[Path]:
    return sorted(file.relative_to(root) for file in root.rglob("*"))


@pytest.fixture
def open_folder() -> Iterator[Path]:
    """A folder that every user may enter and write."""
    with tempfile.TemporaryDirectory() as name:
        Path(name).chmod(0o777)
        yield Path(name)


def test_an_ordinary_user_can_unpack(open_folder: Path) -> None:
    child = os.fork()
    if child == 0:
        os._exit(_unpack_as_nobody(open_folder))
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def _unpack_as_nobody(cache: Path) -> int:
    """The exit code of the child: never an exception, which would go on in a second pytest."""
    try:
        if os.getuid() == 0:
            os.setgroups([])
            os.setgid(NOBODY)
            os.setuid(NOBODY)
        return 0 if (debian.unpack(["hello"], cache=cache) / "usr/bin/say-hello").is_file() else 1
    except (OSError, SandboxError):
        return 2
