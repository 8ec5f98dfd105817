"""Programs of Debian packages in a folder of our own: downloaded by apt, unpacked, never installed.

No service is registered, no maintainer script runs and nothing outside the cache is written, so an ordinary user can
do it too. Libraries that the host has already are taken from the host.
"""

from __future__ import annotations

import fcntl
import hashlib
import logging
import os
import shutil
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from spillway.errors import SandboxError

log = logging.getLogger(__name__)

SYSTEM_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

# A second C library beside the host's own dynamic loader crashes every program; the host's is used always.
NEVER_UNPACKED = ("libc6_", "libc-bin_")

# How apt-get, dpkg-deb, its tar and the system say it.
DISK_FULL = ("No space left", "enough free space", "Disk quota exceeded", "Wrote only")
NOT_WRITABLE = ("Permission denied", "Read-only file system", "Not a directory", "File exists")


def unpack(packages: Sequence[str], *, cache: Path) -> Path:
    """The folder that holds the packages and those of their dependencies that the host lacks.

    A finished folder is used again without network. An unfinished one, of a killed process, is made anew; processes
    that fill the same cache at the same time wait for one another.

    Raises:
        SandboxError: not a Debian-like host, no network, a package that does not exist, or a cache that cannot be
            written or is full; says what to do. Nothing unfinished is left.
    """
    names = sorted(set(packages))
    root = cache / "debian" / _folder_name(names)
    if root.is_dir():
        return root
    for program in ("apt-get", "dpkg-deb"):
        if shutil.which(program) is None:
            raise SandboxError(
                f"'{program}' is not on this machine, so the Debian packages {', '.join(names)} cannot be fetched; "
                "run the sandbox on Debian or Ubuntu"
            )
    try:
        root.parent.mkdir(parents=True, exist_ok=True)
        with _locked(root.with_name("lock")):
            if not root.is_dir():
                _fill(root, names)
    except OSError as problem:
        raise SandboxError(
            _explain(names, f"{problem.filename or root.parent}: {problem.strerror or problem}")
        ) from problem
    return root


def environment(root: Path) -> dict[str, str]:
    """PATH and LD_LIBRARY_PATH with which a program of an unpacked folder runs, the host's programs after its own."""
    programs = [root / part for part in ("usr/sbin", "usr/bin", "sbin", "bin")]
    libraries = {file.parent for top in ("usr/lib", "lib") for file in (root / top).glob("*-linux-gnu*/**/lib*.so*")}
    return {
        "PATH": ":".join([*(str(folder) for folder in programs if folder.is_dir()), SYSTEM_PATH]),
        "LD_LIBRARY_PATH": ":".join(str(folder) for folder in sorted(libraries)),
    }


def _folder_name(names: Sequence[str]) -> str:
    digest = hashlib.sha256(" ".join(names).encode()).hexdigest()[:12]
    return f"{names[0]}-{digest}"


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    with path.open("w") as handle:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield


def _fill(root: Path, names: Sequence[str]) -> None:
    partial = root.with_name(f"{root.name}.partial")
    shutil.rmtree(partial, ignore_errors=True)
    archives, tree = partial / "archives", partial / "tree"
    try:
        (archives / "partial").mkdir(parents=True)
        tree.mkdir()
        log.info("downloading the Debian packages %s", ", ".join(names))
        _download(names, archives, refreshed_lists=root.parent / "lists")
        unpacked = [file for file in sorted(archives.glob("*.deb")) if not file.name.startswith(NEVER_UNPACKED)]
        for archive in unpacked:
            _unpack_one(archive, tree)
        tree.rename(root)
    finally:
        shutil.rmtree(partial, ignore_errors=True)
    log.info("unpacked %d Debian packages for %s into %s", len(unpacked), ", ".join(names), root)


def _download(names: Sequence[str], archives: Path, *, refreshed_lists: Path) -> None:
    """Fetch with the host's package lists; where these are missing or too old, with fresh ones kept in the cache."""
    problem = _fetch(names, archives, ())
    if problem is not None and not _is_disk_full(problem):
        (refreshed_lists / "partial").mkdir(parents=True, exist_ok=True)
        options = ("-o", f"Dir::State::lists={refreshed_lists}")
        problem = _apt(archives, ("update", *options)) or _fetch(names, archives, options)
    if problem is not None:
        raise SandboxError(_explain(names, problem))


def _fetch(names: Sequence[str], archives: Path, options: Sequence[str]) -> str | None:
    """What went wrong, or None. ``--reinstall`` makes apt download a package that the host has installed, too."""
    command = ("install", "--download-only", "--reinstall", "--yes", "--no-install-recommends", *options, *names)
    problem = _apt(archives, command)
    if problem is not None:
        return problem
    absent = [name for name in names if not any(archives.glob(f"{name}_*.deb"))]
    return f"apt downloaded nothing for {', '.join(absent)}" if absent else None


def _apt(archives: Path, arguments: Sequence[str]) -> str | None:
    """What apt-get complained about, or None where it succeeded."""
    settings = {
        "Dir::Cache::archives": str(archives),
        "Dir::Cache::pkgcache": "",
        "Dir::Cache::srcpkgcache": "",
        "Debug::NoLocking": "1",  # the locks guard the host's package database, which is only read here
        "APT::Sandbox::User": "root",  # apt's own user may not enter our folder
        "APT::Update::Error-Mode": "any",
        "Acquire::Retries": "0",  # the second try is made with fresh lists
        "Acquire::http::Timeout": "30",
    }
    options = [part for key, value in settings.items() for part in ("-o", f"{key}={value}")]
    done = subprocess.run(
        ["apt-get", *options, *arguments],
        env={**os.environ, "LC_ALL": "C", "DEBIAN_FRONTEND": "noninteractive"},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode == 0:
        return None
    complaints = [line for line in done.stderr.splitlines() if line.startswith(("E:", "W:"))]
    return "\n".join(complaints[-4:]) or f"apt-get ended with exit code {done.returncode}"


def _explain(names: Sequence[str], problem: str) -> str:
    if "Unable to locate package" in problem or "has no installation candidate" in problem:
        fix = "check the names against the release of this machine, and that its apt sources are complete"
    elif _is_disk_full(problem):
        fix = "free some disk space and try again"
    elif any(words in problem for words in NOT_WRITABLE):
        fix = "choose a cache directory that you may write: XDG_CACHE_HOME=<directory>"
    else:
        fix = "check that this machine reaches its apt sources (network, proxy) and try again"
    return f"the Debian packages {', '.join(names)} could not be had; {fix}:\n{problem}"


def _is_disk_full(problem: str) -> bool:
    return any(words in problem for words in DISK_FULL)


def _unpack_one(archive: Path, tree: Path) -> None:
    done = subprocess.run(
        ["dpkg-deb", "--extract", str(archive), str(tree)], capture_output=True, text=True, check=False
    )
    if done.returncode != 0:
        raise SandboxError(_explain([archive.name], done.stderr.strip()))
