"""What holds of everybody who gives way, whatever runs where."""

from __future__ import annotations

import random
from dataclasses import asdict, replace
from datetime import timedelta
from decimal import Decimal

from hypothesis import given
from hypothesis import strategies as st

from spillway import codec
from spillway.model import (
    Cluster,
    JobSpec,
    PlacementDecision,
    PlacementPolicy,
    PlacementVerdict,
    Priority,
    QuotaShare,
    Reservation,
    Snapshot,
)
from spillway.placement.context import index
from spillway.placement.policy import choose, place
from spillway.placement.preemption import without
from spillway.testing.builders import (
    NOW,
    cloud_cluster,
    cloud_pool,
    cluster_state,
    job_spec,
    node_pool,
    onprem_cluster,
    open_attempt,
    placement_policy,
    pod,
    reservation,
    snapshot,
)

LEFT_ALONE = timedelta(minutes=10)
SHARES = {name: QuotaShare(onprem=Decimal("0.4"), cloud=Decimal("0.4")) for name in ("research", "nlp")}
POLICY = placement_policy(preempt_after=LEFT_ALONE, quotas=SHARES, borrowing=True)
CLUSTERS = (onprem_cluster(pools=(node_pool(max_nodes=3),)), cloud_cluster(pools=(cloud_pool(max_nodes=2),)))
departments = st.sampled_from(sorted(SHARES))
jobs = st.builds(
    job_spec,
    priority=st.sampled_from(Priority),
    department=departments,
    gpus_per_node=st.sampled_from([1, 2, 4, 8]),
    nodes=st.integers(1, 2),
    spot_ok=st.booleans(),
)


@st.composite
def crowded(draw: st.DrawFn) -> Snapshot:
    """Two clusters that attempts have filled one after the other, as long as a node has room for them."""
    pods: dict[str, list[object]] = {cluster.name: [] for cluster in CLUSTERS}
    free = {
        (cluster, node): 8
        for cluster, nodes in (("onprem", [f"a100-{i}" for i in range(3)]), ("cloud", ["h100-0", "h100-1"]))
        for node in nodes
    }
    promises, attempts = [], []
    for number in range(draw(st.integers(0, 12))):
        where = draw(st.sampled_from(sorted(free)))
        gpus = min(draw(st.sampled_from([1, 2, 4, 8])), free[where])
        if not gpus:
            continue
        free[where] -= gpus
        cluster, node = where
        label, pool = f"r{number:02}-1", node.partition("-")[0]
        pods[cluster].append(pod(name=label, gpus=gpus, node=node, attempt=label))
        promises.append(
            reservation(attempt=label, department=draw(departments), cluster=cluster, pool=pool, gpus_per_node=gpus)
        )
        attempts.append(
            open_attempt(
                attempt=label,
                priority=draw(st.sampled_from(Priority)),
                interruptible=draw(st.integers(0, 3)) > 0,
                started_at=draw(st.sampled_from([None, NOW - LEFT_ALONE / 2, NOW - LEFT_ALONE, NOW - 9 * LEFT_ALONE])),
                committed_at=draw(st.sampled_from([None, *(NOW - i * LEFT_ALONE / 4 for i in range(8))])),
            )
        )
    return snapshot(
        *(cluster_state(cluster, pods=pods[cluster.name]) for cluster in CLUSTERS),  # type: ignore[arg-type]
        reservations=tuple(promises),
        open_attempts=tuple(attempts),
    )


def at_its_place(job: JobSpec, seen: Snapshot, ended: frozenset[str]) -> PlacementVerdict:
    """What is said of the place that the plan makes, once these have ended and nobody borrows for the job."""
    made = place(job, seen, POLICY).chosen
    verdicts = place(job, replace(without(seen, ended), open_attempts=()), replace(POLICY, borrowing=False)).verdicts
    return next(verdict for verdict in verdicts if verdict.candidate == made)


@given(job=jobs, seen=crowded())
def test_who_gives_way_makes_room_for_the_job_and_no_one_of_them_is_too_many(job: JobSpec, seen: Snapshot) -> None:
    told = place(job, seen, POLICY).preemption
    if told is None or not told.victims:
        return
    ended = frozenset(victim.attempt for victim in told.victims)
    assert at_its_place(job, seen, ended).rejections == ()
    for one in ended:
        assert at_its_place(job, seen, ended - {one}).rejections != ()


@given(job=jobs, seen=crowded())
def test_nobody_gives_way_to_a_lower_level_or_before_its_time_or_against_its_job(job: JobSpec, seen: Snapshot) -> None:
    told = place(job, seen, POLICY).preemption
    known = {attempt.attempt: attempt for attempt in seen.open_attempts}
    promised = {promise.attempt: promise for promise in seen.reservations}
    for victim in told.victims if told else ():
        attempt, same = known[victim.attempt], known[victim.attempt].priority is job.priority
        assert attempt.priority.level >= job.priority.level
        assert not same or promised[victim.attempt].department != job.department
        assert attempt.interruptible
        assert attempt.started_at is not None and NOW - attempt.started_at >= LEFT_ALONE
        known_loss = NOW - max(attempt.started_at, attempt.committed_at or attempt.started_at)
        assert victim.lost_gpu_seconds == known_loss.total_seconds() * promised[victim.attempt].gpus_per_node
    assert told is None or {*told.spared, *(v.attempt for v in told.victims)} == set(known)


def taken_back(job: JobSpec, seen: Snapshot) -> dict[str, int]:
    """GPUs of the same level that give way, by the kind of site."""
    told = place(job, seen, POLICY).preemption
    level = {a.attempt: a.priority for a in seen.open_attempts}
    gone = {v.attempt for v in told.victims if level[v.attempt] is job.priority} if told else set()
    found: dict[str, int] = {}
    for promise in seen.reservations:
        if promise.attempt in gone:
            found[promise.cluster] = found.get(promise.cluster, 0) + promise.gpus_per_node
    return found


@given(job=jobs, seen=crowded())
def test_of_the_same_level_only_what_is_lent_is_taken_back(job: JobSpec, seen: Snapshot) -> None:
    for cluster, gpus in taken_back(job, seen).items():
        declared = next(c for c in CLUSTERS if c.name == cluster)
        own = int(Decimal("0.4") * _gpus(declared))
        used = {n: sum(r.gpus_per_node for r in _held(seen, cluster) if r.department == n) for n in SHARES}
        other = "nlp" if job.department == "research" else "research"
        lent = used[other] - own - (_gpus(declared) - 2 * own)
        assert used[job.department] + job.gpus <= own
        assert gpus - 8 < lent  # the last of them may hold more than what is missing


def _gpus(cluster: Cluster) -> int:
    return sum(pool.max_gpus for pool in cluster.pools)


def _held(seen: Snapshot, cluster: str) -> list[Reservation]:
    return [promise for promise in seen.reservations if promise.cluster == cluster]


@given(job=jobs, seen=crowded(), order=st.randoms(use_true_random=False))
def test_the_same_give_way_whatever_the_order_and_whoever_looks(
    job: JobSpec, seen: Snapshot, order: random.Random
) -> None:
    decision = place(job, seen, POLICY)
    other = replace(
        seen,
        clusters=tuple(replace(s, pods=tuple(order.sample(s.pods, len(s.pods)))) for s in reversed(seen.clusters)),
        reservations=tuple(order.sample(seen.reservations, len(seen.reservations))),
        open_attempts=tuple(order.sample(seen.open_attempts, len(seen.open_attempts))),
    )
    assert place(job, other, POLICY) == decision
    stored = (codec.encode(value) for value in (job, seen, POLICY))
    read = map(codec.decode, (JobSpec, Snapshot, PlacementPolicy), stored)
    assert place(*read) == decision
    quick = choose(job, index(other, POLICY))
    assert (quick.chosen, quick.preemption) == (decision.chosen, decision.preemption)


@given(job=jobs, other=jobs, seen=crowded())
def test_nobody_is_placed_on_what_others_give_up_for_a_job(job: JobSpec, other: JobSpec, seen: Snapshot) -> None:
    decision = place(job, seen, POLICY)
    if decision.preemption is None or not decision.preemption.victims or job.nodes > 1 or other.nodes > 1:
        return
    ended = frozenset(victim.attempt for victim in decision.preemption.victims)
    claim = _promised("first-1", job, decision, ended)
    claimed = replace(seen, reservations=(*seen.reservations, claim), open_attempts=())
    second = place(other, claimed, POLICY)
    if second.chosen is None:
        return
    passed = _promised("second-1", other, second)
    then = without(replace(claimed, reservations=(*claimed.reservations, passed)), ended | {"first-1"})
    verdicts = place(job, then, replace(POLICY, borrowing=False)).verdicts
    [there] = [verdict for verdict in verdicts if verdict.candidate == decision.chosen]
    assert not {rejection.rule for rejection in there.rejections} & {"full", "waiting-for-nodes", "quota"}


def _promised(
    label: str, job: JobSpec, decision: PlacementDecision, ended: frozenset[str] = frozenset()
) -> Reservation:
    assert decision.chosen is not None
    return reservation(
        attempt=label,
        department=job.department,
        gpus_per_node=job.gpus_per_node,
        nodes=job.nodes,
        displaces=tuple(sorted(ended)),
        **asdict(decision.chosen),
    )
