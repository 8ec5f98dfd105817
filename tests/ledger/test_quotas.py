"""Quotas hold for attempts of every state, whatever becomes of the tasks that carry them."""

from __future__ import annotations

from decimal import Decimal

import pytest

from spillway.ledger import Ledger
from spillway.model import Attempt, AttemptState, Outcome, PlacementDecision, PlacementPolicy, QuotaShare, Snapshot
from spillway.placement.policy import place
from spillway.testing.builders import cluster_state, job_spec, node_pool, onprem_cluster, placement_policy, snapshot
from spillway.testing.ledger_values import NOW, reserve

SEEN = snapshot(cluster_state(onprem_cluster(pools=(node_pool(gpus_per_node=8, max_nodes=1),))), taken_at=NOW)


def limited(gpus: int, **fields: bool) -> PlacementPolicy:
    """Research may use so many of the eight GPUs, others the rest of them."""
    shares = {"research": Decimal(gpus) / 8, "others": Decimal(8 - gpus) / 8}
    quotas = {name: QuotaShare(onprem=share, cloud=Decimal(0)) for name, share in shares.items()}
    return placement_policy(quotas=quotas, **fields)


def ask(
    ledger: Ledger, run: str, policy: PlacementPolicy, *, department: str = "research", spot_ok: bool = False
) -> Attempt | None:
    """The run's open or next attempt on one GPU."""
    job = job_spec(department=department, spot_ok=spot_ok)

    def decide(whole: Snapshot) -> PlacementDecision:
        return place(job, whole, policy)

    return reserve(ledger, run, job, decide=decide, seen=SEEN, policy=policy)[0]


def test_ten_runs_on_a_quota_of_four_all_end_and_never_more_than_four_are_open(ledger: Ledger) -> None:
    policy, waiting, ended = limited(4), [f"r{number}" for number in range(10)], 0
    while waiting:
        for run in waiting:
            ask(ledger, run, policy)
        held = ledger.reservations()
        assert 1 <= len(held) <= 4
        attempt = ledger.attempt_by_label(held[0].attempt)
        assert attempt is not None
        ledger.settle(attempt, Outcome.SUCCEEDED, "done", NOW)
        waiting.remove(attempt.run)
        ended += 1
    assert ended == 10
    assert ledger.reservations() == ()


@pytest.mark.parametrize("states", [0, 1, 2, 3], ids=["reserved", "staged", "launched", "running"])
def test_at_a_quota_of_one_an_attempt_counts_in_every_state_and_never_waits_for_itself(
    ledger: Ledger, states: int
) -> None:
    policy = limited(1)
    first = ask(ledger, "first", policy)
    assert first is not None
    for state in list(AttemptState)[1 : states + 1]:
        first = ledger.advance(first, state)
    assert ask(ledger, "second", policy) is None
    resumed = ask(ledger, "first", policy)
    assert resumed == first, "a task that comes back has the place that it holds"
    ledger.settle(first, Outcome.PREEMPTED, "its node was lost", NOW)
    again = ask(ledger, "first", policy)
    assert again is not None
    assert again.number == 2
    assert ask(ledger, "second", policy) is None


def test_only_what_may_be_interrupted_borrows_and_only_where_that_is_declared(ledger: Ledger) -> None:
    lending = limited(1, borrowing=True)
    assert ask(ledger, "own", lending) is not None
    assert ask(ledger, "rigid", lending) is None
    assert ask(ledger, "elastic", limited(1), spot_ok=True) is None
    for number in range(7):
        assert ask(ledger, f"borrower-{number}", lending, spot_ok=True) is not None
    assert ask(ledger, "borrower-7", lending, spot_ok=True) is None
    assert len(ledger.reservations()) == 8
