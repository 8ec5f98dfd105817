"""One OCI registry of the sandbox: Debian's docker-registry on loopback, with a password, as a process of our own."""

from __future__ import annotations

import secrets
import subprocess
from pathlib import Path

import yaml

from spillway.errors import SandboxError
from spillway.sandbox import debian
from spillway.sandbox.process import ProcessSpec, http_answers
from spillway.sandbox.settings import write_private

PACKAGES = ("docker-registry", "apache2-utils")
"""The registry, and the program that makes its password file."""
HASH_COST = "4"
"""The registry checks the hash at every request; its generated password needs no slow hash against guessing."""


def registry_process(
    *, name: str, state_dir: Path, port: int, username: str, password: str, cache: Path
) -> ProcessSpec:
    """The process of a registry that keeps its images under ``state_dir``; fetches its program on first use.

    Writes the registry's configuration and password file, readable by this user only.

    Raises:
        SandboxError: the program cannot be had.
    """
    root = registry_programs(cache)
    state_dir.mkdir(parents=True, exist_ok=True)
    (state_dir / "images").mkdir(mode=0o700, exist_ok=True)
    write_private(state_dir / "htpasswd", password_line(root, username, password))
    write_private(state_dir / "config.yml", yaml.safe_dump(_configuration(name, state_dir, port), sort_keys=False))
    return ProcessSpec(
        name=name,
        argv=(str(root / "usr/bin/docker-registry"), "serve", str(state_dir / "config.yml")),
        environment={**debian.environment(root), "HOME": str(state_dir), "OTEL_TRACES_EXPORTER": "none"},
        working_directory=state_dir,
        ready=lambda: http_answers(f"http://127.0.0.1:{port}/v2/", statuses=(401,)),
        ports=(port,),
    )


def registry_programs(cache: Path) -> Path:
    """The folder with the registry's programs, fetched on first use; raises SandboxError where they cannot be had."""
    return debian.unpack(PACKAGES, cache=cache)


def _configuration(name: str, state_dir: Path, port: int) -> dict[str, object]:
    return {
        "version": 0.1,
        "log": {"level": "warn", "accesslog": {"disabled": True}},
        "storage": {
            "filesystem": {"rootdirectory": str(state_dir / "images")},
            "delete": {"enabled": True},
        },
        "http": {"addr": f"127.0.0.1:{port}", "secret": _upload_secret(state_dir / "upload_secret")},
        "auth": {"htpasswd": {"realm": name, "path": str(state_dir / "htpasswd")}},
    }


def _upload_secret(path: Path) -> str:
    """What the registry signs the addresses of unfinished uploads with; they outlive a restart if it stays the same."""
    if not path.exists():
        write_private(path, secrets.token_hex(32))
    return path.read_text()


def password_line(root: Path, username: str, password: str) -> str:
    """The line of a password file for that user, hashed with bcrypt by the program in ``root``."""
    done = subprocess.run(
        [str(root / "usr/bin/htpasswd"), "-niBC", HASH_COST, username],
        input=password,
        env=debian.environment(root),
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode != 0:
        raise SandboxError(
            f"htpasswd could not make the password file of '{username}': {done.stderr.strip()}; "
            f"remove {root} to have its program unpacked anew"
        )
    return done.stdout.strip() + "\n"
