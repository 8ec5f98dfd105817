"""What a person is told of a server that is waited for."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest

from spillway.stores import waiting
from spillway.stores.waiting import Waiting


def test_of_many_requests_that_wait_one_tells_it_and_one_that_it_is_over(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(waiting, "TOLD_EVERY_SECONDS", 3600.0)
    cloud = Waiting("s3://b@cloud")

    def told() -> list[str]:
        return [message for message in caplog.messages if "s3://b@cloud" in message]

    def wait(pause_seconds: float) -> None:
        cloud.begin("refused", waited_seconds=1.5, pause_seconds=pause_seconds, most_seconds=28.5)

    wait(0.4)
    cloud.end()
    assert told() == [], "a moment is nothing to tell"
    with ThreadPoolExecutor(8) as threads:
        list(threads.map(wait, [0.6] * 40))
        list(threads.map(lambda _: cloud.end(), range(8)))
    assert told() == ["waiting for s3://b@cloud, for 28 s more at most: refused", "s3://b@cloud answers again"]
