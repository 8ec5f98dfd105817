"""A sandbox with real Airflow (API server, scheduler, DAG processor, triggerer) for end-to-end tests."""

from __future__ import annotations

import os
import shutil
import signal
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from spillway.clouds.base import ClusterClient
from spillway.model import Attempt, PodState
from spillway.runs.local import local_services
from spillway.runs.services import Services
from spillway.sandbox import lifecycle
from spillway.sandbox.airflow import SETTINGS_FILE
from spillway.sandbox.airflow_api import AirflowApi, sandbox_api
from spillway.sandbox.settings import PROJECT, SandboxSettings, sandbox_settings
from spillway.sandbox.supervisor import read_status
from spillway.testing.polling import eventually
from spillway.testing.s3_server import free_port_block

PORTS = 300
PATIENCE_SECONDS = 300.0
"""For anything that Airflow has to do: long enough for a machine that does ten other things."""
PAUSE_SECONDS = 0.5
OVER = frozenset({"success", "failed"})
T = TypeVar("T")


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

    def tasks(self) -> dict[str, dict[str, Any]]:
        """Every task instance by task id; of a mapped task the last one."""
        found = self.api.call("GET", f"{self.path}/taskInstances?limit=100")["task_instances"]
        return {entry["task_id"]: entry for entry in found}

    def states(self) -> dict[str, str | None]:
        """State by task id."""
        return self.api.task_states(self.dag_id, self.run_id)

    def wait(self) -> str:
        """Its final state."""
        return wait_for(lambda: self.api.run_state(self.dag_id, self.run_id), OVER.__contains__)

    def wait_for_task(self, task_id: str, *states: str) -> dict[str, Any]:
        """The task instance once it is in one of the states."""
        return wait_for(lambda: self.tasks().get(task_id) or {}, lambda task: task.get("state") in states)

    def log(self, task_id: str, try_number: int = 1) -> str:
        """The log of one try, as the UI shows it."""
        return self.api.task_log(self.dag_id, self.run_id, task_id, try_number)

    def xcom(self, task_id: str) -> Any:
        """What the task gave."""
        return self.api.xcom(self.dag_id, self.run_id, task_id)

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


@dataclass(frozen=True, slots=True, kw_only=True)
class AirflowSandbox:
    """The running sandbox: Airflow's API, and the library's services looking at the same ledger and sites."""

    settings: SandboxSettings
    api: AirflowApi
    services: Services

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

        found = wait_for(look, lambda a: a is not None and good(a))
        assert found is not None
        return found

    def wait_for_commit(self, run: DagRun, *, number: int = 1, step: int = 1) -> Attempt:
        """The attempt once the platform knows it running and it has committed the step or a later one."""
        attempt = self.wait_for_attempt(run, lambda a: a.started_at is not None, number=number)
        wait_for(lambda: self.committed(attempt), lambda steps: max(steps, default=0) >= step)
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
    own = {"AIRFLOW__CORE__DAGS_FOLDER": folder, "SPILLWAY_JOBS_DIR": jobs}
    (state / SETTINGS_FILE.name).write_text("".join(f"{name}={value}\n" for name, value in own.items()))
    settings = sandbox_settings(state, free_port_block(PORTS))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)  # the supervisor is meant to outlive its Popen
        lifecycle.up(settings, print, dags=unpaused)
    try:
        yield AirflowSandbox(
            settings=settings,
            api=sandbox_api(settings),
            services=local_services(settings.config, settings.connections),
        )
    finally:
        lifecycle.down(settings, print)
