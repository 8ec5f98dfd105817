"""A process killed between any two writes of a step has done all of it or nothing, and the step may be repeated."""

from __future__ import annotations

import itertools
import os
import signal
from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from decimal import Decimal
from functools import partial
from typing import Any

import pytest
from sqlalchemy import Engine, event

from spillway.errors import ConfigError
from spillway.ledger import Ledger, open_ledger, upgrade
from spillway.ledger.schema import metadata
from spillway.model import (
    Attempt,
    AttemptState,
    CoolDown,
    Outcome,
    PlacementDecision,
    PreemptionPlan,
    Snapshot,
    Victim,
)
from spillway.testing.ledger_values import NOW, PLACE, POLICY, SNAPSHOT, a_cost, reserve

WRITES = ("INSERT", "UPDATE", "DELETE", "CREATE")
"""To be killed before a read is to be killed after the write before it."""

LATER = NOW + timedelta(hours=1)


def _newest(ledger: Ledger) -> Attempt:
    return ledger.attempts("r")[-1]


LIFE: dict[str, Callable[[Ledger], object]] = {
    "reserve": lambda ledger: reserve(ledger, "r"),
    "stage": lambda ledger: ledger.advance(_newest(ledger), AttemptState.STAGED, image_digest="sha256:ab"),
    "settle": lambda ledger: ledger.settle(_newest(ledger), Outcome.PREEMPTED, "node lost", LATER),
    "book": lambda ledger: ledger.book(a_cost("r-1")),
    "correct": lambda ledger: ledger.correct(
        a_cost("r-1"), lambda booked: replace(booked, gpus=Decimal(2)), reason="counted again", now=LATER
    ),
    "cool down": lambda ledger: ledger.cool_down(CoolDown(cluster="onprem", pool="a100", until=LATER, reason="lost")),
    "reserve again": lambda ledger: reserve(ledger, "r", now=LATER),
    "expire": lambda ledger: ledger.expire(_newest(ledger), LATER + timedelta(days=1)),
}


def _giving_way(seen: Snapshot) -> PlacementDecision:
    """A place that is free once the run ``other`` has given way."""
    plan = PreemptionPlan(
        place=PLACE, victims=(Victim(attempt="other-1", lost_gpu_seconds=1.0, reason="it is below"),), spared={}
    )
    return PlacementDecision(job="r", taken_at=NOW, chosen=PLACE, possible=True, verdicts=(), preemption=plan)


DISPLACING: dict[str, Callable[[Ledger], object]] = {
    "reserve another": lambda ledger: reserve(ledger, "other"),
    "reserve": lambda ledger: reserve(ledger, "r", decide=_giving_way),
    "stage": LIFE["stage"],
    "displace": lambda ledger: ledger.displace(
        _newest(ledger), now=LATER, snapshot=SNAPSHOT, policy=POLICY, needed=lambda seen, asked: asked
    ),
}


@pytest.mark.parametrize("life", [LIFE, DISPLACING], ids=["of a run", "of one that another gives way to"])
def test_a_step_that_is_killed_is_done_whole_or_not_at_all(
    ledger: Ledger, life: dict[str, Callable[[Ledger], object]]
) -> None:
    kills: dict[str, int] = {}
    for name, step in life.items():
        before = _everything(ledger)
        for write in itertools.count():
            if not _killed_before(write, partial(step, ledger)):
                break
            found = _everything(ledger)
            assert found == _with_run(before, found), f"{name} was half done, killed before its write {write}"
        kills[name] = write
        done = _everything(ledger)
        assert done != before, f"{name} did nothing"
        step(ledger)
        assert _everything(ledger) == done, f"{name} did something more when it was repeated"
    assert min(kills.values()) >= 2, kills


def test_an_upgrade_that_is_killed_is_done_whole_or_not_at_all(new_database: Callable[[], str]) -> None:
    url = new_database()
    for write in itertools.count(step=6):
        if not _killed_before(write, partial(upgrade, url)):
            break
        with pytest.raises(ConfigError, match="holds no ledger yet"):
            open_ledger(url)
    assert write >= 12
    assert open_ledger(url).runs() == ()


def _everything(ledger: Ledger) -> dict[str, list[object]]:
    """The rows of every table."""
    with ledger.engine.begin() as connection:
        return {table.name: list(connection.execute(table.select())) for table in metadata.sorted_tables}


def _with_run(before: dict[str, list[object]], now: dict[str, list[object]]) -> dict[str, list[object]]:
    """What is on record when a reservation got as far as opening its run, which is a transaction of its own."""
    return before | {"runs": now["runs"]}


def _killed_before(write: int, step: Callable[[], object]) -> bool:
    """Take the step in a process that kills itself before that write or commit; False where the step has fewer."""
    child = os.fork()
    if child == 0:
        left = iter(range(write))

        def count(*_: Any) -> None:
            if next(left, None) is None:
                os.kill(os.getpid(), signal.SIGKILL)

        def count_writes(_connection: Any, _cursor: Any, statement: str, *_: Any) -> None:
            if statement.lstrip().startswith(WRITES):
                count()

        event.listen(Engine, "before_cursor_execute", count_writes)
        event.listen(Engine, "commit", count)
        try:
            step()
            os._exit(0)
        finally:
            os._exit(1)
    _, status = os.waitpid(child, 0)
    if not os.WIFSIGNALED(status):
        assert os.WEXITSTATUS(status) == 0, "the step failed"
    return os.WIFSIGNALED(status)
