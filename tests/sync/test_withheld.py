"""Objects that may not leave their source: as if they were not there, but counted."""

from __future__ import annotations

import gzip
import logging

import pytest

from spillway.codec import encode
from spillway.stores.base import read_all

CANARY = "canary-5f1c"
OPEN = {"open/a": b"one", "open/b": b"two"}
CORE = {f"core/{CANARY}": b"secret", f"core/{CANARY}-too": b"secret"}


def admit(key: str) -> bool:
    return key.startswith("digits/open/")


def lines(store, key: str) -> bytes:
    """What lies there, unpacked where it is packed."""
    content = read_all(store, key)
    return gzip.decompress(content) if key.endswith(".gz") else content


def test_what_may_not_leave_is_counted_and_named_nowhere(ends, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG, logger="spillway")
    ends.fill(OPEN | CORE)
    planned, first, second = (ends.sync(admit=admit, dry_run=dry) for dry in (True, False, False))
    assert [report.objects_withheld for report in (planned, first, second)] == [2, 2, 2]
    assert [report.objects_copied for report in (planned, first, second)] == [2, 2, 0]
    assert ends.at_cloud() == OPEN
    told = [str(encode(report)) for report in (planned, first, second)]
    told += [caplog.text, str([(entry.key, lines(ends.cloud.store, entry.key)) for entry in ends.cloud.store.list()])]
    assert not [text for text in told if CANARY in text]


def test_what_became_core_is_no_longer_followed_and_goes_where_deletes_are_asked_for(ends) -> None:
    ends.fill(OPEN | {"open/c": b"3", "open/d": b"4", "open/e": b"5", "core/x": b"secret"})
    ends.sync()
    kept = ends.sync(admit=admit)
    assert (kept.ok, kept.objects_withheld, "core/x" in ends.at_cloud()) == (True, 1, True)
    gone = ends.sync(admit=admit, delete=True)
    assert (gone.ok, "core/x" in ends.at_cloud()) == (True, False)


def test_where_nothing_may_leave_nothing_is_copied_and_no_prefix_is_doubted(ends) -> None:
    ends.fill(CORE)
    report = ends.sync(admit=admit)
    assert (report.ok, report.objects_withheld, ends.outcomes) == (True, 2, [])
    assert ends.at_cloud() == {}
