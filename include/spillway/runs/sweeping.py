"""Put right what nobody looks after any more: leases, pods without an owner, bookings, what ended long ago, Secrets."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Any

from spillway.clouds.base import ClusterClient
from spillway.errors import SpillwayError
from spillway.handover import OVER
from spillway.leases import clock_problem, clocks_agree, state_at
from spillway.model import Attempt, AttemptState, PodState, Snapshot, VerdictKind
from spillway.runs.admission import abandoned, expire_leases, expire_moves, snapshot
from spillway.runs.aftermath import KEPT_FOR, lately_settled, pod_of, rebook, removable, remove, unbilled
from spillway.runs.services import Say, Services
from spillway.runs.settling import note_start, settle_over
from spillway.runs.stopping import ask_to_end, note_ending
from spillway.runs.withdrawn import withdrawn

OwnerAlive = Callable[[Mapping[str, Any]], bool]
"""Whether the task that a run belongs to (its recorded origin) may still be looking after it."""


class Remedy(StrEnum):
    EXPIRED = "expired"
    STOPPED = "stopped"
    REBOOKED = "rebooked"
    REMOVED = "removed"
    LEFT_ALONE = "left alone"


@dataclass(frozen=True, slots=True, kw_only=True)
class Swept:
    """One thing that was put right; ``done`` is False in a dry run, where it failed and where it was not dared.

    ``attempt`` is the attempt's label, which is also its pod's name; of a move it is the move's, and of a Secret or
    ConfigMap its name.
    """

    cluster: str
    attempt: str
    remedy: Remedy
    reason: str
    done: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class _Case:
    """A pod of ours, or what is left of one that is gone; ``attempt`` is None where the ledger knows none.

    ``began_at`` is the moment of the sweep that leases are judged by: clocks were compared then.
    """

    services: Services
    say: Say
    owner_alive: OwnerAlive
    began_at: datetime
    client: ClusterClient
    pod: PodState
    attempt: Attempt | None

    @property
    def label(self) -> str:
        return self.pod.attempt or self.pod.name

    @property
    def settled(self) -> Attempt | None:
        """The attempt, where it is settled and this is its pod, not another one of that name."""
        attempt = self.attempt
        is_its = attempt and attempt.state is AttemptState.SETTLED and attempt.pod_uid == self.pod.uid
        return attempt if is_its else None


def sweep(services: Services, owner_alive: OwnerAlive, say: Say, *, dry_run: bool = False) -> tuple[Swept, ...]:
    """Close the attempts that nobody renews and of which no pod runs, then see to every pod of this installation, and
    to what pods were given to read datasets with that may not be read so any more.

    Clusters that do not answer are left as they are, and so are the pods of other installations, and attempts whose
    lease is over by a clock that is not their cluster's. A dry run changes nothing.
    """
    seen = snapshot(services)
    swept = [
        *_undecided(services, seen, say, dry_run=dry_run),
        *_give_up_moves(services, seen, say, dry_run=dry_run),
        *_expire(services, seen, say, dry_run=dry_run),
    ]
    seen_to = {entry.attempt for entry in swept}
    for case in _cases(services, seen.taken_at, owner_alive, say):
        if case.label not in seen_to:
            swept += _remedied(case, dry_run=dry_run)
    return (*swept, *_withdraw(services, seen, say, dry_run=dry_run))


def _undecided(services: Services, seen: Snapshot, say: Say, *, dry_run: bool) -> Iterator[Swept]:
    """The attempts that only a clock which cannot be right says nobody renews: the one here, or their cluster's."""
    for attempt in services.ledger.expired(seen.taken_at):
        state = state_at(attempt, seen)
        problem = clock_problem(state.clock_ahead) if state else ""
        if problem:
            cluster, reason = attempt.candidate.cluster, f"{problem}; synchronise both with NTP"
            if not dry_run:
                say(f"{cluster}: {attempt.label} is left alone: {reason}")
            yield Swept(cluster=cluster, attempt=attempt.label, remedy=Remedy.LEFT_ALONE, reason=reason, done=False)


def _give_up_moves(services: Services, seen: Snapshot, say: Say, *, dry_run: bool) -> Iterator[Swept]:
    if dry_run:
        lapsed = services.ledger.lapsed_moves(services.clock()) if clocks_agree(seen) else ()
    else:
        lapsed = expire_moves(services, seen)
    for move in lapsed:
        reason = move.problem or f"nobody renewed it until {move.lease_expires_at.isoformat()}"
        if not dry_run:
            say(f"{move.target.cluster}: {move.label} is given up: {reason}")
        yield Swept(
            cluster=move.target.cluster, attempt=move.label, remedy=Remedy.EXPIRED, reason=reason, done=not dry_run
        )


def _expire(services: Services, seen: Snapshot, say: Say, *, dry_run: bool) -> Iterator[Swept]:
    for attempt in abandoned(services, seen) if dry_run else expire_leases(services, seen):
        if dry_run:
            reason = f"its lease ended at {attempt.lease_expires_at.isoformat()} and no pod of it runs"
        elif attempt.state is AttemptState.SETTLED:
            reason = str(attempt.reason)
            say(f"{attempt.candidate.cluster}: {attempt.label} is closed: {reason}")
        else:  # its lease was renewed in the last moment
            continue
        cluster = attempt.candidate.cluster
        yield Swept(cluster=cluster, attempt=attempt.label, remedy=Remedy.EXPIRED, reason=reason, done=not dry_run)


def _withdraw(services: Services, seen: Snapshot, say: Say, *, dry_run: bool) -> Iterator[Swept]:
    reason = "it lets pods read or keep data that they may not, any more, and no open attempt has it"
    for name, client in services.clients().items():
        if isinstance(client, SpillwayError) or name in seen.unreachable:
            continue  # that is told by now
        try:
            there = withdrawn(services, services.cluster(name), client)
        except SpillwayError as problem:
            say(f"{name}: Secrets of datasets that are read at another site are left alone: {problem}")
            continue
        for kind, label in there:
            done = not dry_run and _withdrawn(client, kind, label, say)
            if done:
                say(f"{name}: {kind} {label} is {Remedy.REMOVED}: {reason}")
            yield Swept(cluster=name, attempt=label, remedy=Remedy.REMOVED, reason=reason, done=done)


def _withdrawn(client: ClusterClient, kind: str, name: str, say: Say) -> bool:
    try:
        client.withdraw(kind, name)
    except SpillwayError as problem:
        say(f"{client.cluster.name}: {kind} {name} could not be {Remedy.REMOVED}: {problem}")
        return False
    return True


def _cases(services: Services, began_at: datetime, owner_alive: OwnerAlive, say: Say) -> Iterator[_Case]:
    """Every pod of ours on every cluster that answers, and those that are gone since their attempts were settled."""
    late = lately_settled(services)
    for name, client in services.clients().items():
        try:
            if isinstance(client, SpillwayError):
                raise client
            pods = _owned(services, client, say)
        except SpillwayError as problem:
            say(f"{name} is left out: {problem}")
            services.forget(name)
            continue
        uids = {pod.uid for pod in pods}
        gone = [
            pod_of(attempt) for attempt in late if attempt.candidate.cluster == name and attempt.pod_uid not in uids
        ]
        for pod in [*pods, *gone]:
            # As it is on record now: what was put right before this pod took its time.
            attempt = services.ledger.attempt_by_label(pod.attempt or pod.name)
            yield _Case(
                services=services,
                say=say,
                owner_alive=owner_alive,
                began_at=began_at,
                client=client,
                pod=pod,
                attempt=attempt,
            )


def _owned(services: Services, client: ClusterClient, say: Say) -> tuple[PodState, ...]:
    """The pods of this installation; those that may be anybody's are told."""
    for pod in client.owned(None):
        say(
            f"{pod.cluster}: {pod.name} is left alone: Spillway launched it, but it does not say for which "
            "installation; it counts as another's until somebody deletes it"
        )
    return client.owned(services.ledger.installation())


def _remedied(case: _Case, *, dry_run: bool) -> Iterator[Swept]:
    """What is wrong with the pod, by each of the rules."""
    cluster, label, say = case.pod.cluster, case.label, case.say
    for remedy, (reason_for, put_right) in RULES.items():
        reason, done = "", False
        try:
            reason = reason_for(case)
            if reason and not dry_run:
                put_right(case, reason)
                done = True
                say(f"{cluster}: {label} is {remedy}: {reason}")
        except SpillwayError as problem:
            say(f"{cluster}: {label} could not be {remedy}: {problem}")
        if reason:
            yield Swept(cluster=cluster, attempt=label, remedy=remedy, reason=reason, done=done)


def _orphan_reason(case: _Case) -> str:
    """Why nobody owns the pod; empty where somebody does or where it has ended by itself."""
    attempt = case.attempt
    if attempt is None:
        return "the ledger knows no such attempt"
    if attempt.state is AttemptState.SETTLED:
        ended = case.pod.phase in OVER
        return "" if ended and case.settled else f"its attempt was settled: {attempt.reason}"
    if attempt.lease_expires_at > case.began_at:
        return ""
    if case.owner_alive(case.services.ledger.origin(attempt.run)):
        return ""
    return "its task has ended and its lease is over"


def _stop(case: _Case, reason: str) -> None:
    """Settle the attempt of a pod that is over; ask any other to end.

    That may take its whole grace, and nobody waits for it here: an attempt that is open keeps its place until then, and
    a later sweep settles it as is noted here.
    """
    services, attempt, pod = case.services, case.attempt, case.pod
    if attempt is not None and attempt.state is not AttemptState.SETTLED:
        if settle_over(services, attempt, pod) is not None:
            return
        attempt = note_ending(services, note_start(services, attempt, pod), VerdictKind.DELETED_BY_PERSON, reason)
    ask_to_end(case.client, pod, attempt.job if attempt else None)


def _unbilled(case: _Case) -> str:
    late = case.settled and unbilled(case.services, case.settled, case.pod)
    return f"its pod worked until {late.ended_at.isoformat()}, which is after it was settled" if late else ""


def _rebook(case: _Case, reason: str) -> None:
    assert case.settled is not None
    rebook(case.services, case.settled, case.pod, reason)


def _outlived(case: _Case) -> str:
    its_time_is_over = case.settled and removable(case.services, case.settled, case.pod)
    hours = KEPT_FOR / timedelta(hours=1)
    return f"its attempt is settled, and it ended more than {hours:.0f} hours ago" if its_time_is_over else ""


def _remove(case: _Case, reason: str) -> None:
    remove(case.client, case.pod, case.say)


RULES: Mapping[Remedy, tuple[Callable[[_Case], str], Callable[[_Case, str], None]]] = {
    Remedy.STOPPED: (_orphan_reason, _stop),
    Remedy.REBOOKED: (_unbilled, _rebook),
    Remedy.REMOVED: (_outlived, _remove),
}
"""For each remedy, why a pod needs it (empty where it does not), and the remedy itself."""
