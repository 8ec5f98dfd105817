from __future__ import annotations

import dataclasses
from datetime import datetime, timedelta
from typing import Any

import pytest
from sqlalchemy import event

from spillway.errors import ConfigError, Missing, ScalerBusy, TurnLost
from spillway.ledger import Ledger
from spillway.ledger.queueing import SILENCE
from spillway.ledger.scaling import TAKEN_UP
from spillway.model import (
    Contribution,
    Crossing,
    ManualOrder,
    Notice,
    OrderKind,
    Outcome,
    PendingJob,
    PlacementDecision,
    PoolTarget,
    Priority,
    ScalingAlert,
    ScalingChange,
    Source,
)
from spillway.testing.builders import job_spec
from spillway.testing.elastic import scaling_look
from spillway.testing.ledger_values import NOW, POLICY, SNAPSHOT, reserve

LATER = NOW + timedelta(minutes=1)
TURN = timedelta(minutes=2)
LOOK = scaling_look()


def an_order(order: str = "burst", **changes: Any) -> ManualOrder:
    """Three nodes more than two, for an hour."""
    made = ManualOrder(
        order=order,
        kind=OrderKind.ADD,
        cluster="cloud",
        pool="gpu",
        nodes=3,
        base_nodes=2,
        ordered_at=NOW,
        ordered_by="ann",
        until=NOW + timedelta(hours=1),
        ready_by=NOW + timedelta(minutes=10),
    )
    return dataclasses.replace(made, **changes)


def a_target(nodes: int = 4, pool: str = "gpu", **changes: Any) -> PoolTarget:
    wish = Contribution(source=Source.REACTIVE, nodes=nodes, reason="2 jobs wait for 16 GPUs")
    return PoolTarget(cluster="cloud", pool=pool, nodes=nodes, contributions=(wish,), **changes)


def begin(ledger: Ledger, target: PoolTarget, *, before: int = 2, now: datetime = NOW) -> ScalingChange:
    return ledger.begin_change(target, before=before, actor="a test", now=now, look=LOOK)


def full(job: str, *, possible: bool = True) -> PlacementDecision:
    """A decision for which nothing but room is lacking in the cloud."""
    places = frozenset({("cloud", "gpu")})
    return PlacementDecision(job=job, taken_at=NOW, chosen=None, possible=possible, verdicts=(), queues_at=places)


def test_an_order_that_is_given_twice_is_one_and_keeps_what_became_of_it(ledger: Ledger) -> None:
    assert ledger.order_nodes(an_order()) == an_order()
    ready = ledger.order_is_ready("burst", LATER)
    again = an_order(ordered_at=LATER, until=NOW + timedelta(hours=9), base_nodes=5)
    assert ledger.order_nodes(again) == ready == dataclasses.replace(an_order(), ready_at=LATER)
    assert ledger.order_is_ready("burst", LATER + TURN).ready_at == LATER
    assert ledger.scaling_orders() == (ready,)


def test_an_order_with_the_name_of_another_one_is_refused(ledger: Ledger) -> None:
    ledger.order_nodes(an_order())
    with pytest.raises(ConfigError, match=r"order 'burst': is for add 3 at cloud/gpu already"):
        ledger.order_nodes(an_order(nodes=4))
    assert ledger.scaling_orders() == (an_order(),)


def test_an_order_holds_until_its_end_or_until_it_is_withdrawn(ledger: Ledger) -> None:
    short = an_order("short", until=LATER)
    shrink = an_order("shrink", kind=OrderKind.SHRINK, nodes=1, ready_by=None, remove=("node-2",))
    for order in (short, an_order(), shrink):
        ledger.order_nodes(order)
    ledger.withdraw_order("burst", LATER)
    assert ledger.scaling_orders(NOW) == (short, shrink)
    assert ledger.scaling_orders(LATER) == (shrink,)
    withdrawn = dataclasses.replace(an_order(), withdrawn_at=LATER)
    assert ledger.scaling_orders() == (withdrawn, short, shrink)
    assert [order.holds_at(LATER) for order in (withdrawn, short, shrink)] == [False, False, True]
    assert (withdrawn.wanted, shrink.wanted) == (5, 1)


def test_an_order_that_nobody_gave_cannot_be_withdrawn(ledger: Ledger) -> None:
    with pytest.raises(Missing, match=r"order 'burst' is not in .*; `scale orders` tells which there are"):
        ledger.withdraw_order("burst", NOW)


def test_a_change_is_on_record_with_its_reasons_before_anybody_is_asked(ledger: Ledger) -> None:
    begun = begin(ledger, a_target())
    expected = ScalingChange(
        number=begun.number,
        cluster="cloud",
        pool="gpu",
        before=2,
        target=a_target(),
        decided_at=NOW,
        actor="a test",
        look=begun.look,
    )
    assert ledger.scaling_changes() == (expected,)
    asked = ledger.change_is_asked(begun, LATER)
    reached = ledger.change_is_reached(asked, LATER + TURN)
    assert (
        ledger.scaling_changes()
        == (dataclasses.replace(expected, asked_at=LATER, reached_at=LATER + TURN),)
        == (reached,)
    )


def test_a_change_that_is_refused_again_and_again_is_one_line(ledger: Ledger) -> None:
    for minute in range(3):
        begun = begin(ledger, a_target(), now=NOW + timedelta(minutes=minute))
        ledger.change_failed(begun, "quota exceeded")
    (line,) = ledger.scaling_changes()
    assert (line.tries, line.problem, line.decided_at) == (3, "quota exceeded", NOW)
    done = ledger.change_is_asked(begin(ledger, a_target()), LATER)
    assert (done.tries, done.problem, done.asked_at) == (4, None, LATER)


def test_a_change_that_was_left_open_is_taken_up_soon_and_for_the_same_reasons_and_else_closed(ledger: Ledger) -> None:
    begin(ledger, a_target())
    soon, late = NOW + TAKEN_UP, NOW + TAKEN_UP + timedelta(seconds=1)
    assert (begin(ledger, a_target(), now=soon).tries, len(ledger.scaling_changes())) == (2, 1)
    after = begin(ledger, a_target(), now=late)
    by_a_person = Contribution(source=Source.MANUAL, nodes=4, reason="2 beside the 2 of then")
    asked = begin(ledger, dataclasses.replace(a_target(), contributions=(by_a_person,)), now=late)
    ledger.change_is_asked(asked, late)
    broken_off = "broken off: whoever decided it left no answer of its provider"
    found = [(line.decided_at, line.tries, line.asked_at, line.problem) for line in ledger.scaling_changes()]
    assert found == [(NOW, 2, None, broken_off), (late, 1, None, broken_off), (late, 1, late, None)]
    assert ledger.change_is_asked(after, late).problem is None, "who was only held up tells what became of it"


def test_a_change_that_is_refused_for_hours_stays_one_line_while_the_same_want_it(ledger: Ledger) -> None:
    for hour in range(3):
        ledger.change_failed(begin(ledger, a_target(), now=NOW + timedelta(hours=hour)), "quota exceeded")
    assert [(line.tries, line.problem) for line in ledger.scaling_changes()] == [(3, "quota exceeded")]


def test_a_change_that_names_its_nodes_in_another_order_is_the_same(ledger: Ledger) -> None:
    begin(ledger, a_target(nodes=0, remove=("one", "two")))
    begin(ledger, a_target(nodes=0, remove=("two", "one")))
    begin(ledger, a_target(nodes=0, remove=("two", "three")))
    found = [(change.tries, change.target.remove) for change in ledger.scaling_changes()]
    assert found == [(2, ("two", "one")), (1, ("two", "three"))]


def test_a_change_after_one_that_was_carried_out_is_another_line(ledger: Ledger) -> None:
    ledger.change_is_asked(begin(ledger, a_target()), NOW)
    begin(ledger, a_target())
    begin(ledger, a_target(5))
    begin(ledger, a_target(5, pool="other"))
    found = ledger.scaling_changes()
    assert [(line.pool, line.target.nodes) for line in found] == [("gpu", 4), ("gpu", 4), ("gpu", 5), ("other", 5)]
    assert ledger.scaling_changes(newest=2) == found[2:]


def test_changes_can_be_asked_for_from_a_moment_on(ledger: Ledger) -> None:
    begin(ledger, a_target())
    second = begin(ledger, a_target(5), now=LATER)
    assert ledger.scaling_changes(since=LATER) == (second,)


def test_the_last_change_of_each_pool_is_known_and_the_last_that_a_provider_took(ledger: Ledger) -> None:
    first = ledger.change_is_asked(begin(ledger, a_target()), NOW)
    second = ledger.change_failed(begin(ledger, a_target(5)), "quota exceeded")
    other = begin(ledger, a_target(5, pool="other"))
    assert ledger.last_changes() == (second, other)
    assert ledger.last_changes(asked=True) == (first,)


def test_only_one_at_a_time_has_its_turn_to_scale(ledger: Ledger) -> None:
    ledger.take_turn("one", TURN)
    ledger.keep_turn("one", TURN)
    with pytest.raises(ScalerBusy, match=r"one scales the node pools since .*; nothing was changed") as refused:
        ledger.take_turn("other", TURN)
    assert (refused.value.holder, refused.value.retry_helps) == ("one", True)
    ledger.end_turn("other")
    with pytest.raises(ScalerBusy):
        ledger.take_turn("other", TURN)
    ledger.end_turn("one")
    ledger.take_turn("other", TURN)


def test_a_turn_is_kept_only_while_nobody_else_has_had_one(ledger: Ledger) -> None:
    ledger.take_turn("one", timedelta())
    ledger.keep_turn("one", timedelta())  # late, and nobody came in between
    ledger.take_turn("other", TURN)
    with pytest.raises(ScalerBusy, match=r"^other scales"):
        ledger.keep_turn("one", TURN)
    ledger.end_turn("other")
    with pytest.raises(TurnLost, match=r"the turn of one was over .* another one has scaled since") as lost:
        ledger.keep_turn("one", TURN)
    assert (lost.value.holder, lost.value.retry_helps) == ("one", True)


def test_the_turn_of_one_who_died_is_over_with_its_lease(ledger: Ledger) -> None:
    ledger.take_turn("one", timedelta())
    ledger.take_turn("other", TURN)
    with pytest.raises(ScalerBusy):
        ledger.take_turn("one", TURN)


def test_looks_are_one_span_until_there_is_a_gap_or_the_clock_jumps(ledger: Ledger) -> None:
    minute = timedelta(minutes=1)
    for at in (0, 1, 3, 90, 91, 10, 11):
        ledger.note_watch(NOW + at * minute)
    assert [((began - NOW) / minute, (ended - NOW) / minute) for began, ended in ledger.watches()] == [
        (0, 4),
        (90, 92),
        (10, 12),
    ]


def test_only_so_many_of_the_newest_spans_are_kept(ledger: Ledger, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("spillway.ledger.scaling.LOOKS_KEPT", 2)
    moments = [NOW + hours * timedelta(hours=1) for hours in range(4)]
    for at in moments:
        ledger.note_watch(at)
    assert [began for began, _ in ledger.watches()] == moments[2:]


def test_runs_that_wait_for_room_are_demand_and_others_are_not(ledger: Ledger) -> None:
    job = job_spec(
        gpus_per_node=8, nodes=2, expected_duration=timedelta(hours=3), finish_within=timedelta(hours=9),
        longest_duration=timedelta(hours=4), priority=Priority.CUSTOMER_SERVICE,
    )  # fmt: skip
    reserve(ledger, "wide", job, decide=lambda whole: full(job.name))
    reserve(ledger, "impossible", job, decide=lambda whole: full(job.name, possible=False))
    reserve(ledger, "placed", job)
    cores = job_spec(gpus_per_node=0, cpu_cores=4.0)
    reserve(ledger, "without-gpus", cores, decide=lambda whole: full(cores.name))
    wide = PendingJob(
        run="wide",
        gpus_per_node=8,
        nodes=2,
        since=NOW,
        priority=Priority.CUSTOMER_SERVICE,
        places=frozenset({("cloud", "gpu")}),
        expected=timedelta(hours=3),
        finish_by=NOW + timedelta(hours=9),
    )
    assert ledger.pending_jobs(NOW) == (wide,)
    assert ledger.pending_jobs(NOW + SILENCE) == ()


def test_a_run_of_a_backfill_is_told_as_one_unless_its_job_may_order_nodes(ledger: Ledger) -> None:
    plain, orders = job_spec(), job_spec(backfill_orders_nodes=True)
    asked = [("manual", plain), ("backfill", plain), ("scheduled", plain), ("backfill", orders)]
    for number, (run_type, job) in enumerate(asked):
        ledger.open_run(f"r{number}", job, {"dag_id": "monthly", "run_id": "2026-02", "run_type": run_type}, NOW)
        ledger.reserve(
            f"r{number}", job, now=NOW, lease=TURN, snapshot=SNAPSHOT, policy=POLICY, decide=lambda w: full("digits")
        )
    assert [(waits.run, waits.backfill) for waits in ledger.pending_jobs(NOW)] == [
        ("r0", False),
        ("r1", True),
        ("r2", False),
        ("r3", False),
    ]
    assert [job for job, _ in ledger.wanted(NOW).waiting] == [plain, plain, orders], "nor is it forecast from"
    for number, (_, job) in enumerate(asked):
        reserve(ledger, f"r{number}", job)
    promised = ledger.promised_jobs()
    assert {label: job.backfill for label, job in promised.items()} == {
        "r0-1": False,
        "r1-1": True,
        "r2-1": False,
        "r3-1": False,
    }


def test_what_is_promised_is_to_come_until_its_pod_has_a_node_and_a_gang_until_all_of_them_have(ledger: Ledger) -> None:
    for run, nodes in (("pod", 1), ("gang", 3)):
        attempt, _ = reserve(ledger, run, job_spec(gpus_per_node=4, nodes=nodes))
        assert attempt is not None
        assert ledger.promised_jobs()[f"{run}-1"].nodes == nodes
        ledger.amend(attempt, node="n1")
    assert ledger.promised_jobs() == {}
    assert [(label, job.nodes) for label, job in ledger.promised_jobs({"gang-1"}).items()] == [("gang-1", 3)]


def test_what_is_promised_is_told_though_one_of_the_runs_ends_meanwhile(ledger: Ledger) -> None:
    ending, _ = reserve(ledger, "ending", job_spec())
    reserve(ledger, "staying", job_spec())
    assert ending is not None
    meanwhile = [lambda: ledger.settle(ending, Outcome.SUCCEEDED, "done", LATER)]

    @event.listens_for(ledger.database.engine, "after_cursor_execute")
    def end_it(*asked: object) -> None:
        if "FROM attempts" in str(asked[2]) and meanwhile:
            meanwhile.pop()()

    told = ledger.promised_jobs()
    assert not meanwhile and ledger.open_attempt("ending") is None
    assert {"staying-1"} <= set(told) <= {"staying-1", "ending-1"}
    assert set(ledger.promised_jobs()) == {"staying-1"}


def test_an_alert_is_told_once_to_each_target_beside_the_other_notices(ledger: Ledger) -> None:
    alert = ScalingAlert(
        alert="late/burst", cluster="cloud", pool="gpu", title="3 nodes are late", text="cloud/gpu has 2", seen_at=NOW
    )
    assert ledger.note_alert(alert, ["ops", "ops", "lead"])
    assert not ledger.note_alert(dataclasses.replace(alert, title="still late", seen_at=LATER), ["ops"])
    first = ledger.claim_notice(NOW, TURN)
    assert first is not None
    assert first == Notice(number=first.number, target="ops", tries=1, about=alert)
    ledger.close_notice(first, NOW)
    assert [(notice.target, notice.about) for notice in ledger.undelivered()] == [("lead", alert)]
    assert not [notice for notice in ledger.undelivered() if isinstance(notice.about, Crossing)]
