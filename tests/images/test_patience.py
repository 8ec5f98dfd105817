"""How long a mirroring waits for a registry, and that many calls do not each wait for one that is gone."""

from __future__ import annotations

from threading import Event

import pytest

from spillway.errors import AccessDenied, Unreachable
from spillway.images.patience import Patience
from spillway.stores.patience import AWAY_SECONDS
from spillway.testing.slept_time import SleptTime


@pytest.fixture
def slept(monkeypatch: pytest.MonkeyPatch) -> SleptTime:
    time = SleptTime()
    monkeypatch.setattr("spillway.images.patience.monotonic", time.monotonic)
    return time


@pytest.fixture
def patience(slept: SleptTime) -> Patience:
    class SleptEvent(Event):
        def wait(self, timeout: float | None = None) -> bool:
            slept.sleep(timeout or 0.0)
            return self.is_set()

    made = Patience()
    made._lost = SleptEvent()
    return made


def away() -> str:
    raise Unreachable("registry cloud", "Connection refused")


def test_a_registry_that_restarts_is_waited_for(slept: SleptTime, patience: Patience) -> None:
    began = slept.now
    assert patience.run(lambda: "there" if slept.now > began + 20 else away()) == "there"
    assert max(slept.pauses) <= 5


def test_once_a_registry_was_waited_for_in_vain_others_do_not_wait_until_it_is_back(
    slept: SleptTime, patience: Patience
) -> None:
    def waited() -> float:
        before = slept.now
        with pytest.raises(Unreachable):
            patience.run(away)
        return slept.now - before

    assert AWAY_SECONDS - 5 <= waited() <= AWAY_SECONDS
    assert waited() < 1
    patience.run(lambda: "there")
    assert waited() >= AWAY_SECONDS - 5


def test_whoever_waits_while_another_call_gives_up_says_too_for_how_long_it_has_waited(
    slept: SleptTime, patience: Patience
) -> None:
    began = slept.now

    def call() -> None:
        if slept.now > began + 5:
            patience._lost.set()  # as another call does
        away()

    with pytest.raises(Unreachable, match=r"; it was waited for [5-9] s"):
        patience.run(call)
    with pytest.raises(Unreachable, match=r"Connection refused$"):
        patience.run(away)


def test_a_pause_that_the_registry_asks_for_is_kept_and_one_that_is_too_long_is_not(
    slept: SleptTime, patience: Patience
) -> None:
    def busy(seconds: float) -> None:
        raise Unreachable("registry cloud", "429", retry_after_seconds=seconds)

    for asked, pauses in ((60.0, {60.0}), (600.0, set())):
        slept.pauses.clear()
        with pytest.raises(Unreachable):
            patience.run(lambda asked=asked: busy(asked))
        assert set(slept.pauses) == pauses


def test_what_no_retry_helps_is_not_tried_again(slept: SleptTime, patience: Patience) -> None:
    def denied() -> None:
        raise AccessDenied("registry cloud", "403", fix="ask for the right")

    with pytest.raises(AccessDenied):
        patience.run(denied)
    assert slept.pauses == []
