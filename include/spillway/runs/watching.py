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

from spillway.checkpoints.progress import Progress, read_progress
from spillway.clouds.base import ClusterClient
from spillway.errors import SpillwayError, Unreachable
from spillway.losses import PodVerdict, VerdictKind, judge, may_hand_over
from spillway.model import Attempt, AttemptState, PodPhase, PodState
from spillway.runs.services import Services
from spillway.runs.settling import STARTED, Ended, note_start, progress_facts, resume_problem
from spillway.runs.stopping import ask_to_end, note_ending, noted_ending

PROGRAM_LOG_LINES = 40
ALIVE = frozenset({PodPhase.PENDING, PodPhase.RUNNING})


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
    _stop_asked: bool = False
    _logs_until: datetime | None = None
    _progress: Progress | None = None

    def poll(self) -> Look:
        """One look; an endpoint that does not answer, the ledger's included, is part of what was seen."""
        try:
            return self._poll(self.services.clock())
        except Unreachable as problem:
            return Look(summary=f"not known now: {problem}")

    def _poll(self, now: datetime) -> Look:
        self.attempt = self.services.ledger.attempt(self.attempt.run, self.attempt.number)
        if self.attempt.state is AttemptState.SETTLED:
            reason = f"attempt {self.attempt.number} was settled elsewhere: {self.attempt.reason}"
            return Look(summary=reason, ended=Ended(kind=VerdictKind.FENCED, reason=reason))
        self.services.ledger.renew_lease(self.attempt, now + self.services.configuration.runs.lease)
        try:
            pod = self._pod()
        except SpillwayError as problem:
            return self._unreachable(problem, now)
        self._last, self._unreachable_since = pod, None
        self.attempt = note_start(self.services, self.attempt, pod)
        self._note_progress()
        lines = self._new_log_lines(pod)
        seen = self._judge(pod, now)
        if self._verdict is None and seen.kind is not VerdictKind.SUCCEEDED:
            self._verdict = noted_ending(self.attempt)
        if self._verdict is None and seen.watch_on:
            return Look(summary=seen.reason, log_lines=lines)
        self._verdict = self._verdict or seen
        return self._drain(self._verdict, pod, now, lines)

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

    def _judge(self, pod: PodState, now: datetime) -> PodVerdict:
        mismatch = resume_problem(self.attempt)
        if mismatch is not None:
            return PodVerdict(kind=VerdictKind.PROGRAM_ERROR, reason=str(mismatch))
        if pod.phase is PodPhase.GONE and self.attempt.pod_uid is None:
            return PodVerdict(kind=VerdictKind.PREEMPTED, reason=f"pod '{pod.name}' was never seen at the cluster")
        policy = self.services.configuration.runs
        return judge(pod, now=now, startup_limit=policy.startup_limit, node_margin=policy.node_margin)

    def _drain(self, verdict: PodVerdict, pod: PodState, now: datetime, lines: tuple[str, ...]) -> Look:
        """Report the end once no process of the pod can be left; a pod that has not ended is asked to, once."""
        if pod.phase in ALIVE and not self._stop_asked:
            self.attempt = note_ending(self.services, self.attempt, verdict.kind, verdict.reason)
            try:
                ask_to_end(self._client, pod, self.attempt.job)
                self._stop_asked = True
            except SpillwayError as problem:
                return Look(summary=f"{verdict.reason}; it could not be asked to end: {problem}", log_lines=lines)
        if not may_hand_over(pod, now=now, node_margin=self.services.configuration.runs.node_margin):
            return Look(summary=f"{verdict.reason}; waiting for the pod to end", log_lines=lines)
        tail = self._log_tail(pod) if verdict.kind is VerdictKind.PROGRAM_ERROR else ()
        return _end(verdict, lines=lines, tail=tail, at=pod.finished_at)

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
            return _end(self._verdict or verdict)
        pause = getattr(problem, "retry_after_seconds", None)
        summary = f"no answer since {self._unreachable_since:%H:%M:%S}: {problem}"
        # However long the API asks for, the lease is to be renewed meanwhile.
        longest = self.services.configuration.runs.lease / 3
        return Look(summary=summary, pause=min(timedelta(seconds=pause), longest) if pause else None)

    def _note_progress(self) -> None:
        """Put on record how far the trainer has come: when its whole site is lost, only the ledger still knows."""
        if self.attempt.state is not AttemptState.RUNNING:
            return
        try:
            store = self.services.site(self.attempt.candidate.cluster).checkpoints
            progress = read_progress(store, self.attempt.run, self.attempt.number)
        except SpillwayError:
            return
        if progress is not None and progress != self._progress:
            self._progress = progress
            self.attempt = self.services.ledger.amend(self.attempt, **progress_facts(progress))

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


def _end(
    verdict: PodVerdict, *, lines: tuple[str, ...] = (), tail: tuple[str, ...] = (), at: datetime | None = None
) -> Look:
    ended = Ended(kind=verdict.kind, reason=verdict.reason, log_tail=tail, at=at)
    return Look(summary=verdict.reason, log_lines=lines, ended=ended)
