"""Which runs wait for room, in which order, and until when somebody has to have asked for them."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from decimal import Decimal

import pytest

from spillway.ledger import Ledger
from spillway.ledger.queueing import PROTECTED, RENEWAL, SILENCE, Places
from spillway.model import (
    Candidate,
    JobSpec,
    PlacementDecision,
    Priority,
    Snapshot,
    WaitRules,
)
from spillway.placement.queueing import ROOM
from spillway.testing.builders import candidate, job_spec
from spillway.testing.ledger_values import NOW, POLICY, SNAPSHOT, reserve

SECOND = timedelta(seconds=1)
ELSEWHERE = candidate(cluster="cloud", pool="h100")
HERE: Places = {("onprem", "a100")}


def without_room(*rules: str, where: Candidate | None = None, possible: bool = True) -> PlacementDecision:
    """Nothing is chosen, and the rules speak against a place."""
    place = where or candidate()
    queues_at = frozenset({(place.cluster, place.pool)} if ROOM.issuperset(rules) else ())
    return PlacementDecision(job="j", taken_at=NOW, chosen=None, possible=possible, verdicts=(), queues_at=queues_at)


def wait(
    ledger: Ledger, run: str, job: JobSpec | None = None, *, at: int = 0, decision: PlacementDecision | None = None
) -> None:
    found = decision or without_room("full")
    assert reserve(ledger, run, job, now=NOW + at * SECOND, decide=lambda _: found)[0] is None


def still_waits(ledger: Ledger, run: str, places: Places = HERE, *, at: int) -> None:
    ledger.still_waits(run, job_spec(), places, NOW + at * SECOND)


def before(ledger: Ledger, run: str | None, job: JobSpec | None = None, *, at: int = 10) -> list[str]:
    whole = ledger.complete(run, job or job_spec(), SNAPSHOT, POLICY, NOW + at * SECOND)
    return [queued.run for queued in whole.queue]


def test_a_run_without_room_is_put_before_those_that_were_asked_for_later(ledger: Ledger) -> None:
    wait(ledger, "b", at=0)
    wait(ledger, "a", at=1)
    assert before(ledger, "b") == []
    assert before(ledger, "a") == ["b"]
    assert before(ledger, None) == ["b", "a"]


def test_priority_comes_before_age_and_nobody_waits_for_lower_ones(ledger: Ledger) -> None:
    wait(ledger, "old-low", job_spec(priority=Priority.EXPLORATION))
    wait(ledger, "high", job_spec(priority=Priority.PRODUCTION_CORE), at=2)
    wait(ledger, "same", at=1)
    assert before(ledger, None) == ["high", "same"]
    assert before(ledger, None, job_spec(priority=Priority.PRODUCTION_CORE)) == ["high"]
    assert before(ledger, None, job_spec(priority=Priority.EXPLORATION)) == ["high", "same", "old-low"]


def test_what_a_decision_sees_of_the_queue_is_stored_with_it(ledger: Ledger) -> None:
    big = job_spec(gpus_per_node=8, nodes=2, cpu_cores=3, memory_gib=5)
    wait(ledger, "big", big)
    wait(ledger, "big", big, at=5)
    seen: list[Snapshot] = []

    def look(whole: Snapshot) -> PlacementDecision:
        seen.append(whole)
        return without_room("full")

    reserve(ledger, "small", now=NOW + 7 * SECOND, decide=look)
    [queued] = seen[0].queue
    assert (queued.run, queued.image, queued.priority, queued.since, queued.places) == (
        "big", big.image, Priority.RESEARCH, NOW, frozenset({("onprem", "a100")}),
    )  # fmt: skip
    assert (queued.nodes, queued.gpus_per_node, queued.cpu_millicores_per_node, queued.memory_mib_per_node) == (
        2, 8, 3000, 5120,
    )  # fmt: skip
    assert ledger.decisions("small")[0].snapshot.queue == (queued,)


def test_a_run_that_lacks_more_than_room_holds_nothing(ledger: Ledger) -> None:
    wait(ledger, "over-quota", decision=without_room("quota", "full"))
    wait(ledger, "never", decision=without_room("full", possible=False))
    assert before(ledger, None) == []
    wait(ledger, "behind", decision=without_room("queue", where=ELSEWHERE))
    wait(ledger, "nodes-may-come", decision=without_room("waiting-for-nodes"))
    assert before(ledger, None) == ["behind", "nodes-may-come"]


def test_a_run_leaves_the_queue_with_its_place_with_its_end_and_with_who_carried_it(ledger: Ledger) -> None:
    for run in ("placed", "cancelled", "silent", "waits"):
        wait(ledger, run)
    assert before(ledger, None) == ["cancelled", "placed", "silent", "waits"]
    assert reserve(ledger, "placed", now=NOW)[0] is not None
    ledger.cancel_run("cancelled", "nobody needs it", NOW)
    late = int(SILENCE / SECOND)
    still_waits(ledger, "waits", at=late - 1)
    still_waits(ledger, "placed", at=late - 1)
    assert before(ledger, None, at=late) == ["waits"]


def test_a_run_that_comes_to_lack_more_than_room_holds_nothing_while_it_does(ledger: Ledger) -> None:
    wait(ledger, "r")
    still_waits(ledger, "r", set(), at=10)
    assert before(ledger, None, at=11) == []
    still_waits(ledger, "r", {("cloud", "h100")}, at=20)
    [queued] = ledger.complete(None, job_spec(), SNAPSHOT, POLICY, NOW + 21 * SECOND).queue
    assert (queued.run, queued.since, queued.places) == ("r", NOW + 20 * SECOND, {("cloud", "h100")})


def test_where_a_run_waited_that_cannot_be_seen_any_more_it_holds_nothing_and_is_known_to_have_waited(
    ledger: Ledger,
) -> None:
    there, elsewhere = ("cloud", "h100"), ("onprem", "a100")
    wait(ledger, "r", decision=replace(without_room("full"), queues_at=frozenset({there, elsewhere})))

    def places(at: int) -> tuple[frozenset[tuple[str, str]], ...]:
        """Those that it holds, and those where nodes may be ordered for it."""
        now = NOW + at * SECOND
        [queued] = ledger.complete(None, job_spec(), SNAPSHOT, POLICY, now).queue
        [pending] = ledger.pending_jobs(now)
        return queued.places, pending.places

    lost = {"cloud": "it gives no answer"}
    assert places(5) == ({there, elsewhere}, {there, elsewhere})
    ledger.still_waits("r", job_spec(), {elsewhere}, NOW + 10 * SECOND, unseen=lost)
    assert places(15) == ({elsewhere}, {there, elsewhere})
    wait(ledger, "r", at=20, decision=replace(without_room("full"), unreachable=lost))
    assert places(25) == ({elsewhere}, {there, elsewhere})
    assert ledger.wanted(NOW + 25 * SECOND).waiting == ((job_spec(), frozenset({elsewhere})),)
    still_waits(ledger, "r", {elsewhere}, at=30)  # it answers, and the run lacks more than room there by now
    assert places(35) == ({elsewhere}, {elsewhere})


def test_a_run_that_waits_only_where_nothing_can_be_seen_keeps_its_row_and_holds_nothing(
    ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("spillway.ledger.queueing.PROTECTED", 1)
    lost = {"onprem": "it gives no answer"}
    wait(ledger, "r")
    wait(ledger, "later", at=1, decision=without_room("full", where=ELSEWHERE))
    ledger.still_waits("r", job_spec(), set(), NOW + 10 * SECOND, unseen=lost)
    wait(ledger, "r", at=20, decision=replace(without_room(), queues_at=frozenset(), unreachable=lost))
    assert before(ledger, None, at=25) == ["later"]
    assert ledger.wanted(NOW + 25 * SECOND).waiting == ((job_spec(), frozenset({("cloud", "h100")})),)
    [pending, _] = ledger.pending_jobs(NOW + 25 * SECOND)
    assert (pending.run, pending.since, pending.places) == ("r", NOW, HERE)
    assert "r" in {record.job for record in ledger.demanding_jobs(NOW, NOW + 25 * SECOND)}
    still_waits(ledger, "r", HERE, at=30)
    [queued] = ledger.complete(None, job_spec(), SNAPSHOT, POLICY, NOW + 35 * SECOND).queue
    assert (queued.run, queued.since, queued.places) == ("r", NOW, HERE)
    still_waits(ledger, "r", set(), at=40)  # it answers, and the run lacks more than room by now
    assert [job.run for job in ledger.pending_jobs(NOW + 45 * SECOND)] == ["later"]


def test_a_run_that_lacked_more_than_room_at_first_comes_before_later_ones_when_it_lacks_no_more(
    ledger: Ledger,
) -> None:
    wait(ledger, "r", decision=without_room("cool-down", "full"))
    wait(ledger, "later", at=5)
    still_waits(ledger, "r", HERE, at=10)
    assert before(ledger, "later", at=11) == ["r"]


def test_a_run_that_comes_back_after_a_silence_waits_anew(ledger: Ledger) -> None:
    wait(ledger, "r")
    back = int(SILENCE / SECOND)
    still_waits(ledger, "r", at=back)
    [queued] = ledger.complete(None, job_spec(), SNAPSHOT, POLICY, NOW + back * SECOND).queue
    assert queued.since == NOW + back * SECOND


def test_that_a_run_still_waits_is_written_where_it_is_news_and_else_once_a_minute(
    ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    wait(ledger, "r")
    once = int(RENEWAL / SECOND)
    with monkeypatch.context() as nobody:
        nobody.setattr(ledger.database, "writing", None)
        still_waits(ledger, "r", at=once - 1)
        still_waits(ledger, "lacks-more", set(), at=once - 1)
    still_waits(ledger, "r", at=once)
    assert before(ledger, None, at=once + int(SILENCE / SECOND) - 1) == ["r"]


def test_a_decision_is_kept_from_hurting_so_many_and_no_more(ledger: Ledger) -> None:
    for number in range(PROTECTED + 1):
        wait(ledger, f"r{number:02}", at=number)
    assert before(ledger, None, at=60) == [f"r{number:02}" for number in range(PROTECTED)]


def test_a_run_that_waits_for_on_premises_by_choice_keeps_nobody_from_a_place_until_it_may_buy(ledger: Ledger) -> None:
    dear = job_spec(gpus_per_node=8, expected_duration=timedelta(hours=1))
    wait(ledger, "dear", dear)
    wait(ledger, "cheap", at=1)
    patient = replace(POLICY, waiting=WaitRules(from_gpus=8, from_gpu_hours=Decimal(8), share=Decimal("0.01")))

    def seen(at: int) -> list[str]:
        whole = ledger.complete(None, job_spec(), SNAPSHOT, patient, NOW + at * SECOND)
        return [queued.run for queued in whole.queue]

    assert seen(35) == ["cheap"]
    assert seen(36) == ["dear", "cheap"]
