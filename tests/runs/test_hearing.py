"""What a watch hears of a trainer: the newest step of object and log."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from spillway.checkpoints.progress import LINE_PREFIX, Progress
from spillway.model import StallRule
from spillway.runs.hearing import Hearing

NOON = datetime(2026, 1, 5, 12, tzinfo=UTC)
RULE = StallRule(after=timedelta(minutes=15), steps=10)
PROGRESS = Progress(
    first_step=1, step=20, total_steps=60, loss=0.5, at="2026-01-05T12:00:00+00:00", durable_step=20, step_seconds=2.0
)


def line(event: str, **facts: object) -> str:
    return LINE_PREFIX + json.dumps({"event": event, **facts})


def step_line(step: int) -> str:
    return line("step", step=step, total_steps=60, loss=1 / step, first_step=1)


def test_the_log_is_ahead_of_the_object_between_two_of_its_writes() -> None:
    hearing = Hearing()
    assert hearing.note_object(PROGRESS)
    assert hearing.note_lines([step_line(21), "epoch 3", step_line(22)])
    assert hearing.progress == replace(PROGRESS, step=22, loss=1 / 22)
    newer = replace(PROGRESS, step=21, loss=1 / 21, step_seconds=3.0)
    assert hearing.note_object(newer)
    assert hearing.progress == replace(PROGRESS, step=22, loss=1 / 22, step_seconds=3.0)


def test_lines_that_are_read_again_take_no_step_back_and_still_are_words() -> None:
    hearing = Hearing()
    hearing.note_object(PROGRESS)
    assert hearing.note_lines([step_line(19)])
    assert hearing.progress == PROGRESS


def test_steps_are_known_from_the_log_alone_where_the_object_cannot_be_written() -> None:
    hearing = Hearing()
    assert not hearing.note_object(None)
    assert hearing.note_lines([step_line(4)])
    assert hearing.progress == Progress(first_step=1, step=4, total_steps=60, loss=0.25, at="")


def test_an_object_that_is_as_it_was_is_no_news() -> None:
    hearing = Hearing()
    hearing.note_object(PROGRESS)
    assert not hearing.note_object(PROGRESS)
    assert hearing.note_object(replace(PROGRESS, at="2026-01-05T12:00:15+00:00"))


@pytest.mark.parametrize(
    ("said", "word"),
    [
        (line("alive", doing="evaluating", step=20), True),
        (line("commit-failed", step=20, error="the store is silent"), True),
        (line("step", step="x"), True),
        ("loss is 0.4", False),
        (LINE_PREFIX + "{", False),
        (LINE_PREFIX + "[1]", False),
        ("", False),
    ],
    ids=["alive", "commit-failed", "odd-step", "own-line", "cut-off", "no-event", "empty"],
)
def test_every_event_is_a_sign_of_life_and_no_line_of_the_program_itself(said: str, word: bool) -> None:
    hearing = Hearing()
    hearing.note_object(PROGRESS)
    assert hearing.note_lines([said]) is word
    assert hearing.progress == PROGRESS


def test_before_its_first_step_a_trainer_may_be_silent_and_from_then_on_not() -> None:
    hearing, minute = Hearing(), timedelta(minutes=1)
    hearing.note_lines([line("started", first_step=1)])
    for minutes in range(0, 600, 60):
        assert hearing.stall(RULE, NOON + minutes * minute, heard=False) is None
    hearing.note_lines([step_line(1)])
    assert hearing.stall(RULE, NOON + 600 * minute, heard=True) is None
    assert hearing.stall(RULE, NOON + 616 * minute, heard=False)


def test_what_could_not_be_asked_begins_the_count_anew() -> None:
    hearing, minute = Hearing(), timedelta(minutes=1)
    hearing.note_object(replace(PROGRESS, step_seconds=None))
    assert hearing.stall(RULE, NOON, heard=True) is None
    hearing.lose()
    assert hearing.stall(RULE, NOON + 40 * minute, heard=False) is None
    assert hearing.stall(RULE, NOON + 56 * minute, heard=None) is None
    assert hearing.stall(RULE, NOON + 57 * minute, heard=False) is None
    assert hearing.stall(RULE, NOON + 73 * minute, heard=False)
