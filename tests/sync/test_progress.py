"""How far a sync is, told in words and now and then only."""

from __future__ import annotations

import pytest

from spillway.sync.progress import Moving, Paced, Progress, Rate, told


def progress(objects_done: int, bytes_done: int) -> Progress:
    return Progress(objects_done=objects_done, objects_total=400, bytes_done=bytes_done, bytes_total=4_000_000_000)


@pytest.mark.parametrize(
    ("done", "rate", "expected"),
    [
        (progress(0, 0), None, "0 of 400 objects, 0 B of 4.0 GB"),
        (progress(100, 1_000_000_000), 50e6, "100 of 400 objects, 1.0 GB of 4.0 GB, 50.0 MB/s, 60 s to go"),
        (progress(1, 10_000_000), 500e3, "1 of 400 objects, 10.0 MB of 4.0 GB, 500.0 kB/s, 2.2 h to go"),
        (progress(400, 4_000_000_000), 50e6, "400 of 400 objects, 4.0 GB of 4.0 GB, 50.0 MB/s, 0 s to go"),
        (Progress(bytes_done=1, bytes_total=3), 1.0, "1 B of 3 B, 1 B/s, 2 s to go"),
    ],
)
def test_progress_is_told_with_rate_and_time_to_go(done: Progress, rate: float | None, expected: str) -> None:
    assert told(done, rate) == expected


def test_the_rate_follows_what_was_measured_lately_and_bursts_do_not_count() -> None:
    rate = Rate(began=0.0)
    rate.measure(1000, 0.5)
    assert rate.bytes_per_second is None
    rate.measure(100, 1.0)
    assert rate.bytes_per_second == 100.0
    rate.measure(100 + 300 * 15, 16.0)
    assert rate.bytes_per_second == pytest.approx(200.0)
    rate.measure(100 + 300 * 15, 16.5)
    assert rate.bytes_per_second == pytest.approx(200.0)


def test_bytes_whose_number_becomes_known_on_the_way_are_never_more_than_all() -> None:
    seen: list[Progress] = []
    moving = Moving(seen.append)
    moving.expect(100)
    moving.moved(30)
    moving.expect(-50)
    moving.moved(30)
    assert [(each.bytes_done, each.bytes_total) for each in seen] == [(30, 100), (50, 50)]


def test_every_copy_is_counted_until_all_are_done(ends) -> None:
    ends.fill({f"{n}": b"x" * n for n in range(10)})
    seen: list[Progress] = []
    ends.sync(on_progress=seen.append)
    assert [each.objects_done for each in seen] == list(range(1, 11))
    assert seen[-1] == Progress(objects_done=10, objects_total=10, bytes_done=45, bytes_total=45)


@pytest.mark.parametrize(("every_seconds", "lines"), [(0.0, 3), (3600.0, 0)])
def test_a_log_gets_a_line_now_and_then_only(every_seconds: float, lines: int) -> None:
    said: list[str] = []
    paced = Paced(said.append, every_seconds=every_seconds)
    for number in range(3):
        paced(progress(number, number))
    assert len(said) == lines
