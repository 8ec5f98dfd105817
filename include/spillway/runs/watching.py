"""Watch one launched attempt: one ``poll`` after the other, from the triggerer, a worker or the command line.

A poll reads the pod, its node, the trainer's progress and its new log lines. It never launches anything. When the pod
is lost it drains first: the pod is asked to end and ``poll`` reports the end only when the run may go on elsewhere, so
that whoever acts on the end can fence and go on.
"""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta

from spillway.checkpoints.progress import read_progress
from spillway.clouds.base import ClusterClient
from spillway.errors import SpillwayError, Unreachable
from spillway.handover import OVER, may_hand_over, stuck
from spillway.losses import PodVerdict, judge
from spillway.model import Attempt, AttemptState, Move, MoveState, PodPhase, PodState, VerdictKind
from spillway.placement.explain import name
from spillway.runs.deadline import DeadlineWatch, Standing
from spillway.runs.hearing import Hearing
from spillway.runs.log_tail import last_lines
from spillway.runs.services import Services
from spillway.runs.settling import (
    STARTED,
    Ended,
    end_of,
    looked_after_at,
    note_start,
    progress_facts,
    resume_problem,
    told_at,
)
from spillway.runs.stopping import ask_to_end, note_ending, noted_ending
from spillway.stalls import Stall

PROGRAM_LOG_LINES = 40
ALIVE = frozenset({PodPhase.PENDING, PodPhase.RUNNING})


@dataclass(frozen=True, slots=True, kw_only=True)
class Look:
    """What one poll saw. ``ended`` is None while the attempt goes on; ``pause`` is what the API asked for.

    ``unanswered``: an endpoint refused or was silent, so what is known of it may be out of date. ``alert``: what a
    person is to look at now. ``move``: one that is to be carried out now, by ``deadline.leave``.
    """

    summary: str
    log_lines: tuple[str, ...] = ()
    ended: Ended | None = None
    pause: timedelta | None = None
    unanswered: bool = False
    alert: str | None = None
    move: Move | None = None


def steady_clock() -> Callable[[], datetime]:
    """The moment as it is now, and from then on by a clock that nobody sets: for how long something lasts."""
    began, at = datetime.now(UTC), time.monotonic()
    return lambda: began + timedelta(seconds=time.monotonic() - at)


@dataclass(slots=True)
class Watch:
    """The memory between polls of one attempt. ``logs_until``: up to when its log has been shown.

    ``steady`` counts how long a trainer or a cluster is silent: a wall clock that is set forward is no silence. How old
    a pod is its cluster's clock tells. Leases and what is stored go by the wall clock of ``services``.
    ``_shown``: the last lines of what was shown, which travel with the end of an attempt that did not succeed.
    """

    services: Services
    attempt: Attempt
    logs_until: datetime | None = None
    steady: Callable[[], datetime] = field(default_factory=steady_clock)
    _last: PodState | None = None
    _unreachable_since: datetime | None = None
    _verdict: PodVerdict | None = None
    _stop_asked: bool = False
    _ending_since: datetime | None = None
    _looked_after_at: datetime | None = None
    _hearing: Hearing = field(default_factory=Hearing)
    _deadline: DeadlineWatch = field(default_factory=DeadlineWatch)
    _shown: tuple[str, ...] = ()

    def poll(self) -> Look:
        """One look; an endpoint that does not answer, the ledger's included, is part of what was seen."""
        try:
            return self._poll(self.services.clock())
        except Unreachable as problem:
            return Look(summary=f"not known now: {problem}", unanswered=True)

    def _poll(self, now: datetime) -> Look:
        self.attempt = self.services.ledger.attempt(self.attempt.run, self.attempt.number)
        if self.attempt.state is AttemptState.SETTLED:
            reason = f"attempt {self.attempt.number} was settled elsewhere: {self.attempt.reason}"
            return _end(PodVerdict(kind=VerdictKind.FENCED, reason=reason), tail=self._shown)
        self._looked_after_at = looked_after_at(self.services, self.attempt)
        self.services.ledger.renew_lease(self.attempt, now + self.services.configuration.runs.lease)
        try:
            pod = self.services.pod(self.attempt)
        except SpillwayError as problem:
            return self._unreachable(problem)
        self._last, self._unreachable_since = pod, None
        self.attempt = note_start(self.services, self.attempt, pod)
        news, lines = self._note_progress(), self._new_log_lines(pod)
        read_at = pod.read_at or self.steady()
        seen = self._judge(pod, read_at)
        stall = self._listen(pod, news, lines)
        if seen.kind is VerdictKind.SUCCEEDED:
            self._verdict = seen  # whatever it was asked to end for
        elif self._verdict is None:
            self._verdict = noted_ending(self.attempt) or (self._to_end(stall, now) if seen.watch_on else None)
        if self._verdict is None and seen.watch_on:
            alert, standing = stall.reason if stall else None, self._standing(now)
            told = (seen.reason, str(self._hearing.progress or ""), standing.told if standing else None, alert)
            return Look(
                summary="; ".join(filter(None, told)),
                log_lines=lines or (),
                alert=alert,
                move=standing.move if standing else None,
            )
        self._verdict = self._verdict or seen
        return self._drain(self._verdict, pod, read_at, lines or ())

    def _standing(self, now: datetime) -> Standing | None:
        """How an attempt that trains stands with its deadline."""
        if self.attempt.state is not AttemptState.RUNNING:
            return None
        return self._deadline.look(self.services, self.attempt, self._hearing.progress, now)

    def _to_end(self, stall: Stall | None, now: datetime) -> PodVerdict | None:
        """Why an attempt whose pod goes on is to end, or None."""
        if stall is not None and stall.over:
            return PodVerdict(kind=VerdictKind.STALLED, reason=stall.reason)
        return self._ordered_away(now) or self._displaced(now)

    def _displaced(self, now: datetime) -> PodVerdict | None:
        """That the attempt is to give way to one that waits for its room and nothing else."""
        other = self.services.ledger.displacing(self.attempt, now)
        if other is None:
            return None
        first = f"{other.run} of '{other.job.department}' ({other.job.priority}), which comes first"
        return PodVerdict(kind=VerdictKind.DISPLACED, reason=f"it gives way to run {first}")

    def _ordered_away(self, now: datetime) -> PodVerdict | None:
        """That the attempt is to end for a move; one that has brought it here is concluded by its first step."""
        move = self.services.ledger.open_move(self.attempt.run)
        if move is None or self.attempt.number not in {move.attempt, move.to_attempt}:
            return None
        if move.to_attempt is not None:
            if self.attempt.first_step is not None and resume_problem(self.attempt) is None:
                self.services.ledger.confirm_move(self.attempt, now)
            return None
        if move.state is not MoveState.DRAINING:
            return None
        return PodVerdict(kind=VerdictKind.MIGRATED, reason=f"it is moved to {name(move.target)}: {move.reason}")

    @property
    def _client(self) -> ClusterClient:
        return self.services.site(self.attempt.candidate.cluster).client

    def _judge(self, pod: PodState, now: datetime) -> PodVerdict:
        mismatch = resume_problem(self.attempt)
        if mismatch is not None:
            return PodVerdict(kind=VerdictKind.PROGRAM_ERROR, reason=str(mismatch))
        if pod.phase is PodPhase.GONE and self.attempt.pod_uid is None:
            return PodVerdict(kind=VerdictKind.PREEMPTED, reason=f"pod '{pod.name}' was never seen at the cluster")
        policy = self.services.configuration.runs
        return judge(pod, now=now, startup_limit=policy.startup_limit, node_margin=policy.node_margin)

    def _drain(self, verdict: PodVerdict, pod: PodState, now: datetime, lines: tuple[str, ...]) -> Look:
        """Report the end once the run may go on elsewhere; until then, what is waited for."""
        since = self._ending_since = self._ending_since or now
        margin = self.services.configuration.runs.node_margin
        refused = self._ask_to_end(verdict, pod)
        late = stuck(pod, now=now, node_margin=margin, ending_since=since)
        if not may_hand_over(pod, now=now, node_margin=margin, ending_since=since):
            waits = "; ".join(filter(None, [refused, late])) or "waiting for the pod to end"
            return Look(summary=f"{verdict.reason}; {waits}", log_lines=lines)
        reason = "; ".join(filter(None, [verdict.reason, late]))
        at = pod.finished_at
        if pod.phase in OVER:  # it may have ended while nobody watched
            at = end_of(self.services, self.attempt, pod, self._looked_after_at or self.services.clock())
        return _end(dataclasses.replace(verdict, reason=reason), lines=lines, tail=self._log_tail(verdict, pod), at=at)

    def _ask_to_end(self, verdict: PodVerdict, pod: PodState) -> str:
        """Ask a pod that has not ended to, once; gives why it could not be asked."""
        if pod.phase not in ALIVE or self._stop_asked:
            return ""
        self.attempt = note_ending(self.services, self.attempt, verdict.kind, verdict.reason)
        try:
            ask_to_end(self._client, pod, self.attempt.job)
        except SpillwayError as problem:
            return f"it could not be asked to end: {problem}"
        self._stop_asked = True
        return ""

    def _unreachable(self, problem: SpillwayError) -> Look:
        """Silence says nothing of the pod; only past its grace and the margin may the run go on elsewhere."""
        now = self.steady()
        self._unreachable_since = self._unreachable_since or now
        self._hearing.lose()
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
            return _end(self._verdict or verdict, tail=self._shown)
        pause = getattr(problem, "retry_after_seconds", None)
        summary = f"no answer since {self._unreachable_since:%H:%M:%S}: {problem}"
        # However long the API asks for, the lease is to be renewed meanwhile.
        longest = self.services.configuration.runs.lease / 3
        pause_asked = min(timedelta(seconds=pause), longest) if pause else None
        return Look(summary=summary, pause=pause_asked, unanswered=True)

    def _note_progress(self) -> bool | None:
        """Put on record how far the trainer has come: when its whole site is lost, only the ledger still knows.

        Gives whether there is news; None where that is not known.
        """
        if self.attempt.state is not AttemptState.RUNNING:
            return None
        try:
            store = self.services.checkpoints(self.attempt)
            progress = read_progress(store, self.attempt.run, self.attempt.number)
        except SpillwayError:
            return None
        news = self._hearing.note_object(progress)
        if news and progress is not None:
            facts = progress_facts(progress)
            if facts.get("committed_step") not in {None, self.attempt.committed_step}:
                facts["committed_at"] = told_at(progress.at, self.services.clock())
            self.attempt = self.services.ledger.amend(self.attempt, **facts)
        return news

    def _new_log_lines(self, pod: PodState) -> tuple[str, ...] | None:
        """What the pod has written since the last look; None where that is not known."""
        if pod.phase not in STARTED:
            return None
        try:
            found = self._client.logs(self.attempt.label, since=self.logs_until)
        except SpillwayError:
            return None
        self.logs_until = found.until or self.logs_until
        self._shown = last_lines((*self._shown, *found.lines))
        return found.lines

    def _listen(self, pod: PodState, news: bool | None, lines: tuple[str, ...] | None) -> Stall | None:
        """The stall that there is by now. It stays on record until the trainer is heard again."""
        word = None if lines is None else self._hearing.note_lines(lines)
        known = news is not None and word is not None and pod.phase is PodPhase.RUNNING and pod.node_ready is not False
        heard = bool(news or word) if known else None
        stall = self._hearing.stall(self.attempt.job.stall, self.steady(), heard=heard)
        told = stall.reason if stall else ""
        if self.attempt.ending is None and (self.attempt.reason or "") != told:
            self.attempt = self.services.ledger.amend(self.attempt, reason=told)
        return stall

    def _log_tail(self, verdict: PodVerdict, pod: PodState) -> tuple[str, ...]:
        """What whoever acts on the end needs of the log: the program's last words, or of a lost pod what was shown."""
        if verdict.kind is VerdictKind.SUCCEEDED:
            return ()
        if verdict.kind is VerdictKind.PROGRAM_ERROR and pod.phase is not PodPhase.GONE:
            with suppress(SpillwayError):
                found = self._client.logs(self.attempt.label, tail=PROGRAM_LOG_LINES)
                return last_lines(found.lines, at_most=PROGRAM_LOG_LINES)
        return self._shown


def _end(
    verdict: PodVerdict, *, lines: tuple[str, ...] = (), tail: tuple[str, ...] = (), at: datetime | None = None
) -> Look:
    ended = Ended(kind=verdict.kind, reason=verdict.reason, log_tail=tail, at=at)
    return Look(summary=verdict.reason, log_lines=lines, ended=ended)
