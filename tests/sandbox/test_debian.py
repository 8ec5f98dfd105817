"""Unpacked Debian packages, with the machine's own apt."""

from __future__ import annotations

import os
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from spillway.errors import SandboxError
from spillway.sandbox import debian

NOBODY = 65534
NO_NETWORK = dict.fromkeys(("http_proxy", "https_proxy", "HTTP_PROXY", "HTTPS_PROXY"), "http://127.0.0.1:1")


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One cache for the module, so that its packages are downloaded once."""
    return tmp_path_factory.mktemp("cache")


@pytest.fixture
def cut_network(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in NO_NETWORK.items():
        monkeypatch.setenv(name, value)


def test_an_unpacked_program_runs_with_libraries_the_host_lacks(cache: Path) -> None:
    root = debian.unpack(["apache2-utils"], cache=cache)
    done = subprocess.run(
        [root / "usr/bin/htpasswd", "-nbB", "ada", "secret"],
        env=debian.environment(root),
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.startswith("ada:$2y$")


def test_a_finished_folder_is_used_again_without_network(cache: Path, cut_network: None) -> None:
    first = debian.unpack(["apache2-utils"], cache=cache)
    assert debian.unpack(["apache2-utils"], cache=cache) == first


def test_a_package_that_the_host_has_installed_is_unpacked_too(cache: Path) -> None:
    root = debian.unpack(["base-files"], cache=cache)
    assert (root / "etc/debian_version").is_file() or (root / "usr/lib/os-release").is_file()


def test_half_finished_work_is_done_again(cache: Path, tmp_path: Path) -> None:
    whole = debian.unpack(["apache2-utils"], cache=cache)
    partial = tmp_path / "debian" / f"{whole.name}.partial"
    (partial / "tree/usr/bin").mkdir(parents=True)
    (partial / "tree/usr/bin/htpasswd").write_bytes(b"cut")
    again = debian.unpack(["apache2-utils"], cache=tmp_path)
    program = "usr/bin/htpasswd"
    assert (again / program).read_bytes() == (whole / program).read_bytes()
    assert not partial.exists()


def test_without_network_the_error_names_the_packages_and_leaves_nothing_to_reuse(
    tmp_path: Path, cut_network: None
) -> None:
    with pytest.raises(SandboxError, match=r"apache2-utils could not be downloaded; check that this machine reaches"):
        debian.unpack(["apache2-utils"], cache=tmp_path)
    assert list(tmp_path.glob("debian/apache2-utils-????????????")) == []


def test_an_unknown_package_is_named_after_the_lists_were_refreshed(tmp_path: Path) -> None:
    with pytest.raises(
        SandboxError, match=r"(?s)no-such-package-here could not be downloaded; check the names.*Unable"
    ):
        debian.unpack(["no-such-package-here"], cache=tmp_path)
    assert any((tmp_path / "debian/lists").glob("*Packages*"))


def test_a_machine_without_apt_is_told_apart(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(SandboxError, match=r"'apt-get' is not on this machine.*run the sandbox on Debian"):
        debian.unpack(["apache2-utils"], cache=tmp_path)


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
        return 0 if (debian.unpack(["apache2-utils"], cache=cache) / "usr/bin/htpasswd").is_file() else 1
    except (OSError, SandboxError):
        return 2
