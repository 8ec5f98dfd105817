"""Airflow's four processes on the sandbox: settings, one-time set-up, process specs."""

from __future__ import annotations

import base64
import hashlib
import importlib.metadata
import json
import os
import subprocess
import sys
import urllib.request
from collections.abc import Mapping, Sequence
from datetime import timedelta
from http.client import HTTPException
from pathlib import Path
from typing import NoReturn

from spillway.errors import SandboxError
from spillway.sandbox.process import ProcessSpec, http_answers, port_open
from spillway.sandbox.settings import INCLUDE, PROJECT, SandboxSettings, credentials, write_private

SETTINGS_FILE = PROJECT / "docker" / "airflow.env"
ADMIN = "admin"
AIRFLOW_STAGE = 2
LINK = "cloud"
"""The one link between the two sites, which has an Airflow pool of its own."""
LINK_SLOTS = 4


def settings_file(file: Path = SETTINGS_FILE) -> Mapping[str, str]:
    """The settings that the sandbox shares with the containers, or those of another file in their format."""
    lines = [line.strip() for line in file.read_text().splitlines()]
    pairs = (line.partition("=") for line in lines if line and not line.startswith("#"))
    return {name: value for name, _, value in pairs}


def airflow_environment(settings: SandboxSettings) -> dict[str, str]:
    """The whole environment of an Airflow process: nothing of the caller's but PATH, HOME and the time zone data.

    ``airflow.env`` in the state directory, where somebody has put one, has the last word.
    """
    made = credentials(settings)
    own = settings.state / SETTINGS_FILE.name
    home = settings.airflow_home
    url = f"http://127.0.0.1:{settings.airflow_port}"
    fernet = base64.urlsafe_b64encode(hashlib.sha256(made["airflow_fernet_source"].encode()).digest()).decode()
    return dict(settings_file()) | {
        "PATH": f"{Path(sys.executable).parent}:/usr/local/bin:/usr/bin:/bin",
        "HOME": os.environ.get("HOME", "/"),
        "LANG": "C.UTF-8",
        "PYTHONPATH": str(INCLUDE),
        "PYTHONUNBUFFERED": "1",
        # Airflow writes titles over its processes' environment, and with it over the supervisor's mark; not with this.
        "SPT_NOENV": "1",
        "AIRFLOW_HOME": str(home),
        "AIRFLOW__CORE__DAGS_FOLDER": str(PROJECT / "dags"),
        "AIRFLOW__CORE__PLUGINS_FOLDER": str(PROJECT / "plugins"),
        "AIRFLOW__CORE__FERNET_KEY": fernet,
        "AIRFLOW__CORE__SIMPLE_AUTH_MANAGER_USERS": f"{ADMIN}:admin",
        "AIRFLOW__CORE__SIMPLE_AUTH_MANAGER_PASSWORDS_FILE": str(home / "passwords.json"),
        "AIRFLOW__CORE__EXECUTION_API_SERVER_URL": f"{url}/execution/",
        "AIRFLOW__API__HOST": "127.0.0.1",
        "AIRFLOW__API__PORT": str(settings.airflow_port),
        "AIRFLOW__API__BASE_URL": url,
        "AIRFLOW__API__SECRET_KEY": made["airflow_jwt_secret"],
        "AIRFLOW__API_AUTH__JWT_SECRET": made["airflow_jwt_secret"] * 2,
        "AIRFLOW__LOGGING__WORKER_LOG_SERVER_PORT": str(settings.airflow_port + 3),
        "AIRFLOW__LOGGING__TRIGGER_LOG_SERVER_PORT": str(settings.airflow_port + 4),
        "AIRFLOW__DATABASE__SQL_ALCHEMY_CONN": f"sqlite:///{home / 'airflow.db'}",
        "AIRFLOW__SECRETS__BACKEND": "airflow.secrets.local_filesystem.LocalFilesystemBackend",
        "AIRFLOW__SECRETS__BACKEND_KWARGS": json.dumps({"connections_file_path": str(settings.connections)}),
        "SPILLWAY_CONFIG_DIR": str(settings.config),
        "SPILLWAY_LINK_POOLS": LINK,
        **(settings_file(own) if own.exists() else {}),
    }


def prepare_airflow(settings: SandboxSettings) -> None:
    """Create the metadata database and the admin's password; a second call changes nothing."""
    home = settings.airflow_home
    home.mkdir(parents=True, exist_ok=True)
    write_private(home / "passwords.json", json.dumps({ADMIN: credentials(settings)["airflow_admin_password"]}))
    migrated, version = home / "migrated", importlib.metadata.version("apache-airflow")
    if migrated.exists() and migrated.read_text() == version:
        return
    command = [str(Path(sys.executable).parent / "airflow"), "db", "migrate"]
    result = subprocess.run(command, env=airflow_environment(settings), capture_output=True, text=True, check=False)
    if result.returncode != 0:
        raise SandboxError(
            f"airflow db migrate failed ({result.returncode}):\n{(result.stdout + result.stderr)[-2000:]}"
        )
    migrated.write_text(version)


def become_airflow(settings: SandboxSettings, words: Sequence[str]) -> NoReturn:
    """Go on as Airflow's own command line, to the sandbox's Airflow; the exit code of the process is its exit code.

    Raises:
        SandboxError: no Airflow has been set up here yet.
    """
    if not (settings.airflow_home / "migrated").exists():
        raise SandboxError("the sandbox here has no Airflow yet; start it first: make up")
    program = str(Path(sys.executable).parent / "airflow")
    os.execve(program, [program, *words], airflow_environment(settings))


def airflow_processes(settings: SandboxSettings) -> tuple[ProcessSpec, ...]:
    """The API server, scheduler, DAG processor and triggerer."""
    port = settings.airflow_port
    health = f"http://127.0.0.1:{port}/api/v2/monitor/health"
    environment = airflow_environment(settings)

    def spec(name: str, *arguments: str, stage: int, ready: str | int) -> ProcessSpec:
        def is_ready() -> bool:
            return component_is_healthy(health, ready) if isinstance(ready, str) else port_open(ready)

        return ProcessSpec(
            name=f"airflow-{name}",
            argv=(str(Path(sys.executable).parent / "airflow"), name, *arguments),
            environment=environment,
            working_directory=settings.airflow_home,
            ready=is_ready if name != "api-server" else lambda: http_answers(health),
            ports=(port,) if name == "api-server" else (),
            stage=stage,
            stop_grace=timedelta(seconds=10),
        )

    return (
        spec("api-server", stage=AIRFLOW_STAGE, ready=port),
        spec("scheduler", stage=AIRFLOW_STAGE + 1, ready="scheduler"),
        spec("dag-processor", stage=AIRFLOW_STAGE + 1, ready="dag_processor"),
        spec("triggerer", stage=AIRFLOW_STAGE + 1, ready="triggerer"),
    )


def component_is_healthy(url: str, component: str) -> bool:
    """Whether Airflow's health report calls the component healthy."""
    try:
        with urllib.request.urlopen(url, timeout=1) as answer:
            return bool(json.load(answer)[component]["status"] == "healthy")
    except (OSError, HTTPException, ValueError, KeyError):
        return False
