"""When silence is a stall: a table of what was heard, and of what a job says of itself."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from spillway.model import StallRule
from spillway.stalls import Silence, Stall, judge_stall

NOON = datetime(2026, 1, 5, 12, tzinfo=UTC)
MINUTE = timedelta(minutes=1)
RULE = StallRule(after=15 * MINUTE, steps=10)


def judged(minutes: float, *, rule: StallRule | None = RULE, step_seconds: float | None = 2.0) -> Stall | None:
    now = NOON + minutes * MINUTE
    return judge_stall(Silence(since=NOON), rule, now=now, last_step=40, step_seconds=step_seconds)


@pytest.mark.parametrize(
    ("minutes", "step_seconds", "over"),
    [
        (15, 2.0, None),
        (16, 2.0, False),
        (30, 2.0, False),
        (31, 2.0, True),
        (16, None, False),
        (31, None, True),
        (31, 600.0, None),
        (101, 600.0, False),
        (201, 600.0, True),
        (31, 1e300, None),
    ],
    ids=[
        "within", "alert", "at-the-end", "over", "alert-without-pace", "over-without-pace", "slow-steps", "slow-alert",
        "slow-over", "absurd-pace",
    ],
)  # fmt: skip
def test_the_longer_of_a_time_and_of_so_many_usual_steps_is_a_stall_and_twice_that_its_end(
    minutes: float, step_seconds: float | None, over: bool | None
) -> None:
    stall = judged(minutes, step_seconds=step_seconds)
    assert (stall and stall.over) == over


def test_a_stall_says_since_when_and_when_it_ends() -> None:
    quiet = "stalled: no step after step 40 and no other word since 12:00:00 UTC, a step takes 2 s"
    assert judged(16) == Stall(reason=f"{quiet}; it is stopped after 12:30:00 UTC", over=False)
    assert judged(31) == Stall(reason=quiet, over=True)
    alert = judged(16, step_seconds=None)
    assert alert is not None
    assert "a step takes" not in alert.reason


def test_a_job_without_a_rule_never_stalls() -> None:
    assert judged(100_000, rule=None) is None


def test_what_is_not_known_is_no_silence() -> None:
    assert judge_stall(Silence(), RULE, now=NOON, last_step=40, step_seconds=2.0) is None


@pytest.mark.parametrize(
    ("heard", "since"),
    [
        ([False], 0),
        ([False, False, False], 0),
        ([True, False, False], 0),
        ([False, True, False], 1),
        ([False, None, False, False], 2),
        ([False, None], None),
        ([None, None], None),
    ],
    ids=["begins", "goes-on", "after-a-word", "broken-by-a-word", "broken-by-not-knowing", "unknown-now", "unknown"],
)
def test_silence_lasts_from_the_last_word_or_from_when_it_could_be_heard_again(
    heard: list[bool | None], since: int | None
) -> None:
    silence = Silence()
    for minute, word in enumerate(heard):
        silence = silence.at(NOON + minute * MINUTE, heard=word)
    assert silence.since == (None if since is None else NOON + since * MINUTE)
