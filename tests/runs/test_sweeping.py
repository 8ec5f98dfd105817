"""What nobody looks after any more is put right by the sweeper, and nothing else is touched."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from spillway.clouds.base import INSTALLATION_LABEL, ClusterClient
from spillway.clouds.pod import PodAccess, build_pod
from spillway.ledger import ledger_opener, upgrade
from spillway.model import Attempt, Cluster, ClusterState, JobSpec, Outcome, PodPhase, VerdictKind
from spillway.runs.admission import expire_leases, snapshot
from spillway.runs.engine import Watching
from spillway.runs.migrating import confirmed, order_move
from spillway.runs.services import Services, Site
from spillway.runs.settling import Ended, settle
from spillway.runs.sweeping import Remedy, Swept, sweep
from spillway.testing.carried_run import Carried
from spillway.testing.polling import eventually
from spillway.testing.standing_run import standing
from spillway.testing.sweeps import an_hour_later, later_by, nobody, phase, somebody

MakeJob = Callable[..., JobSpec]
Carry = Callable[[JobSpec], Carried]

ENDLESS: dict[str, Any] = {"steps": 100_000, "every": 50_000, "pace": 0.1}


@dataclass(frozen=True)
class SeenFrom:
    """The client as a machine has it whose clock is fast by that much."""

    client: ClusterClient
    fast: timedelta

    def describe(self) -> ClusterState:
        return replace(self.client.describe(), clock_ahead=-self.fast)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.client, name)


def fast_by(offset: timedelta, services: Services) -> Services:
    """The services of another machine, whose clock is fast."""

    def open_site(cluster: Cluster) -> Site:
        site = services.open_site(cluster)
        return replace(site, client=SeenFrom(site.client, offset))

    return replace(services, open_site=open_site, clock=lambda: datetime.now(UTC) + offset, _opened={})


def put_stranger(services: Services, like: Attempt, name: str = "stranger", *, claimed: bool = True) -> str:
    """A pod of this installation of which the ledger knows nothing; not ``claimed``, one that carries none."""
    site = services.site("onprem")
    pod: Any = build_pod(
        attempt=replace(like, run=name),
        installation=services.ledger.installation(),
        cluster=site.cluster,
        image=f"nowhere.example/train@sha256:{'0' * 64}",
        environment={},
        access=PodAccess(store_secret="store", pull_secret="registry"),
    )
    if not claimed:
        del pod["metadata"]["labels"][INSTALLATION_LABEL]
    return site.client.launch(pod).name


def test_the_sweeper_stops_exactly_the_pods_that_nobody_owns(open_run: Carry, make_job: MakeJob) -> None:
    job = make_job(**ENDLESS, grace=timedelta(seconds=20))
    runs = {name: open_run(job) for name in ("settled", "owned", "lapsed")}
    services = runs["owned"].services
    attempts = {name: run.launched() for name, run in runs.items()}
    settle(services, attempts["settled"], Ended(kind=VerdictKind.LOST_NODE, reason="its node was lost"))
    services.ledger.renew_lease(attempts["owned"], services.clock() + timedelta(hours=3))
    later = an_hour_later(services)
    expected = {
        attempts["settled"].label: "its attempt was settled: its node was lost",
        attempts["lapsed"].label: "its task has ended and its lease is over",
        put_stranger(services, attempts["owned"]): "the ledger knows no such attempt",
    }
    seen = sweep(later, nobody, print, dry_run=True)
    assert {entry.attempt: entry.reason for entry in seen} == expected
    assert {(entry.remedy, entry.done) for entry in seen} == {(Remedy.STOPPED, False)}
    alive = {PodPhase.RUNNING, PodPhase.PENDING}
    assert all(phase(services, pod) in alive for pod in expected)
    looked_after = sweep(later, somebody, print, dry_run=True)
    assert {entry.attempt for entry in looked_after} == expected.keys() - {attempts["lapsed"].label}

    stopped = sweep(later, nobody, print)
    assert {(entry.attempt, entry.done) for entry in stopped} == {(pod, True) for pod in expected}
    eventually(lambda: not any(phase(services, pod) in alive for pod in expected))
    assert phase(services, attempts["owned"].label) is PodPhase.RUNNING


def test_a_sweep_by_a_fast_clock_leaves_the_pods_and_places_of_others_alone(open_run: Carry, make_job: MakeJob) -> None:
    runs = [open_run(make_job(**ENDLESS)) for _ in range(2)]
    trains, waits, services = runs[0].launched(), runs[1].place(), runs[0].services
    fast = fast_by(timedelta(hours=1), services)
    attempts = {trains.label, waits.label}
    reason = "its clock and the one here differ by 3600 s, more than 5 s; synchronise both with NTP"

    for dry_run in (True, False):
        said: list[str] = []
        swept = sweep(fast, nobody, said.append, dry_run=dry_run)
        assert {(entry.attempt, entry.remedy, entry.reason, entry.done) for entry in swept} == {
            (attempt, Remedy.LEFT_ALONE, reason, False) for attempt in attempts
        }
        told = {f"onprem: {attempt} is left alone: {reason}" for attempt in attempts}
        assert set(said) == (set() if dry_run else told)
    assert expire_leases(fast, snapshot(fast)) == ()
    assert runs[0].pod(trains).deleted_at is None
    assert {reservation.attempt for reservation in services.ledger.reservations()} == attempts


def test_a_fast_clock_gives_up_no_move(open_run: Carry, make_job: MakeJob) -> None:
    run = open_run(make_job())
    standing(run)
    move = order_move(run.services, run.run, "cloud", "maintenance", run.said.append, origin={})
    fast = fast_by(timedelta(hours=1), run.services)

    sweep(fast, somebody, run.said.append)

    assert not confirmed(fast, move)
    assert run.services.ledger.moves(run.run) == (move,)


def test_a_sweep_waits_for_no_pod_and_the_next_one_settles_what_it_stopped(open_run: Carry, make_job: MakeJob) -> None:
    run = open_run(make_job(**ENDLESS, grace=timedelta(seconds=20)))
    services, first = run.services, run.launched()
    (stopped,) = sweep(an_hour_later(services), nobody, run.said.append)
    assert (stopped.attempt, stopped.remedy, stopped.done) == (first.label, Remedy.STOPPED, True)
    assert run.attempts[0].outcome is None
    assert [reservation.attempt for reservation in services.ledger.reservations()] == [first.label]
    eventually(lambda: phase(services, first.label) is PodPhase.GONE, seconds=60)

    (expired,) = sweep(later_by(services, 2), nobody, run.said.append)
    assert (expired.attempt, expired.remedy, expired.done) == (first.label, Remedy.EXPIRED, True)
    (over,) = run.attempts
    assert over.outcome is Outcome.CANCELLED and over.reason is not None
    assert over.reason.startswith("its task has ended and its lease is over")
    assert over.committed_step is not None
    assert over.committed_step == over.last_step
    assert [cost.attempt for cost in services.ledger.costs(run.run)] == [over.label]
    assert sweep(later_by(services, 2), nobody, run.said.append) == ()


def test_an_owner_that_comes_back_while_a_sweep_goes_on_keeps_its_pod(open_run: Carry, make_job: MakeJob) -> None:
    runs = [open_run(make_job(**ENDLESS)) for _ in range(2)]
    attempts, services = [run.launched() for run in runs], runs[0].services

    def others_come_back(origin: Mapping[str, Any]) -> bool:
        for attempt in attempts:
            if attempt.run != origin["test"]:
                services.ledger.renew_lease(attempt, services.clock() + timedelta(hours=2))
        return False

    (stopped,) = sweep(an_hour_later(services), others_come_back, print)
    (kept,) = (attempt for attempt in attempts if attempt.label != stopped.attempt)
    assert stopped.remedy is Remedy.STOPPED
    assert runs[attempts.index(kept)].pod(kept).deleted_at is None


def test_a_move_that_nobody_holds_is_given_up_and_a_dry_run_says_so_before(open_run: Carry, make_job: MakeJob) -> None:
    run = open_run(make_job())
    standing(run)
    move = order_move(run.services, run.run, "cloud", "maintenance", run.said.append, origin={})
    later = an_hour_later(run.services)
    planned, done = (sweep(later, somebody, run.said.append, dry_run=dry) for dry in (True, False))
    (would,), (did,) = ([entry for entry in swept if entry.attempt == move.label] for swept in (planned, done))
    assert (would.cluster, would.remedy, would.done) == ("cloud", Remedy.EXPIRED, False)
    assert did == replace(would, done=True)
    assert f"cloud: {move.label} is given up: {did.reason}" in run.said
    assert run.services.ledger.move(run.run, move.number).problem == did.reason


def test_two_installations_in_one_namespace_stop_only_their_own_orphans(
    open_run: Carry, make_job: MakeJob, tmp_path: Path
) -> None:
    run = open_run(make_job())
    attempt, ours = run.place(), run.services
    upgrade(f"sqlite:///{tmp_path}/other.db")
    theirs = replace(ours, open_ledger=ledger_opener(lambda: f"sqlite:///{tmp_path}/other.db"))
    put_stranger(ours, attempt, "ours")
    put_stranger(theirs, attempt, "theirs")
    put_stranger(ours, attempt, "unclaimed", claimed=False)

    def swept(services: Services) -> list[str]:
        said: list[str] = []
        found = [entry.attempt for entry in sweep(services, nobody, said.append)]
        assert any(line.startswith("onprem: unclaimed-1 is left alone") for line in said)
        return found

    assert swept(theirs) == ["theirs-1"]
    eventually(lambda: phase(ours, "theirs-1") is PodPhase.GONE)
    assert phase(ours, "ours-1") is PodPhase.PENDING
    assert swept(ours) == ["ours-1"]
    eventually(lambda: phase(ours, "ours-1") is PodPhase.GONE)
    assert phase(ours, "unclaimed-1") is PodPhase.PENDING
    assert [pod.gpus for pod in ours.site("onprem").client.describe().pods if pod.name == "unclaimed-1"] == [1]


def test_the_sweeper_closes_an_abandoned_attempt_as_its_pod_ended(open_run: Carry, make_job: MakeJob) -> None:
    run = open_run(make_job(steps=2))
    step = run.advance()
    assert isinstance(step, Watching)
    eventually(lambda: phase(run.services, step.attempt.label), lambda seen: seen is PodPhase.SUCCEEDED, seconds=120)
    (entry,) = sweep(an_hour_later(run.services), nobody, run.said.append)
    reason = "the trainer ended with exit code 0"
    assert entry == Swept(cluster="onprem", attempt=step.attempt.label, remedy=Remedy.EXPIRED, reason=reason, done=True)
    (only,) = run.attempts
    assert (only.outcome, only.last_step) == (Outcome.SUCCEEDED, 2)
    (cost,) = run.services.ledger.costs(run.run)
    assert cost.ended_at == only.ended_at == run.services.site("onprem").client.state(only.label).finished_at


def test_a_reservation_whose_owner_died_before_the_launch_is_freed_by_the_sweeper(
    open_run: Carry, make_job: MakeJob
) -> None:
    run, owned = open_run(make_job()), open_run(make_job())
    services = run.services
    attempt, kept = run.place(), owned.place()
    services.ledger.renew_lease(kept, services.clock() + timedelta(hours=2))
    later = an_hour_later(services)

    planned = sweep(later, somebody, run.said.append, dry_run=True)
    assert [(entry.attempt, entry.remedy, entry.done) for entry in planned] == [(attempt.label, Remedy.EXPIRED, False)]
    assert [reservation.attempt for reservation in services.ledger.reservations()] == [attempt.label, kept.label]
    assert run.said[1:] == []

    swept = sweep(later, somebody, run.said.append)
    assert [(entry.attempt, entry.remedy, entry.done) for entry in swept] == [(attempt.label, Remedy.EXPIRED, True)]
    assert [reservation.attempt for reservation in services.ledger.reservations()] == [kept.label]
    assert run.attempts[0].outcome is Outcome.PREEMPTED
    assert sweep(later, somebody, run.said.append) == ()
