"""Copies of many objects through a network and between stores that misbehave; a proxy spoils what real servers say."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path

import pytest

from spillway.errors import StoreFull, Unreachable
from spillway.stores.parts import MIB
from spillway.stores.s3 import S3Store
from spillway.testing.disks import filled, small_disk
from spillway.testing.faulty_proxy import Answer, FaultyProxy, faulty_proxy
from spillway.testing.s3_server import S3Server

CONTENTS = {f"{number:02}": b"content %d" % number * 20 for number in range(30)}


@pytest.fixture
def proxies(s3_sites: Mapping[str, S3Server]) -> Iterator[Mapping[str, FaultyProxy]]:
    with (
        faulty_proxy(s3_sites["onprem"].endpoint_url) as onprem,
        faulty_proxy(s3_sites["cloud"].endpoint_url) as cloud,
    ):
        yield {"onprem": onprem, "cloud": cloud}


@pytest.fixture
def spoiled(
    s3_ends,
    s3_sites: Mapping[str, S3Server],
    s3_buckets: Mapping[str, str],
    proxies: Mapping[str, FaultyProxy],
):
    """The same ends, both through their proxies; ``CONTENTS`` are at home."""
    s3_ends.fill(CONTENTS)
    home, cloud = (
        S3Store(
            name=f"s3://{s3_buckets[name]}@{name}",
            endpoint=s3_sites[name].endpoint(url=proxies[name].url),
            bucket=s3_buckets[name],
        )
        for name in ("onprem", "cloud")
    )
    return type(s3_ends)(home, cloud)


def error(status: int, code: str, *headers: tuple[str, str]) -> Callable[[Answer], Answer]:
    body = f"<Error><Code>{code}</Code><Message>as told</Message></Error>".encode()
    return lambda _: Answer(status, body, (("Content-Type", "application/xml"), *headers))


def of_object(spoil: Callable[[Answer], Answer | None]) -> Callable[[Answer], Answer | None]:
    """Spoil the content of objects only, and let listings and records be."""
    return lambda answer: spoil(answer) if answer.body.startswith(b"content") else answer


PASSING = {
    "a storm that says how long": ("cloud", "PUT", error(503, "SlowDown", ("Retry-After", "0")), 10),
    "a storm that does not": ("onprem", "GET", of_object(error(429, "TooManyRequests")), 10),
    "an internal error": ("cloud", "PUT", error(500, "InternalError"), 5),
    "connections that break": ("cloud", "PUT", lambda answer: None, 5),
    "answers that never come": ("onprem", "GET", of_object(lambda answer: None), 5),
    "bodies that are cut": ("onprem", "GET", of_object(lambda answer: replace(answer, sent=30)), 20),
    "bytes that change under way": (
        "onprem",
        "GET",
        of_object(lambda answer: replace(answer, body=b"CONTENT" + answer.body[7:])),
        5,
    ),
}


@pytest.mark.parametrize(("site", "method", "spoil", "times"), PASSING.values(), ids=PASSING.keys())
def test_a_fault_that_passes_costs_no_object(
    spoiled, proxies: Mapping[str, FaultyProxy], site: str, method: str, spoil, times: int
) -> None:
    proxies[site].spoil(method, spoil, times=times)
    assert spoiled.sync().ok
    assert spoiled.at_cloud() == CONTENTS


def test_bytes_that_change_on_the_way_to_the_destination_are_sent_again(
    spoiled, proxies: Mapping[str, FaultyProxy]
) -> None:
    proxies["cloud"].damage("PUT", times=5)
    assert spoiled.sync().ok
    assert spoiled.at_cloud() == CONTENTS


def test_one_object_that_nobody_may_read_is_refused_by_name_and_the_rest_is_copied(
    spoiled, proxies: Mapping[str, FaultyProxy]
) -> None:
    forbid = error(403, "AccessDenied")
    proxies["onprem"].spoil(
        "GET", lambda answer: forbid(answer) if answer.body == CONTENTS["07"] else answer, times=1000
    )
    report = spoiled.sync()
    assert (report.ok, report.objects_copied) == (False, len(CONTENTS) - 1)
    assert spoiled.fates()["07"] == "refused"
    assert spoiled.at_cloud() == {key: content for key, content in CONTENTS.items() if key != "07"}


def test_an_object_that_is_deleted_after_it_was_listed_is_told_as_that_and_the_rest_is_copied(spoiled) -> None:
    def delete(method: str, key: str) -> None:
        if (method, key) == ("read", "digits/29"):
            spoiled.home.before = lambda method, key: None
            spoiled.home.store.delete([key])

    spoiled.home.before = delete
    report = spoiled.sync()
    assert report.objects_copied == len(CONTENTS) - 1
    (told,) = [outcome for outcome in spoiled.outcomes if outcome.key == "digits/29"]
    assert (told.fate.value, "it was deleted during the sync; run it again" in told.reason) == ("failed", True)
    assert spoiled.sync().ok


def test_a_fault_that_does_not_pass_ends_the_sync_and_the_next_one_goes_on(
    spoiled, proxies: Mapping[str, FaultyProxy], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("spillway.stores.patience.FIRST_PAUSE_SECONDS", 0.001)
    monkeypatch.setattr("spillway.stores.patience.BUSY_SECONDS", 0.02)
    left = iter(range(12))
    busy = error(503, "SlowDown", ("Retry-After", "0"))
    proxies["onprem"].spoil(
        "GET", of_object(lambda answer: busy(answer) if next(left, None) is None else answer), times=1000
    )
    with pytest.raises(Unreachable, match="SlowDown"):
        spoiled.sync()
    there = len(spoiled.at_cloud())
    assert 0 < there < len(CONTENTS)
    proxies["onprem"].forget()
    report = spoiled.sync()
    assert (report.ok, spoiled.at_cloud()) == (True, CONTENTS)
    assert spoiled.home.calls["read"] == len(CONTENTS) - there, "what is there is not read again"


def test_a_full_disk_at_the_destination_ends_the_sync_without_a_half_object_and_the_next_one_goes_on(
    local_ends, tmp_path: Path
) -> None:
    contents = {f"{number:02}": os.urandom(2 * MIB) for number in range(12)}
    local_ends.fill(contents)
    with small_disk(tmp_path / "disk", "size=160m") as disk:
        server = S3Server("full", disk / "s3")
        try:
            server.start()
            bucket = server.new_bucket()
            cloud = S3Store(name=f"s3://{bucket}@full", endpoint=server.endpoint(attempts=1), bucket=bucket)
            ends = type(local_ends)(local_ends.home.store, cloud)
            # This server says of a full disk that it has an error of its own.
            with filled(disk, left_bytes=10 * MIB), pytest.raises((Unreachable, StoreFull)):
                ends.sync()
            there = ends.at_cloud()
            assert len(there) < len(contents)
            assert there == {key: contents[key] for key in there}
            assert ends.sync().ok
            assert ends.at_cloud() == contents
        finally:
            server.kill()
