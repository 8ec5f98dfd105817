"""What a server may say of when it is to be asked again."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from email.utils import format_datetime

import pytest

from spillway.stores.patience import retry_after_seconds


@pytest.mark.parametrize(("header", "seconds"), [("7", 7), (" 120 ", 120), ("0", 0)])
def test_seconds_are_taken_as_they_are(header: str, seconds: float) -> None:
    assert retry_after_seconds(header) == seconds


def test_a_date_is_as_far_as_it_is_from_now_whether_it_names_its_zone_or_not() -> None:
    date = datetime.now(UTC) + timedelta(seconds=3600)
    for written in (format_datetime(date, usegmt=True), f"{date:%a %b %d %H:%M:%S %Y}"):
        asked = retry_after_seconds(written)
        assert asked is not None
        assert 1800 < asked <= 3600
    assert retry_after_seconds("Sun, 06 Nov 1994 08:49:37 GMT") == 0


@pytest.mark.parametrize("header", [None, "", "soon", "-1", "1.5", "\u00b2", "Sun, 99 Nov 1994 08:49:37 GMT"])
def test_anything_else_says_nothing(header: str | None) -> None:
    assert retry_after_seconds(header) is None
