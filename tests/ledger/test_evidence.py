from __future__ import annotations

import dataclasses
from datetime import timedelta

import pytest

from spillway.ledger import Ledger, Transfer, TransferKind, TransferOutcome
from spillway.model import CoolDown, Destination, Tier
from spillway.testing.builders import job_spec
from spillway.testing.ledger_values import NOW, SNAPSHOT, counting, reserve

REST = CoolDown(cluster="cloud", pool="spot", until=NOW + timedelta(minutes=5), reason="r-1: spot reclaimed")
MINUTE = timedelta(minutes=1)


def test_a_place_rests_until_its_moment(ledger: Ledger) -> None:
    ledger.cool_down(REST)
    assert ledger.cool_downs(REST.until - timedelta(microseconds=1)) == (REST,)
    assert ledger.cool_downs(REST.until) == ()


@pytest.mark.parametrize(("minutes", "kept"), [(-1, "first"), (0, "first"), (1, "second")])
def test_a_rest_is_prolonged_and_never_shortened(ledger: Ledger, minutes: int, kept: str) -> None:
    second = dataclasses.replace(REST, until=REST.until + minutes * MINUTE, reason="r-2: node lost")
    ledger.cool_down(REST)
    ledger.cool_down(second)
    assert ledger.cool_downs(NOW) == ({"first": REST, "second": second}[kept],)


def test_each_place_rests_by_itself(ledger: Ledger) -> None:
    places = tuple(dataclasses.replace(REST, cluster=c, pool=p) for c, p in [("a", "x"), ("a", "y"), ("b", "x")])
    for place in reversed(places):
        ledger.cool_down(place)
    assert ledger.cool_downs(NOW) == places


def test_every_transfer_and_every_refusal_is_a_line(ledger: Ledger) -> None:
    copied = Transfer(
        kind=TransferKind.DATASET,
        name="digits",
        tier=Tier.PUBLIC,
        source="onprem",
        destination="cloud",
        size_bytes=3 * 2**40,
        at=NOW,
        outcome=TransferOutcome.COPIED,
        run="r",
        objects_copied=5_620,
        objects_unchanged=0,
    )
    refused = dataclasses.replace(
        copied,
        kind=TransferKind.CHECKPOINT,
        tier=Tier.CORE,
        size_bytes=0,
        at=NOW + MINUTE,
        outcome=TransferOutcome.REFUSED,
        reason="tier 'core' may not be stored at 'cloud'",
        run=None,
    )
    for line in (refused, copied, copied):
        ledger.record_transfer(line)
    assert ledger.transfers() == (copied, copied, refused)
    assert ledger.transfers("r") == (copied, copied)


def test_of_a_run_that_waited_for_days_only_the_telling_decisions_are_read(ledger: Ledger) -> None:
    job = job_spec()
    full, empty = counting(job, capacity=0), counting(job, capacity=8)
    for minutes in range(3):
        reserve(ledger, "r", job, now=NOW + minutes * MINUTE, decide=full)
    assert [record.attempt for record in ledger.decisions("r", telling=True)] == [None]
    reserve(ledger, "r", job, decide=empty)
    assert [record.attempt for record in ledger.decisions("r")] == [None, 1], "of the wait its last one"
    [placed] = ledger.decisions("r", telling=True)
    assert placed == ledger.decisions("r")[-1]


def test_a_decision_for_a_move_is_telling(ledger: Ledger) -> None:
    ordered = dataclasses.replace(SNAPSHOT, destination=Destination(cluster="cloud"))
    full = counting(job_spec(), capacity=0)
    for seen in (SNAPSHOT, ordered, SNAPSHOT, SNAPSHOT):
        reserve(ledger, "r", decide=full, seen=seen)
    assert [r.snapshot.destination for r in ledger.decisions("r", telling=True)] == [ordered.destination, None]
    assert ledger.decisions("r", telling=True, newest=1) == ledger.decisions("r")[-1:]


def test_recent_decisions_are_the_newest_of_each_run_of_the_dags_that_are_asked_for(ledger: Ledger) -> None:
    for run, origin in [
        ("a", {"dag_id": "train"}),
        ("b", {"dag_id": "theirs"}),
        ("c", {"user": "x"}),
        ("d", {"dag_id": "train"}),
    ]:
        ledger.open_run(run, job_spec(), origin, NOW)
        reserve(ledger, run, decide=counting(job_spec(), capacity=0))
    reserve(ledger, "a")

    def found(*dags: str, by_no_dag: bool = False, newest: int = 9) -> list[tuple[str, int | None]]:
        recent = ledger.recent_decisions(dags, by_no_dag=by_no_dag, newest=newest)
        return [(entry.run, entry.attempt) for entry in recent]

    assert found("train") == [("a", 1), ("d", None)]
    assert found("train", newest=1) == [("a", 1)]
    assert found("theirs", by_no_dag=True) == [("c", None), ("b", None)]
    assert found() == []


def test_the_runs_of_an_origin_are_found(ledger: Ledger) -> None:
    for run, origin in [
        ("a", {"dag_id": "train", "run_id": "x"}),
        ("b", {"dag_id": "train", "run_id": "y'"}),
        ("c", {}),
    ]:
        ledger.open_run(run, job_spec(), origin, NOW)
    assert [record.run for record in ledger.runs(dag_id="train", run_id="y'")] == ["b"]
    assert len(ledger.runs()) == 3
