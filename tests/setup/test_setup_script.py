"""``tools/setup.sh`` where something is missing: one message, and the next run heals it. A lock of one package."""

from __future__ import annotations

import os
import re
import subprocess
import threading
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from spillway.sandbox.settings import PROJECT, cache_directory
from spillway.testing.disks import small_disk

SCRIPT = PROJECT / "tools" / "setup.sh"
DEAD_PROXY = dict.fromkeys(("http_proxy", "https_proxy", "HTTP_PROXY", "HTTPS_PROXY"), "http://127.0.0.1:1")
WARM = {"XDG_CACHE_HOME": str(cache_directory().parent), "UV_COMPILE_BYTECODE": "0"}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A project with the lock of one small package."""
    lock = re.search(r"^six==(?:.*\\\n)+.*\n", (PROJECT / "requirements.txt").read_text(), re.MULTILINE)
    assert lock is not None
    (tmp_path / "requirements.txt").write_text(lock[0])
    return tmp_path


def start(folder: Path, venv: Path | str, **variables: str) -> subprocess.Popen[str]:
    """The script without a network."""
    environment = dict(os.environ) | DEAD_PROXY | {"PIP_RETRIES": "0", "UV_HTTP_RETRIES": "0"} | variables
    argv = ["sh", str(SCRIPT), str(venv)]
    return subprocess.Popen(
        argv, cwd=folder, env=environment, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )


def run(folder: Path, venv: Path | str, **variables: str) -> tuple[int, str, str]:
    process = start(folder, venv, **variables)
    out, err = process.communicate(timeout=160)
    return process.returncode, out, err


@contextmanager
def index_of(wheel: Path, root: Path) -> Iterator[str]:
    """A package index with this one file; gives its address."""
    project = wheel.name.partition("-")[0]
    (root / project).mkdir(parents=True)
    (root / project / wheel.name).symlink_to(wheel)
    with ThreadingHTTPServer(("127.0.0.1", 0), partial(SimpleHTTPRequestHandler, directory=str(root))) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}/"
        server.shutdown()


def has_six(venv: Path) -> bool:
    return subprocess.run([venv / "bin/python", "-c", "import six"], check=False).returncode == 0


def test_two_at_once_wait_for_each_other_and_a_complete_directory_is_left_alone(folder: Path) -> None:
    venv = folder / "venv"
    both = [start(folder, venv, **WARM) for _ in range(2)]
    said = [process.communicate(timeout=160) for process in both]
    assert [(process.returncode, err) for process, (_, err) in zip(both, said, strict=True)] == [(0, ""), (0, "")]
    first, second = sorted((out for out, _ in said), key=lambda out: "complete" in out)
    assert first.endswith("setup: done\n")
    assert second.endswith(f"setup: {venv} is complete\n")
    assert has_six(venv)


@pytest.mark.slow
def test_an_empty_cache_without_network_is_named_and_nothing_counts_as_complete(folder: Path) -> None:
    venv = folder / "venv"
    code, _, err = run(folder, venv, XDG_CACHE_HOME=str(folder / "cache"))
    assert code == 1
    assert err.startswith(
        "setup: downloading uv failed; check that this machine reaches its package index (network, proxy) and run it "
        "again. It said:\n"
    )
    assert err.count("setup:") == 1 and not (venv / ".ready").exists()
    assert [file.name for file in (folder / "cache/spillway/wheels").iterdir()] == []


@pytest.mark.slow
def test_a_download_that_was_cut_off_is_not_taken_for_whole(folder: Path) -> None:
    (whole,) = (cache_directory() / "wheels").glob("uv-*.whl")
    wheels = folder / "cache/spillway/wheels"
    wheels.mkdir(parents=True)
    (wheels / whole.name).write_bytes(whole.read_bytes()[:100_000])
    (folder / "cache/spillway/wheels.new").mkdir()
    variables = {"XDG_CACHE_HOME": str(folder / "cache"), "UV_CACHE_DIR": str(cache_directory().parent / "uv")}
    with index_of(whole, folder / "index") as url:
        assert run(folder, folder / "venv", PIP_INDEX_URL=url, no_proxy="127.0.0.1", **variables)[0] == 0
    assert has_six(folder / "venv")
    assert (wheels / whole.name).stat().st_size == whole.stat().st_size
    assert not (folder / "cache/spillway/wheels.new").exists()


@pytest.mark.slow
def test_a_package_that_is_not_the_locked_one_is_told_as_such(folder: Path) -> None:
    tampered = folder / "six-1.17.0-py2.py3-none-any.whl"
    about = {"METADATA": "Metadata-Version: 2.1\nName: six\nVersion: 1.17.0\n", "WHEEL": "Wheel-Version: 1.0\n"}
    with zipfile.ZipFile(tampered, "w") as wheel:
        for name, text in about.items():
            wheel.writestr(f"six-1.17.0.dist-info/{name}", text)
    with index_of(tampered, folder / "index") as url:
        empty = {"UV_CACHE_DIR": str(folder / "uv"), "UV_DEFAULT_INDEX": url, "NO_PROXY": "127.0.0.1"}
        code, _, err = run(folder, folder / "venv", **WARM, **empty)
    assert (code, (folder / "venv/.ready").exists()) == (1, False)
    assert err.startswith(
        "setup: installing the locked packages failed; see why the package index, or a proxy before it, gives another "
        "file than the one that was locked and run it again. It said:\n"
    )


@pytest.mark.slow
def test_a_full_disk_is_named_and_the_next_run_heals(folder: Path) -> None:
    with small_disk(folder / "disk", "size=6m") as disk:
        code, _, err = run(folder, disk / "venv", **WARM)
        assert code == 1
        assert f" failed; free some space on the disks of {disk}/venv, " in err and err.count("setup:") == 1
        assert not (disk / "venv/.ready").exists()
        subprocess.run(["mount", "-o", "remount,size=200m", str(disk)], check=True)
        assert run(folder, disk / "venv", **WARM)[0] == 0
        assert has_six(disk / "venv")


def test_a_cache_that_cannot_be_written_is_named_before_anything_is_made(folder: Path) -> None:
    (folder / "file").touch()
    assert run(folder, folder / "venv", XDG_CACHE_HOME=str(folder / "file")) == (
        1,
        "",
        f"setup: the cache '{folder}/file/spillway' cannot be written; name another directory: "
        "XDG_CACHE_HOME=/path make setup\n",
    )
    assert not (folder / "venv").exists()


@pytest.mark.parametrize("named", ["venv", "venv/"], ids=["plain", "with a slash"])
def test_an_environment_behind_a_symbolic_link_is_left_as_it_is(folder: Path, named: str) -> None:
    another = folder / "another"
    another.mkdir()
    (another / "kept").touch()
    (folder / "venv").symlink_to(another)
    assert run(folder, named, **WARM) == (
        1,
        "",
        f"setup: '{named}' is a symbolic link to '{another}', which may be another tree's environment; remove the link "
        "and run it again\n",
    )
    assert [file.name for file in another.iterdir()] == ["kept"]
