"""A sandbox with real Airflow (API server, scheduler, DAG processor, triggerer) for end-to-end tests."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from spillway.clouds.base import ClusterClient
from spillway.errors import Missing
from spillway.model import Attempt, PodState
from spillway.runs.local import local_services
from spillway.runs.services import Services
from spillway.sandbox import lifecycle
from spillway.sandbox.airflow import ADMIN, SETTINGS_FILE, airflow_environment
from spillway.sandbox.airflow_api import AirflowApi, sandbox_api
from spillway.sandbox.settings import PROJECT, SandboxSettings
from spillway.sandbox.supervisor import marked_processes, read_status
from spillway.testing.polling import eventually
from spillway.testing.sandbox_server import free_settings

PATIENCE_SECONDS = 300.0
"""For anything that Airflow has to do: long enough for a machine that does ten other things."""
PAUSE_SECONDS = 0.5
OVER = frozenset({"success", "failed"})
QUIET = frozenset({None, "success", "skipped", "upstream_failed", "removed"})
"""States of tasks whose logs do not say why a run failed or hangs."""
T = TypeVar("T")
NOBODY = "nobody"
"""A user of Airflow without a role, who may read no DAG."""
TASK, EXECUTOR = "airflow worker -- ", "airflow worker -- LocalExecutor"
"""How the title of a task's process begins, and that of a worker of the executor, which may have no task."""


def workers(settings: SandboxSettings, task: str = "") -> set[int]:
    """The processes of tasks that have begun and the workers that look after them; ``task`` is the id of one of them.

    Airflow's LocalExecutor does not survive the death of any other worker: an idle one may hold the lock of the queue,
    and a task that one had taken and not begun stays queued until the scheduler is started again.
    """
    ours, found = set(marked_processes(settings.state)), set()
    for pid in ours:
        with contextlib.suppress(OSError):
            title = Path(f"/proc/{pid}/cmdline").read_text()
            if title.startswith(TASK + task) and not title.startswith(EXECUTOR):
                parent = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1]
                found |= {pid, int(parent)}
    return found & ours


def wait_for(look: Callable[[], T], good: Callable[[T], object] = bool) -> T:
    """What ``look`` gives once it is ``good``, asked twice a second: Airflow's answers are not cheap."""
    return eventually(look, good, seconds=PATIENCE_SECONDS, pause=PAUSE_SECONDS)


@dataclass(frozen=True, slots=True, kw_only=True)
class DagRun:
    """One run of a DAG, looked at through the REST API."""

    api: AirflowApi
    dag_id: str
    run_id: str

    @property
    def path(self) -> str:
        return f"/dags/{self.dag_id}/dagRuns/{self.run_id}"

    def facts(self) -> dict[str, Any]:
        """The run as the API tells it."""
        return dict(self.api.call("GET", self.path))

    def instances(self) -> list[dict[str, Any]]:
        """Every task instance, each of a mapped task by itself."""
        return list(self.api.call("GET", f"{self.path}/taskInstances?limit=200")["task_instances"])

    def tasks(self) -> dict[str, dict[str, Any]]:
        """Every task instance by task id; of a mapped task the last one."""
        return {entry["task_id"]: entry for entry in self.instances()}

    def states(self) -> dict[str, str | None]:
        """State by task id, mapped tasks as ``task[index]``."""
        return {_title(entry): entry["state"] for entry in self.instances()}

    def wait(self) -> str:
        """Its final state; a run that failed is told in the output of the test, which pytest shows where it fails."""
        state = self.until(lambda: self.api.run_state(self.dag_id, self.run_id), OVER.__contains__)
        if state == "failed":
            self.tell()
        return state

    def wait_for_task(self, task_id: str, *states: str) -> dict[str, Any]:
        """The task instance once it is in one of the states."""
        return self.until(lambda: self.tasks().get(task_id) or {}, lambda task: task.get("state") in states)

    def until(self, look: Callable[[], T], good: Callable[[T], object] = bool) -> T:
        """``wait_for`` something that this run brings about; the run is told where it does not come."""
        try:
            return wait_for(look, good)
        except AssertionError:
            self.tell()
            raise

    def tell(self) -> None:
        """Print how the tasks are, and the log of each try of those that begun and did not end well."""
        print(f"{self.dag_id} {self.run_id}: {self.states()}")
        for entry in self.instances():
            for number in range(1, entry["try_number"] + 1) if entry["state"] not in QUIET else ():
                with contextlib.suppress(Missing):
                    log = self.log(entry["task_id"], number, map_index=entry["map_index"])
                    print(f"--- {_title(entry)}, {entry['state']}, try {number}\n{log}")

    def log(self, task_id: str, try_number: int = 1, *, map_index: int = -1) -> str:
        """The log of one try: its events, and the messages of its exceptions without their frames."""
        path = f"{self.path}/taskInstances/{task_id}/logs/{try_number}?full_content=true&map_index={map_index}"
        return "\n".join(_log_lines(entry) for entry in self.api.call("GET", path)["content"])

    def xcom(self, task_id: str) -> Any:
        """What the task gave."""
        path = f"{self.path}/taskInstances/{task_id}/xcomEntries/return_value?deserialize=true"
        return self.api.call("GET", path)["value"]

    def mark(self, task_id: str, state: str) -> None:
        """What a person does with "Mark state as"."""
        self.api.call("PATCH", f"{self.path}/taskInstances/{task_id}", {"new_state": state})

    def clear(self, *task_ids: str) -> None:
        """What a person does with "Clear": the tasks and all that follow them, or the whole run."""
        if not task_ids:
            self.api.call("POST", f"{self.path}/clear", {"dry_run": False, "only_failed": False})
            return
        body = {
            "dry_run": False,
            "dag_run_id": self.run_id,
            "task_ids": list(task_ids),
            "only_failed": False,
            "include_downstream": True,
            "reset_dag_runs": True,
        }
        self.api.call("POST", f"/dags/{self.dag_id}/clearTaskInstances", body)


def _title(instance: Mapping[str, Any]) -> str:
    index = instance["map_index"]
    return str(instance["task_id"]) + (f"[{index}]" if index >= 0 else "")


def _log_lines(entry: Any) -> str:
    if isinstance(entry, str):
        return entry
    errors = [f"{error['exc_type']}: {error['exc_value']}" for error in entry.get("error_detail") or ()]
    return "\n".join([str(entry.get("event", entry)), *errors])


@dataclass(frozen=True, slots=True, kw_only=True)
class AirflowSandbox:
    """The running sandbox: Airflow's API, and the library's services looking at the same ledger and sites."""

    settings: SandboxSettings
    api: AirflowApi
    services: Services

    def api_of(self, user: str) -> AirflowApi:
        """The API as a user who is not the sandbox's own, whose password Airflow itself has made."""
        passwords = json.loads((self.settings.airflow_home / "passwords.json").read_text())
        return AirflowApi(self.api.url, user, passwords[user])

    def command(self, *words: str) -> None:
        """What a person does with Airflow's own command line, again and again while its SQLite is busy elsewhere."""

        def carry_out() -> bool:
            argv, told = [str(Path(sys.executable).parent / "airflow"), *words], airflow_environment(self.settings)
            done = subprocess.run(argv, env=told, capture_output=True, text=True, check=False)
            assert done.returncode == 0 or "database is locked" in done.stderr, done.stdout + done.stderr
            return done.returncode == 0

        wait_for(carry_out)

    @contextmanager
    def ledger_away(self) -> Iterator[None]:
        """No ledger where its Connection says, for the length of the block."""
        file = self.settings.state / "ledger.db"
        away = file.rename(file.with_suffix(".away"))
        try:
            yield
        finally:
            away.rename(file)

    def start(self, dag_id: str, conf: Mapping[str, Any], *, logical_date: str | None = None) -> DagRun:
        """A new run of the DAG."""
        run_id = self.api.trigger(dag_id, dict(conf), logical_date=logical_date)
        return DagRun(api=self.api, dag_id=dag_id, run_id=run_id)

    def train(self, job: str, **conf: Any) -> DagRun:
        """A new run of ``train`` that looks at its pod every second."""
        return self.start("train", {"job": job, "poll_seconds": 1, **conf})

    def runs(self, dag_id: str) -> tuple[DagRun, ...]:
        """Every run of the DAG, the oldest first."""
        found = self.api.call("GET", f"/dags/{dag_id}/dagRuns?limit=100&order_by=id")["dag_runs"]
        return tuple(DagRun(api=self.api, dag_id=dag_id, run_id=entry["dag_run_id"]) for entry in found)

    def training_runs(self, run: DagRun) -> tuple[str, ...]:
        """The ledger's runs that the DAG run opened, one a generation."""
        records = self.services.ledger.runs()
        return tuple(
            record.run
            for record in records
            if (record.origin.get("dag_id"), record.origin.get("run_id")) == (run.dag_id, run.run_id)
        )

    def attempts(self, run: DagRun) -> tuple[Attempt, ...]:
        """Every attempt of the DAG run, in order."""
        return tuple(a for name in self.training_runs(run) for a in self.services.ledger.attempts(name))

    def wait_for_attempt(self, run: DagRun, good: Callable[[Attempt], object], *, number: int = 1) -> Attempt:
        """The attempt once it is as wanted."""

        def look() -> Attempt | None:
            return next((a for a in self.attempts(run) if a.number == number), None)

        found = run.until(look, lambda a: a is not None and good(a))
        assert found is not None
        return found

    def wait_for_commit(self, run: DagRun, *, number: int = 1, step: int = 1) -> Attempt:
        """The attempt once the platform knows it running and it has committed the step or a later one."""
        attempt = self.wait_for_attempt(run, lambda a: a.started_at is not None, number=number)
        run.until(lambda: self.committed(attempt), lambda steps: max(steps, default=0) >= step)
        return attempt

    def committed(self, attempt: Attempt) -> tuple[int, ...]:
        """The steps that this attempt has committed at its site."""
        head = self.services.checkpoint_stores(attempt.run)[attempt.candidate.cluster].head()
        return tuple(entry.step for entry in head.committed if entry.attempt == attempt.number) if head else ()

    def client(self, cluster: str) -> ClusterClient:
        """The cluster's client."""
        return self.services.site(cluster).client

    def pod(self, attempt: Attempt) -> PodState:
        """The attempt's pod as its cluster sees it."""
        return self.client(attempt.candidate.cluster).state(attempt.label)

    def kill(self, process: str) -> int:
        """SIGKILL to one of the sandbox's processes, as a crash would end it; the supervisor starts it again."""
        pid = int(str((read_status(self.settings.state) or {})[process]["pid"]))
        os.kill(pid, signal.SIGKILL)
        return pid

    def wait_restarted(self, process: str, old_pid: int) -> None:
        """Return when another process has taken the place of the killed one and is ready."""
        wait_for(
            lambda: (read_status(self.settings.state) or {}).get(process, {}),
            lambda entry: entry.get("state") == "ready" and entry.get("pid") != old_pid,
        )

    @contextmanager
    def held(self, process: str) -> Iterator[None]:
        """Keep a process down for the length of the block."""
        mark = self.settings.state / "held" / process
        mark.parent.mkdir(exist_ok=True)
        mark.touch()
        try:
            wait_for(lambda: (read_status(self.settings.state) or {})[process]["pid"], lambda pid: pid is None)
            yield
        finally:
            mark.unlink(missing_ok=True)


@contextmanager
def running_airflow(state: Path, *, more_dags: Path, jobs: Path, unpaused: tuple[str, ...]) -> Iterator[AirflowSandbox]:
    """A sandbox on free ports with the project's DAGs and those of ``more_dags``; nothing is left of it afterwards."""
    folder = state / "dags"
    for source in (PROJECT / "dags", more_dags):
        shutil.copytree(source, folder, dirs_exist_ok=True, ignore=shutil.ignore_patterns("__pycache__"))
    own = {
        "AIRFLOW__CORE__DAGS_FOLDER": folder,
        "AIRFLOW__CORE__SIMPLE_AUTH_MANAGER_USERS": f"{ADMIN}:admin,{NOBODY}:",
        "SPILLWAY_JOBS_DIR": jobs,
    }
    (state / SETTINGS_FILE.name).write_text("".join(f"{name}={value}\n" for name, value in own.items()))
    settings = free_settings(state)
    lifecycle.up(settings, print, dags=unpaused)
    try:
        yield AirflowSandbox(
            settings=settings,
            api=sandbox_api(settings, patience_seconds=PATIENCE_SECONDS),
            services=local_services(settings.config, settings.connections),
        )
    finally:
        lifecycle.down(settings, print)
