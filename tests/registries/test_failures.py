"""Rate limits, outages and odd answers of a scripted server."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime

import pytest

from spillway.errors import (
    ConfigError,
    DigestMismatch,
    InvalidImage,
    RequestRefused,
    SpillwayError,
    StoreFull,
    Unreachable,
)
from spillway.registries import transport
from spillway.registries.digest import digest_of
from spillway.registries.http import HttpRegistry
from spillway.stores.patience import AWAY_SECONDS
from spillway.testing.scripted_http import Answer, Call, ScriptedServer
from spillway.testing.scripted_registry import BODY, FOUND, MANIFEST, client, errors


def limited(times: int, *, retry_after: str | None) -> Callable[[Call], Answer]:
    answers = [Answer(status=429, headers={"Retry-After": retry_after} if retry_after else {})] * times

    def answer(call: Call) -> Answer:
        return answers.pop() if answers else FOUND

    return answer


@pytest.mark.parametrize(
    ("retry_after", "expected"), [("7", [7.0, 7.0]), ("90", [90.0, 90.0]), (None, [1.0, 2.0])], ids=str
)
def test_a_rate_limit_is_waited_out_as_long_as_the_registry_says(
    server: ScriptedServer, pauses: list[float], retry_after: str | None, expected: list[float]
) -> None:
    server.script = limited(2, retry_after=retry_after)
    assert client(server).manifest("train", "v1") == MANIFEST
    assert pauses == pytest.approx(expected, abs=0.5)


def test_a_registry_that_speaks_no_tls_is_told_as_such(server: ScriptedServer) -> None:
    registry = HttpRegistry(name="cloud", url=server.url.replace("http://", "https://"), username=None, password=None)
    with pytest.raises(Unreachable, match=r"does not speak TLS there; .* the schema of its Connection be http$"):
        registry.tags("train")


def test_the_start_of_an_upload_waits_out_a_rate_limit_too(server: ScriptedServer, pauses: list[float]) -> None:
    answers = [Answer(status=201), Answer(status=202, headers={"Location": "/upload/1"}), Answer(status=429)]
    server.script = lambda call: answers.pop()
    client(server).put_blob("train", digest_of(b"layer"), iter([b"layer"]), size_bytes=5)
    assert [call.method for call in server.calls] == ["POST", "POST", "PUT"]
    assert pauses == pytest.approx([1.0], abs=0.5)


def test_a_rate_limit_may_name_the_moment_of_its_end(server: ScriptedServer, pauses: list[float]) -> None:
    server.script = limited(1, retry_after=format_datetime(datetime.now(UTC) + timedelta(seconds=30), usegmt=True))
    client(server).manifest("train", "v1")
    assert 20 < pauses[0] <= 30


def test_a_rate_limit_that_does_not_end_is_unreachable_with_its_pause(
    server: ScriptedServer, pauses: list[float]
) -> None:
    server.script = limited(99, retry_after="3")
    with pytest.raises(Unreachable, match="limits the rate") as caught:
        client(server).manifest("train", "v1")
    assert (caught.value.retry_after_seconds, len(pauses)) == (3.0, transport.MAX_RATE_LIMIT_WAITS)


def test_a_failure_of_the_registry_that_passes_is_not_seen(server: ScriptedServer, pauses: list[float]) -> None:
    answers = [FOUND, Answer(status=502), Answer(status=500)]
    server.script = lambda call: answers.pop()
    assert client(server).manifest("train", "v1") == MANIFEST
    assert len(pauses) == 2 and sum(pauses) < 2


def test_an_upload_is_never_sent_twice(server: ScriptedServer, pauses: list[float]) -> None:
    def answer(call: Call) -> Answer:
        return Answer(status=202, headers={"Location": "/upload/1"}) if call.method == "POST" else Answer(status=500)

    server.script = answer
    with pytest.raises(Unreachable, match="500"):
        client(server).put_blob("train", digest_of(b"layer"), iter([b"layer"]), size_bytes=5)
    assert ([call.method for call in server.calls], pauses) == (["POST", "PUT"], [])


def test_nothing_listening_is_unreachable() -> None:
    with pytest.raises(Unreachable, match=r"^registry cloud \(127\.0\.0\.1:1\) is unreachable: .*Connection refused"):
        HttpRegistry(name="cloud", url="http://127.0.0.1:1").tags("train")


REFUSALS: dict[str, tuple[Answer, type[SpillwayError], str]] = {
    "server error": (Answer(status=503, body=errors("UNAVAILABLE", "later")), Unreachable, "503 UNAVAILABLE later"),
    "full disk": (Answer(status=500, body=errors("UNKNOWN", "no space left on device")), StoreFull, "is full: 500"),
    "bad name": (Answer(status=400, body=errors("NAME_INVALID")), RequestRefused, "GET /v2/train/.*400 NAME_INVALID"),
    "not a registry": (Answer(status=418), RequestRefused, "418"),
    "cut off": (Answer(body=BODY, cut_bytes=3), Unreachable, "cut off"),
    "other bytes": (Answer(body=BODY, headers={"Docker-Content-Digest": digest_of(b"x")}), DigestMismatch, "manifest"),
}


@pytest.mark.parametrize("case", REFUSALS, ids=str)
def test_a_failure_has_the_type_that_tells_whether_a_retry_helps(
    server: ScriptedServer, pauses: list[float], case: str
) -> None:
    answer, kind, text = REFUSALS[case]
    server.script = lambda call: answer
    with pytest.raises(kind, match=text):
        client(server).manifest("train", "v1")


def test_a_manifest_that_is_not_what_its_digest_promises_is_refused(server: ScriptedServer) -> None:
    server.script = lambda call: FOUND
    wanted = digest_of(b"another manifest")
    with pytest.raises(DigestMismatch, match=f"expected digest {wanted}, the bytes have {MANIFEST.digest}"):
        client(server).manifest("train", wanted)


def test_a_manifest_without_end_is_refused(server: ScriptedServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("spillway.registries.http.MAX_MANIFEST_BYTES", 100)
    server.script = lambda call: FOUND
    with pytest.raises(InvalidImage, match="more than 100 bytes"):
        client(server).manifest("train", "v1")


def test_a_blob_that_is_cut_off_again_and_again_at_one_place_is_unreachable(
    server: ScriptedServer, pauses: list[float]
) -> None:
    server.script = lambda call: Answer(body=b"layer", cut_bytes=2)
    with pytest.raises(Unreachable, match="cut off"):
        list(client(server).read_blob("train", digest_of(b"layer")))
    assert AWAY_SECONDS - 5 <= sum(pauses) <= AWAY_SECONDS


@pytest.mark.parametrize("ranges", [True, False], ids=["ranges", "no ranges"])
def test_a_blob_that_is_cut_off_is_gone_on_with_where_it_ended(
    server: ScriptedServer, pauses: list[float], ranges: bool
) -> None:
    def answer(call: Call) -> Answer:
        begins = int(call.headers.get("Range", "bytes=0-").removeprefix("bytes=").rstrip("-"))
        cut = 0 if begins else 2
        return Answer(status=206, body=b"layer"[begins:]) if begins and ranges else Answer(body=b"layer", cut_bytes=cut)

    server.script = answer
    assert b"".join(client(server).read_blob("train", digest_of(b"layer"))) == b"layer"
    assert [call.headers.get("Range") for call in server.calls] == [None, "bytes=3-"]


def test_a_web_server_that_is_no_registry_is_not_taken_for_an_empty_one(server: ScriptedServer) -> None:
    server.script = lambda call: Answer(status=404, body=b"<html>not found</html>")
    with pytest.raises(Unreachable, match="did not answer as a registry does; check its URL"):
        client(server).tags("train")


@pytest.mark.parametrize("url", ["127.0.0.1:5000", "ftp://registry", "http://", ""], ids=repr)
def test_a_url_that_is_none_is_refused_at_once(url: str) -> None:
    with pytest.raises(ConfigError, match=r"registry cloud: url: expected http\(s\)://host"):
        HttpRegistry(name="cloud", url=url)


def test_a_pause_beyond_patience_is_left_to_whoever_called(server: ScriptedServer, pauses: list[float]) -> None:
    server.script = limited(1, retry_after="300")
    with pytest.raises(Unreachable, match="asks for a pause of 300 s") as caught:
        client(server).manifest("train", "v1")
    assert (caught.value.retry_after_seconds, pauses) == (300.0, [])


def test_a_pause_that_one_request_is_asked_for_holds_for_the_others_too(
    server: ScriptedServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    registry, asked = client(server), list[float]()

    def sleep(seconds: float) -> None:
        asked.append(seconds)
        if len(asked) == 1:  # another request, while the first one waits
            registry.manifest("train", "v2")

    monkeypatch.setattr(transport, "sleep", sleep)
    server.script = limited(1, retry_after="20")
    registry.manifest("train", "v1")
    assert asked == pytest.approx([20.0, 20.0], abs=5)
