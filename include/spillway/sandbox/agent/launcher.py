"""Starts one container and stays as its parent: ``python -I -S launcher.py < container.json``.

Runs by itself with nothing but the standard library. It builds the container's root (the image's files laid over the
host's, a private /dev, /tmp and /proc), becomes the parent of the container's PID 1, passes SIGTERM on to it and exits
with its code (128 + n for signal n). It dies with its agent, and PID 1 dies with it, by the kernel's hand.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import signal
import stat
import sys
import tempfile
from pathlib import Path
from typing import Any, TextIO

CLONE_NEWNS, CLONE_NEWUSER, CLONE_NEWPID = 0x00020000, 0x10000000, 0x20000000
MS_RDONLY, MS_REMOUNT, MS_BIND, MS_REC, MS_PRIVATE = 0x1, 0x20, 0x1000, 0x4000, 0x40000
MNT_DETACH = 2
PR_SET_PDEATHSIG = 1
START_FAILED = 128

_LOCKED_FLAGS = os.ST_NOSUID | os.ST_NODEV | os.ST_NOEXEC
_DEVICES = ("null", "zero", "full", "random", "urandom", "tty")
_OWN_DIRECTORIES = frozenset({"proc", "sys", "dev", "tmp", "run", "lost+found"})
_libc = ctypes.CDLL(None, use_errno=True)


def main() -> int:
    container = json.load(sys.stdin)
    _die_with_parent()
    if os.getppid() != container["agent_pid"]:
        return START_FAILED  # the agent died before the kernel was told to watch it
    failure = Path(container["failure_file"]).open("w")  # noqa: SIM115  # stays open across the change of root
    try:
        return _run(container, failure)
    except OSError as problem:
        failure.write(f"cannot start the container: {problem}")
        return START_FAILED
    finally:
        failure.close()


def _run(container: dict[str, Any], failure: TextIO) -> int:
    for procs in container["cgroup_files"]:
        Path(procs).write_text(str(os.getpid()))
    isolation = container["isolation"]
    if isolation != "plain":
        _enter_namespaces(with_user=isolation == "user")
        root = _build_root(container)
    else:
        container = _relocated(container)
    held, release = os.pipe()
    child = os.fork()
    if child == 0:
        _die_with_parent()
        os.close(release)
        if os.read(held, 1):  # the parent is alive and will be watched from here on
            if isolation != "plain":
                _mount("proc", root / "proc", "proc")
                _change_root(root)
            _execute(container, failure)
        os._exit(START_FAILED)
    signal.signal(signal.SIGTERM, lambda *_: os.kill(child, signal.SIGTERM))
    os.write(release, b"1")
    _, status = os.waitpid(child, 0)
    code = os.waitstatus_to_exitcode(status)
    return code if code >= 0 else 128 - code


def _execute(container: dict[str, Any], failure: TextIO) -> None:
    """Become the container's program; gives back control only where that failed."""
    program = container["argv"][0]
    try:
        directory = Path(container["working_directory"])
        directory.mkdir(parents=True, exist_ok=True)
        os.chdir(directory)
        for number in (signal.SIGPIPE, signal.SIGXFSZ):
            signal.signal(number, signal.SIG_DFL)  # Python ignores these, and exec would pass that on
        os.execvpe(program, container["argv"], container["environment"])
    except FileNotFoundError:
        failure.write(f"exec: {program!r}: executable file not found in the image or the host's $PATH")
    except OSError as problem:
        failure.write(f"exec: {program!r}: {problem}")
    failure.flush()


def _relocated(container: dict[str, Any]) -> dict[str, Any]:
    """Without a root of its own: paths in words and variables that the image has are turned into its own."""
    image = container["image_root"]

    def moved(text: str) -> str:
        parts = text.split(":")
        return ":".join(
            image + part if part.startswith("/") and Path(image + part).exists() else part for part in parts
        )

    return {
        **container,
        "argv": [moved(word) for word in container["argv"]],
        "environment": {name: moved(value) for name, value in container["environment"].items()},
        "working_directory": moved(container["working_directory"]),
    }


def _enter_namespaces(*, with_user: bool) -> None:
    uid, gid = os.getuid(), os.getgid()
    _call(_libc.unshare, CLONE_NEWNS | CLONE_NEWPID | (CLONE_NEWUSER if with_user else 0))
    if with_user:
        Path("/proc/self/setgroups").write_text("deny")
        Path("/proc/self/uid_map").write_text(f"0 {uid} 1")
        Path("/proc/self/gid_map").write_text(f"0 {gid} 1")
    _call(_libc.mount, None, b"/", None, MS_REC | MS_PRIVATE, None)


def _build_root(container: dict[str, Any]) -> Path:
    """Mount the container's whole file system under its scratch directory; gives the new root."""
    scratch, image = Path(container["scratch"]), Path(container["image_root"])
    _mount("tmpfs", scratch, "tmpfs")
    root = scratch / "root"
    root.mkdir()
    _mount("tmpfs", root, "tmpfs", "mode=0755")
    options = "userxattr," if container["isolation"] == "user" else ""
    for name in sorted(_names(Path("/"), image) - _OWN_DIRECTORIES):
        _lay(Path(name), image, scratch, root, options)
    for name in ("proc", "sys", "run"):
        (root / name).mkdir()
    (root / "tmp").mkdir()
    (root / "tmp").chmod(0o1777)
    _bind(Path("/sys"), root / "sys")
    _build_dev(root / "dev")
    for mask in container["masks"]:
        hidden = root / mask.lstrip("/")
        if hidden.is_dir():
            _mount("tmpfs", hidden, "tmpfs", "mode=0755")
    for mount in container["mounts"]:
        _bind(Path(mount["source"]), root / mount["target"].lstrip("/"), read_only=mount["read_only"])
    return root


def _lay(path: Path, image: Path, scratch: Path, root: Path, options: str) -> None:
    """One entry of the root: the image's over the host's, writable, every write kept in memory."""
    host, own, target = Path("/") / path, image / path, root / path
    lower = [place.resolve() for place in (own, host) if place.is_dir()]
    if host.is_symlink() and not own.is_dir():
        target.symlink_to(host.readlink())
    elif own.is_symlink():
        target.symlink_to(own.readlink())
    elif own.is_file() or (host.is_file() and not own.is_dir()):
        _bind(own if own.is_file() else host, target, read_only=True)
    elif lower:
        target.mkdir()
        try:
            _overlay(lower, Path(tempfile.mkdtemp(dir=scratch)), target, options)
        except OSError:
            # The kernel refuses a directory that holds the image itself and, in a user namespace, one with mounts
            # inside. Its entries are laid one by one; files among them can then be read but not changed.
            _mount("tmpfs", target, "tmpfs", "mode=0755")
            for name in sorted(_names(*lower)):
                _lay(path / name, image, scratch, root, options)


def _names(*directories: Path) -> set[str]:
    """What is in the directories; nothing of one that may not be read."""
    found = set()
    for directory in directories:
        with contextlib.suppress(PermissionError):
            found |= {path.name for path in directory.iterdir()}
    return found


def _overlay(lower: list[Path], scratch: Path, target: Path, options: str) -> None:
    upper, work = scratch / "upper", scratch / "work"
    for directory in (upper, work):
        directory.mkdir()
    upper.chmod(stat.S_IMODE(lower[0].stat().st_mode))
    layers = ":".join(map(str, lower))
    _mount("overlay", target, "overlay", f"{options}lowerdir={layers},upperdir={upper},workdir={work}")


def _build_dev(dev: Path) -> None:
    dev.mkdir()
    _mount("tmpfs", dev, "tmpfs", "mode=0755")
    (dev / "shm").mkdir()
    _mount("tmpfs", dev / "shm", "tmpfs", "mode=1777")
    for device in [*(Path("/dev") / name for name in _DEVICES), *Path("/dev").glob("nvidia*")]:
        if device.is_char_device():
            _bind(device, dev / device.name)
    for link, target in (("fd", "fd"), ("stdin", "fd/0"), ("stdout", "fd/1"), ("stderr", "fd/2")):
        (dev / link).symlink_to(f"/proc/self/{target}")


def _bind(source: Path, target: Path, *, read_only: bool = False) -> None:
    if source.is_dir():
        target.mkdir(parents=True, exist_ok=True)
    else:
        target.parent.mkdir(parents=True, exist_ok=True)
        target.touch()
    _call(_libc.mount, os.fsencode(source), os.fsencode(target), None, MS_BIND | MS_REC, None)
    if read_only:
        kept = os.statvfs(target).f_flag & _LOCKED_FLAGS  # a user namespace may not drop these
        _call(_libc.mount, None, os.fsencode(target), None, MS_BIND | MS_REMOUNT | MS_RDONLY | kept, None)


def _mount(source: str, target: Path, kind: str, data: str = "") -> None:
    _call(_libc.mount, source.encode(), os.fsencode(target), kind.encode(), 0, data.encode())


def _change_root(root: Path) -> None:
    os.chdir(root)
    _call(_libc.pivot_root, b".", b".")
    _call(_libc.umount2, b".", MNT_DETACH)
    os.chdir("/")


def _die_with_parent() -> None:
    _call(_libc.prctl, PR_SET_PDEATHSIG, signal.SIGKILL)


def _call(function: Any, *arguments: Any) -> None:
    converted = [ctypes.c_ulong(a) if isinstance(a, int) else a for a in arguments]
    if function(*converted) != 0:
        code = ctypes.get_errno()
        what = " ".join(os.fsdecode(a) for a in arguments if isinstance(a, bytes))
        raise OSError(code, f"{function.__name__} {what}: {os.strerror(code)}")


if __name__ == "__main__":
    sys.exit(main())
