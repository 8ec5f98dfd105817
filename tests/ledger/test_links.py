from __future__ import annotations

from datetime import datetime, timedelta, tzinfo

import pytest

from spillway.ledger import Ledger, LinkUse, TransferKind
from spillway.ledger import links as ledger_links
from spillway.ledger.connection import Database
from spillway.ledger.links import share

CHECKPOINT, IMAGE, DATASET = TransferKind.CHECKPOINT, TransferKind.IMAGE, TransferKind.DATASET


def use(kind: TransferKind, rate: float | None = None, *, link: str = "cloud", mover: str | None = None) -> LinkUse:
    return LinkUse(link=link, mover=mover or kind, kind=kind, bytes_per_second=rate)


def take(ledger: Ledger, used: LinkUse) -> float:
    return ledger.take_share(used, bandwidth_bytes_per_second=1110.0)


@pytest.mark.parametrize(
    ("kind", "others", "expected"),
    [
        pytest.param(DATASET, [], 1110, id="alone it has all"),
        pytest.param(DATASET, [use(DATASET)], 555, id="two alike share alike"),
        pytest.param(CHECKPOINT, [use(IMAGE), use(DATASET)], 1000, id="a checkpoint goes first"),
        pytest.param(IMAGE, [use(CHECKPOINT), use(DATASET)], 100, id="then an image"),
        pytest.param(DATASET, [use(CHECKPOINT), use(IMAGE)], 10, id="a dataset is never stopped"),
        pytest.param(DATASET, [use(CHECKPOINT, 5.0)], 1100, id="what a slow checkpoint leaves but for room to grow"),
        pytest.param(DATASET, [use(CHECKPOINT, 1e3), use(IMAGE, 1e3)], 10, id="fast ones leave nothing"),
        pytest.param(
            DATASET, [use(CHECKPOINT, 5.0), use(DATASET, 5e2)], 550, id="two that want more share what is left"
        ),
        pytest.param(CHECKPOINT, [use(IMAGE, 1.0), use(DATASET, 1e3)], 1097.03, id="the rest is shared by weight"),
    ],
)
def test_a_link_is_shared_by_what_waits_for_it(kind: TransferKind, others: list[LinkUse], expected: float) -> None:
    assert share(kind, others, 1110.0) == pytest.approx(expected)


def test_a_checkpoint_that_was_slow_comes_back_to_its_share_through_the_room_that_is_left_to_it() -> None:
    moved = 1.0
    for _ in range(20):
        moved = 1110.0 - share(DATASET, [use(CHECKPOINT, moved)], 1110.0)
    assert moved == pytest.approx(1110 * 100 / 101)


def test_each_mover_is_told_its_share_of_those_that_move_over_its_link_now(ledger: Ledger) -> None:
    assert take(ledger, use(DATASET)) == 1110
    assert take(ledger, use(DATASET, link="elsewhere", mover="another")) == 1110
    assert take(ledger, use(CHECKPOINT)) == pytest.approx(1110 * 100 / 101)
    assert take(ledger, use(DATASET)) == pytest.approx(1110 / 101)
    take(ledger, use(CHECKPOINT, 5.0))
    assert take(ledger, use(DATASET)) == pytest.approx(1100)
    ledger.leave_link(CHECKPOINT)
    ledger.leave_link(CHECKPOINT)
    assert take(ledger, use(DATASET)) == 1110


def test_a_mover_that_was_killed_holds_its_share_for_a_short_time_only(
    ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    take(ledger, use(CHECKPOINT))
    assert take(ledger, use(DATASET)) < 1110
    monkeypatch.setattr(ledger_links, "SILENCE", timedelta())
    assert take(ledger, use(DATASET)) == 1110


def test_hosts_whose_clocks_differ_share_a_link(upgraded_postgres: str, monkeypatch: pytest.MonkeyPatch) -> None:
    class Ahead(datetime):
        @classmethod
        def now(cls, tz: tzinfo | None = None) -> Ahead:
            return cls.fromtimestamp(super().now(tz).timestamp() + 3600, tz)

    ledger = Ledger(Database(upgraded_postgres))
    take(ledger, use(CHECKPOINT, link="skewed"))
    monkeypatch.setattr(ledger_links, "datetime", Ahead)
    assert take(ledger, use(DATASET, link="skewed")) == pytest.approx(1110 / 101)


def test_the_rate_of_a_link_is_what_all_its_movers_carry_smoothed(ledger: Ledger) -> None:
    take(ledger, use(DATASET))
    assert ledger.link_rates() == {}, "nothing was measured yet"
    take(ledger, use(DATASET, 100.0))
    assert ledger.link_rates() == {"cloud": 100.0}
    take(ledger, use(CHECKPOINT, 400.0))
    assert ledger.link_rates() == {"cloud": pytest.approx(180.0)}
    take(ledger, use(DATASET, 0.0))
    assert ledger.link_rates() == {"cloud": pytest.approx(224.0)}
