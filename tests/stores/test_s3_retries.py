"""What the S3 store tries again, how long it waits, and what it does not try again."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from pathlib import Path
from threading import Event

import pytest
from botocore.exceptions import ClientError, EndpointConnectionError

from spillway.errors import DigestMismatch, Unreachable
from spillway.stores.base import read_all
from spillway.stores.parts import MIB
from spillway.stores.patience import AWAY_SECONDS
from spillway.stores.s3 import S3Endpoint, S3Store
from spillway.stores.s3_requests import S3Requests
from spillway.testing.faulty_proxy import Answer, FaultyProxy
from spillway.testing.s3_server import S3Server
from spillway.testing.scripted_http import Answer as Scripted
from spillway.testing.scripted_http import ScriptedServer
from spillway.testing.slept_time import SleptTime
from spillway.testing.wrong_clock import run_with_clock_off

NOWHERE = "http://127.0.0.1:1"


@pytest.fixture
def scripted() -> Iterator[ScriptedServer]:
    server = ScriptedServer()
    yield server
    server.close()


@pytest.fixture
def slept() -> SleptTime:
    return SleptTime()


REQUESTS = """
import sys
from spillway.errors import AccessDenied
from spillway.stores.s3 import open_store

url, region, access_key, secret_key, bucket = sys.argv[1:]
keys = {"access_key": access_key, "secret_key": secret_key}
store = open_store(name="cloud", bucket=bucket, endpoint_url=url, region=region, **keys)
for request in (
    lambda: store.put("x", b"1", size_bytes=1),
    lambda: list(store.list()),
    lambda: store.head("x"),
    lambda: store.delete(["x"]),  # through boto3
):
    try:
        request()
    except AccessDenied as refusal:
        print(refusal)
"""


@pytest.mark.parametrize(("hours", "way"), [(1, "ahead of"), (-1, "behind")], ids=["fast", "slow"])
def test_a_clock_that_is_an_hour_off_is_refused_by_a_real_server_and_told_as_such(
    s3_server: S3Server, bucket: str, tmp_path: Path, hours: int, way: str
) -> None:
    who = (s3_server.admin.access_key, s3_server.admin.secret_key)
    where = (s3_server.endpoint_url, s3_server.region, *who, bucket)
    done = run_with_clock_off(REQUESTS, *where, seconds=hours * 3600, folder=tmp_path)
    told = done.stdout.splitlines()
    assert len(told) == 4, done.stderr
    for line in told:
        apart = re.search(
            rf"; this machine's clock is (\d+) s {way} the store's; synchronise this machine's clock", line
        )
        assert apart is not None, line
        assert abs(int(apart[1]) - 3600) <= 60


@pytest.mark.parametrize("size", [10, 17 * MIB], ids=["small", "large"])
def test_bytes_that_were_damaged_on_their_way_are_refused_by_the_server_and_sent_again(
    retrying: S3Store, direct: S3Store, proxy: FaultyProxy, size: int
) -> None:
    content = hashlib.shake_256(b"x").digest(size)
    proxy.damage("PUT")
    retrying.put("x", content, size_bytes=size)
    assert read_all(direct, "x") == content


def test_bytes_that_are_damaged_every_time_are_never_visible(
    retrying: S3Store, direct: S3Store, proxy: FaultyProxy
) -> None:
    direct.put("x", b"before", size_bytes=6)
    proxy.damage("PUT", times=3)
    with pytest.raises(DigestMismatch, match="x: expected digest that was sent with it"):
        retrying.put("x", b"after", size_bytes=5)
    assert read_all(direct, "x") == b"before"


def asking(server: ScriptedServer | str, slept: SleptTime, **fields: float) -> S3Requests:
    """Requests to a bucket of that server, which take no time but that of their pauses."""
    url = server if isinstance(server, str) else server.url
    endpoint = S3Endpoint(url=url, region="here", access_key="AK", secret_key="secret", **fields)  # type: ignore[arg-type]
    names = {"store": "s3://b@cloud", "credentials": "its Connection"}
    return S3Requests(endpoint, "b", clock=slept.monotonic, sleep=slept.sleep, **names)


def busy(retry_after: str | None = None) -> Scripted:
    headers = {} if retry_after is None else {"Retry-After": retry_after}
    return Scripted(status=503, body=b"<Error><Code>SlowDown</Code></Error>", headers=headers)


def test_a_storm_of_some_minutes_is_waited_out_with_growing_pauses(scripted: ScriptedServer, slept: SleptTime) -> None:
    scripted.script = lambda call: Scripted(body=b"1") if slept.now > 250 else busy()
    assert asking(scripted, slept).read("GetObject", "GET", "x")[1] == b"1"
    assert slept.pauses[0] < 1
    assert 10 <= max(slept.pauses) <= 20 * 1.25


@pytest.mark.parametrize("retry_after", [None, "0"])
def test_a_storm_that_does_not_end_is_unreachable_after_some_minutes_and_a_few_tries(
    scripted: ScriptedServer, slept: SleptTime, retry_after: str | None
) -> None:
    scripted.script = lambda call: busy(retry_after)
    with pytest.raises(Unreachable, match=r"SlowDown: .* \(HTTP 503\)"):
        asking(scripted, slept).read("GetObject", "GET", "x")
    assert 150 < sum(slept.pauses) < 180 + 25
    assert len(scripted.calls) < 50


@pytest.mark.parametrize("form", ["seconds", "date"])
@pytest.mark.parametrize("off", [timedelta(), timedelta(hours=-1)], ids=["", "by a server whose clock is slow"])
def test_a_server_that_says_for_how_long_is_left_alone_for_as_long(
    scripted: ScriptedServer, slept: SleptTime, form: str, off: timedelta
) -> None:
    now = datetime.now(UTC) + off
    in_two_minutes = format_datetime(now + timedelta(seconds=120), usegmt=True)
    asked = busy("120" if form == "seconds" else in_two_minutes)
    dated = replace(asked, headers={**asked.headers, "Date": format_datetime(now, usegmt=True)})
    answers = iter([dated, Scripted(body=b"1")])
    scripted.script = lambda call: next(answers)
    assert asking(scripted, slept).read("GetObject", "GET", "x")[1] == b"1"
    (pause,) = slept.pauses
    assert 60 < pause <= 120 * 1.25


def test_a_storm_is_waited_out_by_the_requests_of_boto3_too(
    scripted: ScriptedServer, slept: SleptTime, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("botocore.endpoint.time", slept)
    monkeypatch.setattr("spillway.stores.s3_client.time", slept)
    scripted.script = lambda call: Scripted() if slept.now > 250 else busy()
    client = S3Endpoint(url=scripted.url, region="here", access_key="AK", secret_key="secret").client()
    client.head_bucket(Bucket="b")
    assert 10 <= max(slept.pauses) <= 20
    before = len(scripted.calls)
    scripted.script = lambda call: busy("600")
    with pytest.raises(ClientError, match="503"):
        client.head_bucket(Bucket="b")
    assert len(scripted.calls) == before + 1


def test_a_server_that_asks_for_more_time_than_it_is_given_is_unreachable_at_once(
    scripted: ScriptedServer, slept: SleptTime
) -> None:
    scripted.script = lambda call: busy("600")
    with pytest.raises(Unreachable) as caught:
        asking(scripted, slept).read("GetObject", "GET", "x")
    assert (caught.value.retry_after_seconds, slept.pauses) == (600, [])


def test_a_server_that_fails_is_tried_four_times_within_seconds(scripted: ScriptedServer, slept: SleptTime) -> None:
    scripted.script = lambda call: Scripted(status=500)
    with pytest.raises(Unreachable, match="HTTP 500"):
        asking(scripted, slept).read("GetObject", "GET", "x")
    assert (len(scripted.calls), sum(slept.pauses) < 5) == (4, True)


RESTARTING = {
    "a gateway answers": Scripted(status=502),
    "the server fails": Scripted(status=500, body=b"<Error><Code>InternalError</Code></Error>"),
    "answers are cut off": Scripted(body=b"12", cut_bytes=1),
}


@pytest.mark.parametrize("answer", RESTARTING.values(), ids=RESTARTING.keys())
def test_whoever_moves_bytes_waits_for_a_server_that_restarts(
    scripted: ScriptedServer, slept: SleptTime, answer: Scripted
) -> None:
    began = slept.now
    scripted.script = lambda call: Scripted(body=b"1") if slept.now > began + 20 else answer
    assert asking(scripted, slept, away_seconds=AWAY_SECONDS).read("GetObject", "GET", "x")[1] == b"1"
    assert slept.pauses[0] < 1
    assert max(slept.pauses) <= 5


def test_once_a_server_was_waited_for_in_vain_others_do_not_wait_until_it_is_back(
    scripted: ScriptedServer, slept: SleptTime
) -> None:
    def waited() -> float:
        before = slept.now
        with pytest.raises(Unreachable, match="HTTP 502"):
            requests.read("GetObject", "GET", "x")
        return slept.now - before

    requests = asking(scripted, slept, away_seconds=AWAY_SECONDS)
    scripted.script = lambda call: Scripted(status=502)
    assert AWAY_SECONDS - 5 <= waited() <= AWAY_SECONDS
    assert waited() < 2
    scripted.script = lambda call: Scripted()
    requests.read("GetObject", "GET", "x")
    scripted.script = lambda call: Scripted(status=502)
    assert waited() >= AWAY_SECONDS - 5


@pytest.mark.parametrize(("attempts", "least", "most"), [(4, AWAY_SECONDS - 5, AWAY_SECONDS), (1, 0, 0)])
def test_where_nothing_listens_is_waited_for_too_unless_one_attempt_is_all(
    slept: SleptTime, attempts: int, least: float, most: float
) -> None:
    with pytest.raises(Unreachable, match="refused"):
        asking(NOWHERE, slept, away_seconds=AWAY_SECONDS, attempts=attempts).read("GetObject", "GET", "x")
    assert least <= sum(slept.pauses) <= most


def test_the_requests_of_boto3_wait_for_a_server_that_is_away_too(
    slept: SleptTime, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("botocore.endpoint.time", slept)
    monkeypatch.setattr("spillway.stores.s3_client.time", slept)
    endpoint = S3Endpoint(url=NOWHERE, region="here", access_key="AK", secret_key="secret", away_seconds=AWAY_SECONDS)
    with pytest.raises(EndpointConnectionError):
        endpoint.client().head_bucket(Bucket="b")
    assert AWAY_SECONDS - 5 <= sum(slept.pauses) <= AWAY_SECONDS


def test_damaged_bytes_are_sent_four_times_however_long_a_server_that_is_away_is_waited_for(
    scripted: ScriptedServer, slept: SleptTime
) -> None:
    scripted.script = lambda call: Scripted(status=400, body=b"<Error><Code>BadDigest</Code></Error>")
    with pytest.raises(DigestMismatch):
        asking(scripted, slept, away_seconds=AWAY_SECONDS).read("PutObject", "PUT", "x")
    assert len(scripted.calls) == 4


def test_a_server_that_falls_silent_is_asked_again(
    s3_server: S3Server, bucket: str, direct: S3Store, proxy: FaultyProxy
) -> None:
    silence = Event()

    def wait(answer: Answer) -> Answer:
        silence.wait(60)
        return answer

    direct.put("x", b"1", size_bytes=1)
    endpoint = s3_server.endpoint(url=proxy.url, attempts=6, timeout_seconds=1)
    impatient = S3Store(name="s3://b@onprem", endpoint=endpoint, bucket=bucket)
    proxy.spoil("GET", wait)
    try:
        assert read_all(impatient, "x") == b"1"
    finally:
        silence.set()
