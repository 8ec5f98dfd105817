"""The demo from the first process to the report."""

from __future__ import annotations

import dataclasses
import shutil
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

from spillway.checkpoints.store import CheckpointStore
from spillway.config import job_file, load_job
from spillway.errors import SandboxError
from spillway.model import Attempt, AttemptState, JobSpec
from spillway.runs.carrying import carry
from spillway.runs.explaining import placing, told
from spillway.runs.identity import open_generation
from spillway.runs.local import local_services
from spillway.runs.services import Services
from spillway.sandbox import drills, lifecycle
from spillway.sandbox.airflow_api import AirflowApi, sandbox_api
from spillway.sandbox.demo import breaks
from spillway.sandbox.demo.proof import Facts, check_all, zombie_is_refused
from spillway.sandbox.demo.reference import reference_loss
from spillway.sandbox.demo.report import print_result, write_report
from spillway.sandbox.settings import INCLUDE, PROJECT, SandboxSettings, sandbox_settings
from spillway.sandbox.supervisor import read_status

Say = Callable[[str], None]
JOB = "digits"
DAGS = ("train",)
COMMITS_BEFORE_LOSS = 2
PATIENCE_SECONDS = 300.0


@dataclass(slots=True)
class Story:
    """One demo on a running sandbox; ``timings_s`` is filled as it goes."""

    settings: SandboxSettings
    services: Services
    job: JobSpec
    say: Say
    broken: str | None
    lose_node: Callable[[str], None]
    timings_s: dict[str, float] = field(default_factory=dict)
    run: str = ""
    api: AirflowApi | None = None
    dag_run: str = ""
    failure: str = ""
    newest_step_at_loss: int | None = None
    zombie_refused: bool | None = None

    def play(self) -> None:
        """Train, lose the node, go on in the cloud; ends early, with ``failure`` set, where the run fails."""
        self._break(breaks.BEFORE_START)
        began = time.monotonic()
        self._start()
        first = self._wait("the first attempt to commit", self._first_has_committed)
        self._mark("first_attempt_s", began)
        if first is None:
            return
        self.show_placement(first)
        self._break(breaks.WHILE_FIRST_RUNS)
        lost = time.monotonic()
        self.say(f"step {self._newest('onprem')} is committed; node {first.node} loses power now")
        self.lose_node(str(first.node))
        self.newest_step_at_loss = self._newest("onprem")
        self._break(breaks.AFTER_FIRST_IS_LOST)
        second = self._wait("the second attempt to run", self._second_runs)
        self._mark("loss_to_running_again_s", lost)
        if second is not None:
            self.show_placement(second)
            self._break(breaks.WHILE_SECOND_RUNS)
            self.zombie_refused = zombie_is_refused(self.services, self.run, self._total_steps() + 1)
            self._wait("the run to finish", self._is_over)
        self._mark("whole_run_s", began)

    def show_placement(self, attempt: Attempt) -> None:
        """Why it runs where it runs. Without Airflow whoever carries the run has said so already."""
        if self.api is not None:
            self.say(told(placing(self.services.ledger, attempt)))

    def facts(self) -> Facts:
        """What the checks need beside the evidence."""
        with tempfile.TemporaryDirectory() as folder:
            reference = reference_loss(self.job, Path(folder))
        first = next(iter(self.services.ledger.attempts(self.run)), None)
        return Facts(
            newest_step_at_loss=self.newest_step_at_loss,
            zombie_refused=self.zombie_refused,
            image_digest=first.image_digest if first else None,
            reference_loss=reference,
            total_steps=self._total_steps(),
        )

    def _start(self) -> None:
        if self.api is None:
            origin = {"demo": datetime.now(UTC).isoformat()}
            self.run = open_generation(self.services, self.job, origin)
            threading.Thread(target=self._carry, daemon=True).start()
            return
        self.dag_run = self.api.trigger("train", {"job": JOB, "poll_seconds": 1})
        self.say(f"DAG run {self.dag_run} of train is started: {self.api.url}/dags/train/runs/{self.dag_run}")
        self._wait("the run to be placed", self._placed_by_airflow)

    def _carry(self) -> None:
        try:
            carry(self.services, self.run, self.job, self.say, poll_seconds=0.5)
        except Exception as problem:
            # Whatever ends this thread ends the run: the story must not wait for it.
            self.failure = str(problem) or repr(problem)

    def _placed_by_airflow(self) -> bool:
        for record in self.services.ledger.runs():
            if record.origin.get("run_id") == self.dag_run:
                self.run = record.run
        return bool(self.run and self.services.ledger.attempts(self.run))

    def _first_has_committed(self) -> Attempt | None:
        attempt = self.services.ledger.attempts(self.run)[0] if self.services.ledger.attempts(self.run) else None
        if attempt is None or attempt.state is not AttemptState.RUNNING:
            return None
        head = CheckpointStore(self.services.site(attempt.candidate.cluster).checkpoints, self.run).head()
        return attempt if head and len(head.committed) >= COMMITS_BEFORE_LOSS else None

    def _second_runs(self) -> Attempt | None:
        attempts = self.services.ledger.attempts(self.run)
        running = {AttemptState.RUNNING, AttemptState.SETTLED}
        return attempts[1] if len(attempts) > 1 and attempts[1].state in running else None

    def _is_over(self) -> bool:
        if self.api is not None:
            return self.api.run_state("train", self.dag_run) in ("success", "failed")
        last = self.services.ledger.attempts(self.run)[-1]
        return last.state is AttemptState.SETTLED and str(last.outcome) != "preempted"

    def _wait(self, what: str, done: Callable[[], Any]) -> Any:
        """What ``done`` gives once it gives something; None where the run has failed before."""
        deadline = time.monotonic() + PATIENCE_SECONDS
        while not (found := done()):
            if self._failed():
                return None
            if time.monotonic() > deadline:
                raise SandboxError(f"waited {PATIENCE_SECONDS:.0f} s for {what}, in vain; logs: {self.settings.logs}")
            time.sleep(0.3)
        return found

    def _failed(self) -> bool:
        if self.api is not None and not self.failure and self.api.run_state("train", self.dag_run) == "failed":
            last = self.services.ledger.attempts(self.run)[-1:] if self.run else ()
            self.failure = last[0].reason or "see the task's log" if last else "see the log of the task place"
        return bool(self.failure)

    def _newest(self, site: str) -> int | None:
        head = CheckpointStore(self.services.site(site).checkpoints, self.run).head()
        return head.step if head else None

    def _total_steps(self) -> int:
        return int(self.job.environment["SPILLWAY_STEPS"])

    def _break(self, moment: dict[str, Callable[[breaks.Scene], None]]) -> None:
        if self.broken in moment:
            self.say(f"breaking one mechanism on purpose: {self.broken}")
            moment[self.broken](breaks.Scene(settings=self.settings, services=self.services, run=self.run))

    def _mark(self, phase: str, since: float) -> None:
        self.timings_s[phase] = round(time.monotonic() - since, 2)


def demo_job(services: Services, *, short: bool = False) -> JobSpec:
    """The demo's job; a short one where the only question is which mechanism broke."""
    job = load_job(job_file(INCLUDE / "jobs", JOB), services.configuration.datasets)
    if not short:
        return job
    return dataclasses.replace(job, environment={**job.environment, "SPILLWAY_STEPS": "20"})


def run_demo(
    settings: SandboxSettings,
    say: Say,
    *,
    broken: str | None = None,
    with_airflow: bool = True,
    keep: bool = False,
    report_file: Path | None = None,
) -> int:
    """Set up, play, check, report; 0 where every check has passed.

    A sandbox that ran before is left running. A demo with something broken runs on one of its own, which is thrown
    away.
    """
    began = time.monotonic()
    stage = (
        _kept_stage(settings, say, with_airflow, keep) if broken is None else _own_stage(settings, say, with_airflow)
    )
    with stage as settings:
        services = local_services(settings.config, settings.connections)
        story = Story(
            settings=settings,
            services=services,
            job=demo_job(services, short=broken is not None),
            say=say,
            broken=broken,
            lose_node=partial(drills.node_loss, settings),
            timings_s={"set_up_s": round(time.monotonic() - began, 2)},
            api=sandbox_api(settings) if with_airflow else None,
        )
        story.play()
        report, checks = write_report(story, check_all, report_file or PROJECT / "build" / "demo" / "report.json")
        return print_result(report, checks, story.failure, say)


@contextmanager
def _kept_stage(settings: SandboxSettings, say: Say, with_airflow: bool, keep: bool) -> Iterator[SandboxSettings]:
    """The sandbox, as a whole; what the demo took is given back to one that goes on running afterwards.

    Raises:
        SandboxError: a drill took something before, so that nobody could tell its loss from the demo's.
    """
    if taken := drills.taken(settings):
        raise SandboxError(f"the demo needs the whole sandbox, but drills took {', '.join(taken)}; {drills.WAY_BACK}")
    keep = keep or read_status(settings.state) is not None
    lifecycle.up(settings, say, with_airflow=with_airflow, dags=DAGS)
    try:
        yield settings
    finally:
        if keep:
            drills.recover(settings)
        else:
            lifecycle.down(settings, say)


@contextmanager
def _own_stage(settings: SandboxSettings, say: Say, with_airflow: bool) -> Iterator[SandboxSettings]:
    """A new sandbox beside the given one, on its ports, of which nothing is left."""
    own = sandbox_settings(settings.state.with_name(f"{settings.state.name}-broken"), settings.base_port)
    lifecycle.down(own, lambda text: None)
    shutil.rmtree(own.state, ignore_errors=True)
    try:
        lifecycle.up(own, say, with_airflow=with_airflow, dags=DAGS)
        try:
            yield own
        finally:
            lifecycle.down(own, say)
    finally:
        shutil.rmtree(own.state, ignore_errors=True)
