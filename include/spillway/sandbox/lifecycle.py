"""Bring the sandbox up and down; both may be repeated, and may be cut off anywhere."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

from spillway.errors import SandboxError
from spillway.ledger import upgrade
from spillway.sandbox.airflow import ADMIN, LINK, LINK_SLOTS, airflow_processes, prepare_airflow
from spillway.sandbox.airflow_api import sandbox_api
from spillway.sandbox.configuration import write_configuration, write_connections
from spillway.sandbox.drills import WAY_BACK, give_back, taken
from spillway.sandbox.process import ProcessSpec
from spillway.sandbox.registry import registry_programs
from spillway.sandbox.settings import (
    INCLUDE,
    SandboxSettings,
    cache_directory,
    check_ports,
    credentials,
    write_private,
)
from spillway.sandbox.sites import certificates, machine_processes, seed, site_processes
from spillway.sandbox.supervisor import (
    Supervisor,
    held_processes,
    marked_processes,
    read_status,
    supervisor_pid,
    sweep,
)

Say = Callable[[str], None]


READY_SECONDS = 300.0
STOP_SECONDS = 60.0
FREE_BYTES_NEEDED = 1 << 30
_supervisors: dict[Path, subprocess.Popen[bytes]] = {}
"""By state directory, what this process started: they may outlive it, and those that end before it are waited for."""
DAGS = ("train", "sync_images", "sync_datasets", "upload_checkpoints", "sweep_orphans", "migrate_job", "scale_manually")


class SupervisorRefused(SandboxError):
    """No supervisor of ours runs: what there is of a sandbox here belongs to somebody else."""


def up(settings: SandboxSettings, say: Say, *, with_airflow: bool = True, dags: tuple[str, ...] = DAGS) -> None:
    """Start everything and return when all of it is ready; what runs already, and what drills took, is left alone.

    Args:
        dags: the DAGs that are let run; they are paused when Airflow first sees them.
    Raises:
        SandboxError: a port is taken, the disk is full, the sandbox runs without the Airflow that is asked for, or a
            process did not become ready; the end of its log is shown.
    """
    running = read_status(settings.state)
    if running is None:
        _check_disk(settings.state)
        sweep(settings.state)
        check_ports(settings, with_airflow=with_airflow)
        prepare(settings, say, with_airflow=with_airflow)
    elif with_airflow and not any(map(_is_airflow, running)):
        raise SandboxError(
            f"the sandbox in {settings.state} was started without Airflow and goes on so; to have Airflow beside it, "
            "stop it first (make down); to use it as it is, add --without-airflow"
        )
    try:
        if running is None:
            _spawn_supervisor(settings, with_airflow=with_airflow)
        _await_sites(settings, say)
        if with_airflow:
            _wait_ready(settings, say, lambda name: True)
            sandbox_api(settings).make_pool(
                f"link_{LINK}", LINK_SLOTS, f"tasks that move bytes over the link of {LINK}"
            )
            unpause(settings, dags)
            say(f"Airflow is ready: http://127.0.0.1:{settings.airflow_port}")
    except SupervisorRefused:
        raise
    except BaseException:
        if running is None:
            down(settings, say)
        raise


def _await_sites(settings: SandboxSettings, say: Say) -> None:
    """Return when all that no drill took is ready and every site whose servers are there holds what it should."""
    held = held_processes(settings.state)
    if held:
        say(f"not started, for drills took it: {', '.join(taken(settings))}; {WAY_BACK}")
    say("waiting for the sites")
    _wait_ready(settings, say, lambda name: not _is_airflow(name))
    for site in settings.sites:
        if not held.intersection(site.servers):
            seed(settings, site)
    if not held:
        say("both sites are ready, the sample image and data are on-prem")


def _is_airflow(process: str) -> bool:
    return process.startswith("airflow-")


def prepare(settings: SandboxSettings, say: Say, *, with_airflow: bool) -> None:
    """Everything on disk that the processes need."""
    settings.state.mkdir(parents=True, exist_ok=True)
    write_private(settings.state / "base_port", str(settings.base_port))
    say("writing certificates, configuration and Connections")
    write_configuration(settings)
    write_connections(settings, certificates(settings))
    say("providing the registry's programs")
    registry_programs(cache_directory())  # here, where a slow or missing network is seen by whoever waits
    upgrade(settings.ledger_url)
    if with_airflow:
        say("preparing Airflow's database")
        prepare_airflow(settings)


def processes(settings: SandboxSettings, *, with_airflow: bool) -> tuple[ProcessSpec, ...]:
    """Every process of the sandbox."""
    beside = (sampler_process(settings), *airflow_processes(settings)) if with_airflow else ()
    return site_processes(settings) + beside


def sampler_process(settings: SandboxSettings) -> ProcessSpec:
    """What writes down every half minute what the sites and the queue are like."""
    return ProcessSpec(
        name="sampler",
        argv=(sys.executable, "-m", "spillway", "sample"),
        environment={
            "PATH": "/usr/bin:/bin",
            "HOME": os.environ.get("HOME", "/"),
            "LANG": "C.UTF-8",
            "PYTHONPATH": str(INCLUDE),
            "PYTHONUNBUFFERED": "1",
            "SPILLWAY_CONFIG_DIR": str(settings.config),
            "SPILLWAY_CONNECTIONS": str(settings.connections),
        },
        working_directory=settings.state,
        ready=lambda: True,
        stage=1,
    )


def supervise(settings: SandboxSettings, *, with_airflow: bool) -> None:
    """Be the supervisor, until told to stop."""
    Supervisor(
        state=settings.state,
        specs=processes(settings, with_airflow=with_airflow),
        passing=partial(machine_processes, settings, certificates(settings)),
    ).run()


def unpause(settings: SandboxSettings, dags: tuple[str, ...]) -> None:
    """Let the DAGs run once the DAG processor has brought them in."""
    api = sandbox_api(settings)
    for dag_id in dags:
        api.wait_for_dag(dag_id)
        api.unpause(dag_id)


def down(settings: SandboxSettings, say: Say) -> None:
    """Stop everything, drills too; afterwards no process is left, also where the supervisor had died."""
    pid = supervisor_pid(settings.state)
    if pid is not None:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGTERM)
        _wait_ended(settings.state, say)
        if supervisor_pid(settings.state) == pid:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
    _reap(settings.state)
    swept = sweep(settings.state)
    left = list(marked_processes(settings.state))
    give_back(settings)
    if left:
        raise SandboxError(f"processes {left} of the sandbox could not be ended; end them by hand")
    if swept:
        say(f"{swept} processes of a sandbox without supervisor were ended")
    say("the sandbox is down")


def login(settings: SandboxSettings) -> str:
    """What a person needs to look at the UI."""
    password = credentials(settings)["airflow_admin_password"]
    return f"http://127.0.0.1:{settings.airflow_port}  user: {ADMIN}  password: {password}"


def environment_line(settings: SandboxSettings) -> str:
    """What a person's shell needs for the commands to speak to this sandbox: the packages first, where they are in a
    virtual environment."""
    activate = Path(sys.prefix) / "bin" / "activate"
    return (f". {activate}; " if activate.exists() else "") + (
        f"export PYTHONPATH={INCLUDE} SPILLWAY_CONFIG_DIR={settings.config} SPILLWAY_CONNECTIONS={settings.connections}"
    )


def _reap(state: Path) -> None:
    """Let no supervisor of the state directory be left of those that this process started, nor a trace in its table."""
    supervisor = _supervisors.pop(state, None)
    if supervisor is not None:
        supervisor.kill()  # it has ended, or no longer has the directory that it looks after
        supervisor.wait()


def _spawn_supervisor(settings: SandboxSettings, *, with_airflow: bool) -> None:
    _reap(settings.state)
    settings.logs.mkdir(exist_ok=True)
    argv = [sys.executable, "-m", "spillway.sandbox", "--state", str(settings.state), "supervise"]
    if not with_airflow:
        argv.append("--without-airflow")
    with (settings.logs / "supervisor.log").open("ab") as log:
        process = subprocess.Popen(
            argv,
            env=dict(os.environ) | {"PYTHONPATH": str(INCLUDE)},
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    try:
        deadline = time.monotonic() + STOP_SECONDS
        while read_status(settings.state) is None:
            if process.poll() is not None or time.monotonic() > deadline:
                raise SupervisorRefused(f"the supervisor did not start:\n{tail(settings.logs / 'supervisor.log')}")
            time.sleep(0.1)
        _supervisors[settings.state] = process
    except BaseException:
        process.terminate()
        process.wait()
        raise


def _wait_ready(settings: SandboxSettings, say: Say, wanted: Callable[[str], bool]) -> None:
    deadline = time.monotonic() + READY_SECONDS
    known: set[str] = set()
    while True:
        status = read_status(settings.state)
        if status is None:
            raise SandboxError(f"the supervisor has ended:\n{tail(settings.logs / 'supervisor.log')}")
        names = [name for name in status if wanted(name) and name not in held_processes(settings.state)]
        waiting = [name for name in names if status[name]["state"] != "ready"]
        for name in names:
            if name not in waiting and name not in known:
                known.add(name)
                say(f"  {name} is ready ({len(known)}/{len(names)})")
        if not waiting:
            return
        if time.monotonic() > deadline:
            first = waiting[0]
            raise SandboxError(
                f"{', '.join(waiting)} did not become ready within {READY_SECONDS:.0f} s; the log of {first} ends:\n"
                + tail(settings.logs / f"{first}.log")
            )
        time.sleep(0.3)


def _wait_ended(state: Path, say: Say) -> None:
    """Return when no supervisor is left, or has been for too long; tells what it stops, stage by stage."""
    deadline = time.monotonic() + STOP_SECONDS
    told: set[str] = set()
    while supervisor_pid(state) is not None and time.monotonic() < deadline:
        ending = {name for name, entry in (read_status(state) or {}).items() if entry["state"] == "ending"}
        if ending - told:
            say("stopping " + ", ".join(sorted(ending - told)))
        told |= ending
        time.sleep(0.2)


def _check_disk(state: Path) -> None:
    existing = next(folder for folder in (state, *state.parents) if folder.exists())
    free = shutil.disk_usage(existing).free
    if free < FREE_BYTES_NEEDED:
        raise SandboxError(
            f"{existing} has {free >> 20} MiB free, the sandbox needs {FREE_BYTES_NEEDED >> 20} MiB; "
            "free some space, or choose another disk: SPILLWAY_SANDBOX_DIR=<directory>"
        )


def tail(file: Path, lines: int = 15) -> str:
    """The last lines of a log."""
    if not file.exists():
        return "(no log)"
    return "\n".join(file.read_text(errors="replace").splitlines()[-lines:])
