import pytest

from spillway.checkpoints.layout import progress_key
from spillway.checkpoints.progress import Progress, read_progress, write_progress
from spillway.stores.local import LocalStore

PROGRESS = Progress(
    first_step=11,
    step=20,
    total_steps=60,
    loss=0.1234567890123456789,
    at="2026-01-05T12:00:00+00:00",
    durable_step=20,
    slowest_commit_seconds=41.2,
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
