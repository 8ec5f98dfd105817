from __future__ import annotations

import dataclasses
from datetime import timedelta
from decimal import Decimal

import pytest
from sqlalchemy import insert
from sqlalchemy.exc import IntegrityError

from spillway.errors import CapacityNever, ConfigError, Missing, RunCancelled
from spillway.ledger import DecisionRecord, Ledger, RunRecord
from spillway.ledger.attempts import NEXT
from spillway.ledger.schema import attempts
from spillway.model import (
    Attempt,
    AttemptState,
    Billing,
    Candidate,
    CoolDown,
    Outcome,
    PlacementDecision,
    PlacementVerdict,
    Rejection,
    Reservation,
    Snapshot,
)
from spillway.testing.builders import job_spec
from spillway.testing.ledger_values import (
    LEASE,
    NOW,
    PLACE,
    POLICY,
    SNAPSHOT,
    counting,
    reserve,
    reserved,
)


def test_a_reserved_attempt_is_the_row_and_the_promise(ledger: Ledger) -> None:
    job = job_spec(gpus_per_node=4, nodes=2)
    attempt, _ = reserve(ledger, "r", job)
    assert attempt == Attempt(
        run="r",
        number=1,
        job=job,
        state=AttemptState.RESERVED,
        candidate=PLACE,
        reserved_at=NOW,
        lease_expires_at=NOW + LEASE,
        price_per_gpu_hour=Decimal("2.5"),
        fixed_cost_per_gpu_month=Decimal(0),
    )
    assert ledger.attempts("r") == (attempt,)
    assert ledger.reservations() == (
        Reservation(
            attempt="r-1",
            department="research",
            cluster="onprem",
            pool="a100",
            billing=Billing.OWNED,
            gpus_per_node=4,
            nodes=2,
            cpu_millicores_per_node=1000,
            memory_mib_per_node=1024,
        ),
    )


def test_a_decision_is_stored_with_all_that_it_was_taken_from(ledger: Ledger) -> None:
    resting = CoolDown(cluster="cloud", pool="spot", until=NOW + timedelta(minutes=5), reason="other-1: reclaimed")
    ledger.cool_down(resting)
    reserve(ledger, "other")
    promised = ledger.reservations()
    job = job_spec()
    _, decision = reserve(ledger, "r", job)
    (record,) = ledger.decisions("r")
    assert record == DecisionRecord(
        run="r",
        attempt=1,
        taken_at=NOW,
        job=job,
        snapshot=dataclasses.replace(
            SNAPSHOT, reservations=promised, cool_downs=(resting,), requester="train", waits_since=NOW
        ),
        policy=POLICY,
        decision=decision,
    )
    again = counting(record.job, capacity=10**6)(record.snapshot)
    assert again == record.decision


def test_a_decision_that_finds_no_place_is_stored_and_promises_nothing(ledger: Ledger) -> None:
    verdict = PlacementVerdict(
        candidate=Candidate(cluster="cloud", pool="spot", billing=Billing.SPOT),
        rejections=(Rejection(rule="gpus", reason="needs 8 GPUs on one node, largest has 4", waits=False),),
        scores={"price": 1 / 3},
        total=0.1 + 0.2,
    )
    nowhere = PlacementDecision(job="llm-7b", taken_at=NOW, chosen=None, possible=False, verdicts=(verdict,))
    assert reserve(ledger, "r", decide=lambda _whole: nowhere) == (None, nowhere)
    assert [(record.attempt, record.decision) for record in ledger.decisions("r")] == [(None, nowhere)]
    assert ledger.attempts("r") == () == ledger.reservations()


def test_a_run_that_waits_keeps_the_last_of_the_decisions_that_found_no_place_and_every_other(ledger: Ledger) -> None:
    job, full = job_spec(), counting(job_spec(), capacity=0)
    for minute in range(3):
        reserve(ledger, "r", job, now=NOW + timedelta(minutes=minute), seen=_at(minute), decide=full)
    attempt, _ = reserve(ledger, "r", job, seen=_at(3))
    assert attempt is not None
    ledger.settle(attempt, Outcome.PREEMPTED, "reclaimed", NOW)
    for minute in range(4, 6):
        reserve(ledger, "r", job, now=NOW + timedelta(minutes=minute), seen=_at(minute), decide=full)
    kept = [(record.attempt, record.snapshot.taken_at) for record in ledger.decisions("r")]
    assert kept == [(number, _at(minute).taken_at) for number, minute in ((None, 2), (1, 3), (None, 5))]


def _at(minute: int) -> Snapshot:
    return dataclasses.replace(SNAPSHOT, taken_at=NOW + timedelta(minutes=minute))


def test_reserving_again_gives_the_open_attempt_its_decision_and_a_new_lease(ledger: Ledger) -> None:
    attempt, decision = reserve(ledger, "r")
    assert attempt is not None

    def never(_whole: object) -> PlacementDecision:
        raise AssertionError("an open attempt needs no decision")

    later = NOW + timedelta(minutes=3)
    adopted = dataclasses.replace(attempt, lease_expires_at=later + LEASE)
    assert reserve(ledger, "r", now=later, decide=never) == (adopted, decision)
    assert ledger.attempts("r") == (adopted,)
    assert len(ledger.decisions("r")) == 1


def test_a_settled_attempt_frees_its_gpus_and_the_next_one_counts_on(ledger: Ledger) -> None:
    job = job_spec(gpus_per_node=8)
    first, _ = reserve(ledger, "r", job, decide=counting(job, capacity=8))
    assert first is not None
    assert reserve(ledger, "waits", job, decide=counting(job, capacity=8))[0] is None
    ledger.settle(first, Outcome.PREEMPTED, "node lost", NOW)
    second, _ = reserve(ledger, "r", job, decide=counting(job, capacity=8))
    assert second is not None
    assert (second.number, second.label) == (2, "r-2")
    assert [reservation.attempt for reservation in ledger.reservations()] == ["r-2"]


@pytest.mark.parametrize("steps", range(4), ids=["reserved", "staged", "launched", "running"])
def test_a_promise_is_held_in_every_state_until_the_attempt_is_settled(ledger: Ledger, steps: int) -> None:
    only_one = counting(job_spec(), capacity=1)
    attempt, _ = reserve(ledger, "r", decide=only_one)
    assert attempt is not None
    for _ in range(steps):
        attempt = ledger.advance(attempt, NEXT[attempt.state])
    assert reserve(ledger, "waits", decide=only_one)[0] is None
    assert reserve(ledger, "r", decide=only_one)[0] == attempt, "the holder does not wait for what it holds"
    ledger.settle(attempt, Outcome.SUCCEEDED, "exit code 0", NOW)
    assert reserve(ledger, "waits", decide=only_one)[0] is not None


def test_a_decision_that_fails_leaves_nothing_behind(ledger: Ledger) -> None:
    def never(_whole: object) -> PlacementDecision:
        raise CapacityNever("llm-7b", "table")

    with pytest.raises(CapacityNever):
        reserve(ledger, "r", decide=never)
    assert ledger.decisions("r") == () == ledger.attempts("r")
    assert reserve(ledger, "r")[0] is not None


def test_a_run_keeps_its_first_origin(ledger: Ledger) -> None:
    ledger.open_run("r", job_spec(), {"dag_id": "train", "map_index": -1}, NOW)
    ledger.open_run("r", job_spec(), {"dag_id": "another"}, NOW + timedelta(days=1))
    assert ledger.origin("r") == {"dag_id": "train", "map_index": -1}
    assert ledger.runs() == (
        RunRecord(run="r", job=job_spec(), origin={"dag_id": "train", "map_index": -1}, created_at=NOW),
    )


def test_a_run_without_an_attempt_takes_a_corrected_job(ledger: Ledger) -> None:
    ledger.open_run("r", job_spec(gpus_per_node=80), {}, NOW)
    ledger.open_run("r", job_spec(), {}, NOW + timedelta(days=1))
    assert ledger.job("r") == job_spec()
    assert reserve(ledger, "r")[0] is not None


def test_a_run_with_an_attempt_is_not_opened_with_another_job(ledger: Ledger) -> None:
    reserve(ledger, "r")
    message = r"run 'r': job: expected the job it was opened with, got another \(gpus_per_node 1 -> 8\); start a new"
    with pytest.raises(ConfigError, match=message):
        ledger.open_run("r", job_spec(gpus_per_node=8), {}, NOW)
    with pytest.raises(ConfigError, match=message):
        reserve(ledger, "r", job_spec(gpus_per_node=8))


def test_nothing_is_reserved_for_a_run_that_was_not_opened(ledger: Ledger) -> None:
    job = job_spec()
    with pytest.raises(Missing, match=r"run 'r' is not in ledger .*; open it with open_run"):
        ledger.reserve(
            "r", job, now=NOW, lease=LEASE, snapshot=SNAPSHOT, policy=POLICY, decide=counting(job, capacity=1)
        )
    with pytest.raises(Missing, match="run 'r' is not in ledger"):
        ledger.origin("r")


def test_the_database_itself_refuses_a_second_open_attempt(ledger: Ledger) -> None:
    reserved(ledger, "r")
    row = {"run": "r", "number": 2, "state": AttemptState.RESERVED, "cluster": "cloud", "pool": "p"}
    more = {"billing": Billing.SPOT, "reserved_at": NOW, "lease_expires_at": NOW}
    with pytest.raises(IntegrityError), ledger.engine.begin() as connection:
        connection.execute(insert(attempts).values(row | more))


def test_a_run_that_a_person_has_ended_reserves_nothing_until_somebody_asks_for_it_again(ledger: Ledger) -> None:
    lost = ledger.settle(reserved(ledger, "r"), Outcome.PREEMPTED, "its node was lost", NOW)
    ledger.cancel_run("r", "nobody needs it", NOW + LEASE)
    ledger.cancel_run("r", "said once more", NOW + 2 * LEASE)
    with pytest.raises(RunCancelled, match="run 'r' is cancelled: nobody needs it; "):
        reserve(ledger, "r")
    assert ledger.attempts("r") == (lost,)
    assert ledger.cancel_reason("r") == "nobody needs it"
    assert [record.cancelled_at for record in ledger.runs()] == [NOW + LEASE]

    ledger.ask_again("r")

    assert ledger.cancel_reason("r") is None
    assert reserved(ledger, "r").number == 2


def test_the_open_attempt_of_a_run_that_a_person_ends_is_still_its_owners(ledger: Ledger) -> None:
    opened = reserved(ledger, "r")
    ledger.cancel_run("r", "nobody needs it", NOW)
    assert reserved(ledger, "r") == opened


def test_nobody_has_ended_a_run_that_was_never_opened(ledger: Ledger) -> None:
    ledger.cancel_run("r", "nobody needs it", NOW)
    assert ledger.cancel_reason("r") is None


def test_a_decision_knows_the_dag_that_asked_for_the_run(ledger: Ledger) -> None:
    reserve(ledger, "r")
    (record,) = ledger.decisions("r")
    assert record.snapshot.requester == "train"
    ledger.open_run("by-hand", job_spec(), {"started_by": "me"}, NOW)
    seen: list[str | None] = []

    def look(whole: Snapshot) -> PlacementDecision:
        seen.append(whole.requester)
        return counting(job_spec(), capacity=1)(whole)

    ledger.reserve("by-hand", job_spec(), now=NOW, lease=LEASE, snapshot=SNAPSHOT, policy=POLICY, decide=look)
    assert seen == [None]
