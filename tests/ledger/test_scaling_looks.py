"""What the scaler planned from is stored with every change, now and then without one, and not for ever."""

from __future__ import annotations

import gzip
import json
from dataclasses import replace
from datetime import datetime, timedelta
from decimal import Decimal
from typing import Any

import pytest
from sqlalchemy import LargeBinary, type_coerce, update

from spillway.codec import encode
from spillway.errors import ConfigError, Missing
from spillway.ledger import Ledger, ScalingLook
from spillway.ledger.scaling_tables import scaling_looks
from spillway.model import Ending, Forecast, PoolTarget, ScalingChange
from spillway.runs.shadow_scaling import shadow_scaling
from spillway.scaling.presets import DEFAULT, PRESETS
from spillway.scaling.rules import ForecastRule, ScalingRules, WindowRule
from spillway.testing.elastic import (
    POOL,
    busy_node,
    idle_node,
    manual_order,
    measured,
    pending_jobs,
    pool_use,
    scaling_look,
    scaling_snapshot,
)
from spillway.testing.ledger_values import NOW
from spillway.windows import Iteration

MINUTE, DAY = timedelta(minutes=1), timedelta(days=1)
EVERY, REMEMBERED = 5 * MINUTE, 40 * DAY


def at(moment: datetime, **fields: Any) -> ScalingLook:
    """A look of that moment."""
    return scaling_look(scaling_snapshot(pool_use(busy_node("a")), taken_at=moment, **fields))


def note(ledger: Ledger, *moments: datetime) -> None:
    for moment in moments:
        ledger.note_look(at(moment), every=EVERY, remembered=REMEMBERED)


def change(ledger: Ledger, nodes: int, look: ScalingLook, pool: str = "gpu") -> ScalingChange:
    target = PoolTarget(cluster="cloud", pool=pool, nodes=nodes)
    return ledger.begin_change(target, before=1, actor="a test", now=look.snapshot.taken_at, look=look)


def moments(ledger: Ledger) -> list[datetime]:
    found = ledger.looks_between(NOW - 100 * DAY, NOW + 100 * DAY)
    return [look.snapshot.taken_at for look in found if not isinstance(look, ConfigError)]


def packed(data: object) -> bytes:
    return gzip.compress(json.dumps(data).encode())


@pytest.mark.parametrize("rules", PRESETS.values(), ids=PRESETS)
def test_a_look_comes_back_as_it_was(ledger: Ledger, rules: ScalingRules) -> None:
    window = WindowRule(iteration=Iteration(days=None, time_zone="Europe/Berlin"), place=POOL)
    foreseen = Forecast(
        made_at=NOW, step=timedelta(hours=1), quantiles=(0.5, 0.9), gpus=((8, 16), (8, 24)), model="m", reason="r"
    )
    seen = scaling_snapshot(
        pool_use(busy_node("a"), idle_node("b")),
        taken_at=NOW,
        unknown={("aws", "gpu"): "timed out"},
        local=measured(60),
        cloud=measured(8),
        queue=pending_jobs(3),
        orders=(manual_order(),),
        last_out={POOL: NOW - MINUTE},
        base_nodes={POOL: 2},
        replaced={POOL: {NOW - MINUTE: frozenset({"c", "d"})}},
        money_left=Decimal("12.50"),
        endings=(Ending(at=NOW + MINUTE, place=("onprem", "a100"), gpus_per_node=8, nodes=2),),
    )
    look = scaling_look(seen, replace(rules, forecast=ForecastRule(), window=window), {("", ""): foreseen})
    ledger.note_look(look, every=EVERY, remembered=REMEMBERED)
    assert list(ledger.looks_between(NOW, NOW + MINUTE)) == [look]


def closed(line: ScalingChange) -> ScalingChange:
    """As a change is told that was left open, once the next one of its pool has begun."""
    return replace(line, problem="broken off: whoever decided it left no answer of its provider")


def test_a_look_that_changes_nothing_is_stored_when_the_last_one_is_old_enough(ledger: Ledger) -> None:
    note(ledger, NOW, NOW + MINUTE, NOW + EVERY - MINUTE, NOW + EVERY, NOW + EVERY + MINUTE)
    assert moments(ledger) == [NOW, NOW + EVERY]
    assert list(ledger.looks_between(NOW + MINUTE, NOW + EVERY)) == []


def test_a_clock_that_was_wrong_keeps_no_later_look_from_being_stored(ledger: Ledger) -> None:
    note(ledger, NOW + 50 * DAY, NOW)
    assert moments(ledger) == [NOW + 50 * DAY, NOW]


def test_every_change_has_the_look_that_it_was_planned_at_and_two_of_one_look_share_it(ledger: Ledger) -> None:
    first, second = at(NOW), at(NOW + MINUTE, queue=pending_jobs(2))
    asked = [(2, first, "gpu"), (3, first, "other"), (4, second, "gpu")]
    one, other, last = (change(ledger, nodes, look, pool) for nodes, look, pool in asked)
    ledger.note_look(second, every=EVERY, remembered=REMEMBERED)
    assert [ledger.planned_from(begun.number) for begun in (one, other, last)] == [first, first, second]
    assert ledger.scaling_changes() == (closed(one), other, last)
    assert moments(ledger) == [NOW, NOW + MINUTE]


def test_a_change_that_nobody_made_was_planned_from_nothing(ledger: Ledger) -> None:
    with pytest.raises(Missing, match=r"change '7' is not in .*; `scale changes --json` tells the numbers"):
        ledger.planned_from(7)


@pytest.mark.parametrize(
    ("stored", "why"),
    [
        (packed({**encode(at(NOW)), "moods": []}), "data: ScalingLook: unknown key 'moods'"),
        (packed(encode(at(NOW)))[:-20], "data: expected compressed JSON, got Compressed file ended"),
        (packed(encode(at(NOW)))[:5] + bytes(40), "data: expected compressed JSON, got "),
        (b"half of it", "data: expected compressed JSON, got Not a gzipped file"),
        (gzip.compress(b"\xff{"), "data: expected compressed JSON, got 'utf-8' codec can't decode"),
    ],
    ids=["newer", "truncated", "garbled", "no-gzip", "no-text"],
)
def test_a_look_that_cannot_be_read_is_left_out_of_what_is_compared_and_told_of_its_change(
    ledger: Ledger, stored: bytes, why: str
) -> None:
    lost, kept = (change(ledger, 2, at(moment), pool) for moment, pool in ((NOW, "gpu"), (NOW + MINUTE, "other")))
    with ledger.database.writing() as connection:
        raw = {type_coerce(scaling_looks.c.look, LargeBinary): stored}
        connection.execute(update(scaling_looks).where(scaling_looks.c.number == lost.look).values(raw))
    looks = ledger.looks_between(NOW, NOW + DAY)
    shadow = shadow_scaling(looks, DEFAULT, since=NOW, until=NOW + DAY)
    assert (shadow.compared, shadow.not_rebuilt, moments(ledger)) == (1, 1, [NOW + MINUTE])
    with pytest.raises(ConfigError) as told:
        ledger.planned_from(lost.number)
    assert str(told.value).startswith(f"what change {lost.number} was planned from: it cannot be read ({why}")
    assert "\n" not in str(told.value)
    assert ledger.planned_from(kept.number) == at(NOW + MINUTE)


def test_a_change_that_is_tried_again_stays_with_the_look_that_it_came_from(ledger: Ledger) -> None:
    for minute in range(3):
        begun = change(ledger, 2, at(NOW + minute * MINUTE))
        ledger.change_failed(begun, "quota exceeded")
    assert (moments(ledger), begun.tries, begun.look is not None) == ([NOW], 3, True)


def test_only_so_many_of_the_newest_looks_are_kept(ledger: Ledger, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("spillway.ledger.scaling_looks.LOOKS_KEPT", 2)
    old = change(ledger, 2, at(NOW - MINUTE))
    note(ledger, NOW + EVERY, NOW + 2 * EVERY)
    assert moments(ledger) == [NOW + EVERY, NOW + 2 * EVERY]
    assert ledger.planned_from(old.number) is None
    assert ledger.scaling_changes() == (old,), "changes outlive what they were planned from"


def test_changes_beyond_the_newest_are_dropped_once_no_look_asks_for_them(
    ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("spillway.ledger.scaling_looks.CHANGES_KEPT", 2)
    long_ago, lately = at(NOW - 41 * DAY), at(NOW - 39 * DAY)
    first, taken = (ledger.change_is_asked(change(ledger, n, long_ago), NOW - 41 * DAY) for n in (2, 3))
    refused, again, last = (ledger.change_failed(change(ledger, n, long_ago), "no quota") for n in (4, 5, 6))
    recent = [change(ledger, n, lately, "other") for n in range(4)]
    note(ledger, NOW)
    kept = ledger.scaling_changes()
    assert kept == (taken, refused, last, *map(closed, recent[:-1]), recent[-1])
    assert {first, again}.isdisjoint(kept)
    assert ledger.last_changes(asked=True) == (taken,)
    assert ledger.refused_since(last) == refused.number


def test_changes_of_long_ago_are_kept_while_they_are_few(ledger: Ledger) -> None:
    old = [change(ledger, nodes, at(NOW - 300 * DAY)) for nodes in (2, 3, 4)]
    note(ledger, NOW)
    assert ledger.scaling_changes() == (*map(closed, old[:-1]), old[-1])
