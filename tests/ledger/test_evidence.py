from __future__ import annotations

import dataclasses
from datetime import timedelta

import pytest

from spillway.ledger import Ledger, Transfer, TransferKind, TransferOutcome
from spillway.model import CoolDown, Tier
from spillway.testing.ledger_values import NOW

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
