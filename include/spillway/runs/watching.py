"""Watch one launched attempt: one ``poll`` after the other, from the triggerer, a worker or the command line.

A poll reads the pod, its node, the trainer's progress and its new log lines. It never launches anything. When the pod
is lost it drains first: the pod is asked to end and ``poll`` reports the end only when it is gone, or when its node or
cluster has been silent for longer than the pod's grace and a margin, so that whoever acts on the end can fence and go
on.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from datetime import datetime, timedelta

from spillway.checkpoints.progress import read_progress
from spillway.clouds.base import ClusterClient
from spillway.errors import AccessDenied, ResumeMismatch, SpillwayError, Unreachable
from spillway.losses import PodVerdict, VerdictKind, judge, may_hand_over
from spillway.model import Attempt, AttemptState, PodPhase, PodState
from spillway.runs.services import Services

PROGRAM_LOG_LINES = 40
STARTED = frozenset({PodPhase.RUNNING, PodPhase.SUCCEEDED, PodPhase.FAILED})


@dataclass(frozen=True, slots=True, kw_only=True)
class Ended:
    """How the pod of an attempt ended; plain enough to travel in a trigger's event."""

    kind: VerdictKind
    reason: str
    log_tail: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Look:
    """What one poll saw. ``ended`` is None while the attempt goes on; ``pause`` is what the API asked for."""

    summary: str
    log_lines: tuple[str, ...] = ()
    ended: Ended | None = None
    pause: timedelta | None = None


@dataclass(slots=True)
class Watch:
    """The memory between polls of one attempt."""

    services: Services
    attempt: Attempt
    _last: PodState | None = None
    _unreachable_since: datetime | None = None
    _verdict: PodVerdict | None = None
    _stop_asked_at: datetime | None = None
    _logs_until: datetime | None = None
    _first_step_checked: bool = False

    def poll(self) -> Look:
        """One look; an endpoint that does not answer is part of what was seen, never an exception."""
        now = self.services.clock()
        self.attempt = self.services.ledger.attempt(self.attempt.run, self.attempt.number)
        if self.attempt.state is AttemptState.SETTLED:
            reason = f"attempt {self.attempt.number} was settled elsewhere: {self.attempt.reason}"
            return Look(summary=reason, ended=Ended(kind=VerdictKind.FENCED, reason=reason))
        self.services.ledger.renew_lease(self.attempt, now + self.services.configuration.runs.lease)
        try:
            pod = self._pod()
        except (Unreachable, AccessDenied) as problem:
            return self._unreachable(problem, now)
        self._last, self._unreachable_since = pod, None
        self._note_start(pod, now)
        lines = self._new_log_lines(pod)
        self._verdict = self._verdict or self._judge(pod, now)
        if self._verdict is None:
            return Look(summary=self._going_on(pod, now), log_lines=lines)
        return self._drain(pod, now, lines)

    @property
    def _client(self) -> ClusterClient:
        return self.services.site(self.attempt.candidate.cluster).client

    def _pod(self) -> PodState:
        """The pod; once it is gone, with what is known of the node that it was on."""
        pod = self._client.state(self.attempt.label)
        if pod.phase is not PodPhase.GONE or self.attempt.node is None:
            return pod
        nodes = {node.name: node for node in self._client.describe().nodes}
        node = nodes.get(self.attempt.node)
        return dataclasses.replace(
            pod, node=self.attempt.node, node_exists=node is not None, node_ready=node.ready if node else None
        )

    def _judge(self, pod: PodState, now: datetime) -> PodVerdict | None:
        """The verdict once the attempt is over, None while it goes on."""
        policy = self.services.configuration.runs
        verdict = judge(pod, now=now, startup_limit=policy.startup_limit, node_margin=policy.node_margin)
        mismatch = self._first_step_problem()
        if mismatch is not None:
            return PodVerdict(kind=VerdictKind.PROGRAM_ERROR, reason=str(mismatch))
        return None if verdict.watch_on else verdict

    def _going_on(self, pod: PodState, now: datetime) -> str:
        policy = self.services.configuration.runs
        return judge(pod, now=now, startup_limit=policy.startup_limit, node_margin=policy.node_margin).reason

    def _drain(self, pod: PodState, now: datetime, lines: tuple[str, ...]) -> Look:
        """Report the end once no process of the pod can be left, asking the pod to end until then."""
        assert self._verdict is not None
        if not may_hand_over(pod, now=now, node_margin=self.services.configuration.runs.node_margin):
            if self._stop_asked_at is None:
                self._client.stop(self.attempt.label, grace=self.attempt.job.grace)
                self._stop_asked_at = now
            return Look(summary=f"{self._verdict.reason}; waiting for the pod to end", log_lines=lines)
        failed = self._verdict.kind is VerdictKind.PROGRAM_ERROR
        return self._end(self._verdict, lines, self._log_tail(pod) if failed else ())

    def _end(self, verdict: PodVerdict, lines: tuple[str, ...] = (), tail: tuple[str, ...] = ()) -> Look:
        ended = Ended(kind=verdict.kind, reason=verdict.reason, log_tail=tail)
        return Look(summary=verdict.reason, log_lines=lines, ended=ended)

    def _unreachable(self, problem: SpillwayError, now: datetime) -> Look:
        """Silence says nothing of the pod; only past its grace and the margin may the run go on elsewhere."""
        self._unreachable_since = self._unreachable_since or now
        self.services.forget(self.attempt.candidate.cluster)
        policy = self.services.configuration.runs
        last = self._last or PodState(
            name=self.attempt.label, phase=PodPhase.PENDING, cluster=self.attempt.candidate.cluster,
            grace=self.attempt.job.grace,
        )  # fmt: skip
        verdict = judge(
            last,
            now=now,
            startup_limit=policy.startup_limit,
            node_margin=policy.node_margin,
            unreachable_since=self._unreachable_since,
        )
        if verdict.kind is VerdictKind.CLUSTER_UNREACHABLE:
            return self._end(self._verdict or verdict)
        pause = getattr(problem, "retry_after_seconds", None)
        summary = f"no answer since {self._unreachable_since:%H:%M:%S}: {problem}"
        return Look(summary=summary, pause=timedelta(seconds=pause) if pause else None)

    def _note_start(self, pod: PodState, now: datetime) -> None:
        if pod.phase in STARTED and self.attempt.state is AttemptState.LAUNCHED:
            self.attempt = self.services.ledger.advance(
                self.attempt,
                AttemptState.RUNNING,
                pod_uid=pod.uid,
                node=pod.node,
                started_at=pod.started_at or now,
            )

    def _first_step_problem(self) -> ResumeMismatch | None:
        """Whether the trainer began right after its checkpoint; asked until its first step is known."""
        if self._first_step_checked or self.attempt.state is not AttemptState.RUNNING:
            return None
        store = self.services.site(self.attempt.candidate.cluster).checkpoints
        try:
            progress = read_progress(store, self.attempt.run, self.attempt.number)
        except SpillwayError:
            return None
        if progress is None:
            return None
        self._first_step_checked = True
        self.attempt = self.services.ledger.amend(self.attempt, first_step=progress.first_step)
        return resume_problem(self.attempt)

    def _new_log_lines(self, pod: PodState) -> tuple[str, ...]:
        if pod.phase not in STARTED:
            return ()
        try:
            found = self._client.logs(self.attempt.label, since=self._logs_until)
        except SpillwayError:
            return ()
        self._logs_until = found.until or self._logs_until
        return found.lines

    def _log_tail(self, pod: PodState) -> tuple[str, ...]:
        if pod.phase is PodPhase.GONE:
            return ()
        try:
            return self._client.logs(self.attempt.label, tail=PROGRAM_LOG_LINES).lines
        except SpillwayError:
            return ()


def resume_problem(attempt: Attempt) -> ResumeMismatch | None:
    """The error of an attempt whose first step is not its resume step + 1."""
    expected = 1 if attempt.resumed_from_step is None else attempt.resumed_from_step + 1
    if attempt.first_step is None or attempt.first_step == expected:
        return None
    return ResumeMismatch(attempt.run, resumed_from_step=attempt.resumed_from_step, first_step=attempt.first_step)
