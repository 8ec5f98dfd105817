"""The few calls of Airflow's REST API that the sandbox needs."""

from __future__ import annotations

import contextlib
import json
import time
import urllib.error
import urllib.request
import uuid
from typing import Any

from spillway.errors import AccessDenied, Missing, SandboxError, Unreachable
from spillway.sandbox.airflow import ADMIN
from spillway.sandbox.settings import SandboxSettings, credentials

RETRY_PAUSE_SECONDS = 1.0
PATIENCE_SECONDS = 120.0
"""How long a call asks a server again that does not answer."""


class Conflict(SandboxError):
    """What was asked for exists; after a repeated request it may well be our own."""


class AirflowApi:
    """An authenticated client; a call that finds the server restarting tries again for a while."""

    def __init__(self, url: str, username: str, password: str, *, patience_seconds: float = PATIENCE_SECONDS) -> None:
        self.url, self._username, self._password = url, username, password
        self._patience_seconds = patience_seconds
        self._token: str | None = None

    def call(self, method: str, path: str, body: Any = None) -> Any:
        """The answer's JSON, None for an empty one."""
        deadline = time.monotonic() + self._patience_seconds
        while True:
            try:
                return self._once(method, path, body)
            except Unreachable:
                if time.monotonic() > deadline:
                    raise
                time.sleep(RETRY_PAUSE_SECONDS)

    def _once(self, method: str, path: str, body: Any) -> Any:
        return self._send(method, f"/api/v2{path}", body, token=self.token())

    def token(self) -> str:
        """What a request is known by as this user's; asked for once."""
        if self._token is None:
            login = {"username": self._username, "password": self._password}
            self._token = str(self._send("POST", "/auth/token", login, token=None)["access_token"])
        return self._token

    def _send(self, method: str, path: str, body: Any, *, token: str | None) -> Any:
        headers = {"Content-Type": "application/json"}
        if token:
            headers["Authorization"] = f"Bearer {token}"
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(self.url + path, data=data, headers=headers, method=method)
        try:
            with urllib.request.urlopen(request, timeout=30) as answer:
                text = answer.read()
        except urllib.error.HTTPError as problem:
            raise self._typed(problem, method, path) from problem
        except (OSError, ValueError) as problem:
            raise Unreachable(f"Airflow at {self.url}", str(problem)) from problem
        return json.loads(text) if text else None

    def _typed(self, problem: urllib.error.HTTPError, method: str, path: str) -> Exception:
        detail = problem.read().decode(errors="replace")[:500]
        if problem.code in (401, 403):
            self._token = None
            return AccessDenied(f"Airflow at {self.url}", detail, fix="see the password that `up` prints")
        if problem.code == 409:
            return Conflict(f"Airflow refused {method} {path}: {problem.code} {detail}")
        if problem.code == 404:
            return Missing("path", path, f"Airflow at {self.url}")
        if problem.code >= 500:
            return Unreachable(f"Airflow at {self.url}", f"{problem.code} {detail}")
        return SandboxError(f"Airflow refused {method} {path}: {problem.code} {detail}")

    def wait_for_dag(self, dag_id: str, *, seconds: float = 180.0) -> None:
        """Return when the DAG processor has brought the DAG in; SandboxError with its import errors otherwise."""
        deadline = time.monotonic() + seconds
        while True:
            try:
                self.call("GET", f"/dags/{dag_id}")
                return
            except Missing as absent:
                errors = self.call("GET", "/importErrors")["import_errors"]
                if errors or time.monotonic() > deadline:
                    found = (
                        "; ".join(f"{e['filename']}: {e['stack_trace'][-400:]}" for e in errors) or "no import error"
                    )
                    raise SandboxError(f"DAG '{dag_id}' did not appear in Airflow: {found}") from absent
            time.sleep(RETRY_PAUSE_SECONDS)

    def make_pool(self, name: str, slots: int, description: str) -> None:
        """Let there be the pool; one of that name is left as it is."""
        body = {"name": name, "slots": slots, "description": description, "include_deferred": False}
        with contextlib.suppress(Conflict):
            self.call("POST", "/pools", body)

    def unpause(self, dag_id: str) -> None:
        """Let the DAG run."""
        self.call("PATCH", f"/dags/{dag_id}", {"is_paused": False})

    def trigger(self, dag_id: str, conf: dict[str, Any], *, logical_date: str | None = None) -> str:
        """Start a run; gives its run id. A request whose answer was lost is repeated and still starts one run."""
        run_id = f"api__{uuid.uuid4().hex}"
        body = {"dag_run_id": run_id, "logical_date": logical_date, "conf": conf}
        try:
            self.call("POST", f"/dags/{dag_id}/dagRuns", body)
        except Conflict as conflict:
            try:
                self.call("GET", f"/dags/{dag_id}/dagRuns/{run_id}")
            except Missing:
                raise conflict from None
        return run_id

    def run_state(self, dag_id: str, run_id: str) -> str:
        """queued, running, success or failed."""
        return str(self.call("GET", f"/dags/{dag_id}/dagRuns/{run_id}")["state"])


def sandbox_api(settings: SandboxSettings, *, patience_seconds: float = PATIENCE_SECONDS) -> AirflowApi:
    """The client of the sandbox's Airflow."""
    password = credentials(settings)["airflow_admin_password"]
    url = f"http://127.0.0.1:{settings.airflow_port}"
    return AirflowApi(url, ADMIN, password, patience_seconds=patience_seconds)
