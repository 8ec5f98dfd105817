import json
from dataclasses import replace
from typing import Any

import pytest

from spillway.checkpoints.layout import progress_key
from spillway.checkpoints.progress import Progress, read_progress, write_progress
from spillway.codec import encode
from spillway.stores.local import LocalStore

PROGRESS = Progress(
    first_step=11,
    step=20,
    total_steps=60,
    loss=0.1234567890123456789,
    at="2026-01-05T12:00:00+00:00",
    durable_step=20,
    slowest_commit_seconds=41.2,
    step_seconds=1.5,
    began_at="2026-01-05T11:59:45+00:00",
)


def test_progress_is_read_as_it_was_written(store: LocalStore) -> None:
    write_progress(store, "llm-7b", 2, PROGRESS)
    assert read_progress(store, "llm-7b", 2) == PROGRESS
    assert read_progress(store, "llm-7b", 1) is None


def test_the_last_word_counts(store: LocalStore) -> None:
    later = Progress(first_step=11, step=30, total_steps=60, loss=None, at="2026-01-05T12:01:00+00:00")
    write_progress(store, "llm-7b", 2, PROGRESS)
    write_progress(store, "llm-7b", 2, later)
    assert read_progress(store, "llm-7b", 2) == later


@pytest.mark.parametrize("body", [b"", b"{", b"[]", b"null", b'{"step": 3}', b'{"first_step": "one"}'])
def test_an_object_that_is_no_progress_tells_nothing(store: LocalStore, body: bytes) -> None:
    store.put(progress_key("llm-7b", 2), body, size_bytes=len(body))
    assert read_progress(store, "llm-7b", 2) is None


@pytest.mark.parametrize("field", ["step", "slowest_commit_seconds", "step_seconds"])
def test_progress_without_end_tells_nothing(store: LocalStore, field: str) -> None:
    body = json.dumps(encode(PROGRESS) | {field: float("inf")}).encode()
    store.put(progress_key("llm-7b", 2), body, size_bytes=len(body))
    assert read_progress(store, "llm-7b", 2) is None


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({}, "step 20 of 60, loss 0.123457, step 20 committed, about 1 min left at 1.5 s a step"),
        ({"step_seconds": 0.02}, "step 20 of 60, loss 0.123457, step 20 committed, about 1 s left at 0.02 s a step"),
        ({"step": 60}, "step 60 of 60, loss 0.123457, step 20 committed, about 0 s left at 1.5 s a step"),
        ({"step_seconds": None}, "step 20 of 60, loss 0.123457, step 20 committed, time left unknown"),
        ({"loss": None, "durable_step": None, "step_seconds": None},
         "step 20 of 60, loss unknown, nothing committed, time left unknown"),
        ({"total_steps": 10}, "step 20 of 10, loss 0.123457, step 20 committed, time left unknown"),
        ({"total_steps": 10**18}, f"step 20 of {10**18}, loss 0.123457, step 20 committed, time left unknown"),
    ],
    ids=["minutes", "seconds", "at-the-end", "no-pace", "first-steps", "past-its-end", "for-ever"],
)  # fmt: skip
def test_progress_in_words_says_what_is_not_known(changes: dict[str, Any], told: str) -> None:
    assert str(replace(PROGRESS, **changes)) == told


@pytest.mark.parametrize(("total_steps", "left"), [(10_020, "4 h 10 min"), (10**6, "17 d 8 h"), (63, "1 min 4 s")])
def test_the_time_left_is_told_in_its_two_largest_units(total_steps: int, left: str) -> None:
    assert f"about {left} left at 1.5 s a step" in str(replace(PROGRESS, total_steps=total_steps))
