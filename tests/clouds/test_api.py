"""How the failures of an API become errors, and how its lists are read."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta

import pytest

from spillway.clouds.api import ApiRefusal, KubernetesApi, clock_ahead
from spillway.clouds.kubernetes import client_from_kubeconfig
from spillway.errors import AccessDenied, ConfigError, SpillwayError, Unreachable
from spillway.testing.ports import free_port
from spillway.testing.scripted_api import Answer, ScriptedApi, kubeconfig

Script = Callable[..., ScriptedApi]


def api_of(server: ScriptedApi) -> KubernetesApi:
    return KubernetesApi(server.client(), endpoint="cluster 'cloud'")


def status(code: int, message: str) -> dict[str, object]:
    return {"kind": "Status", "status": "Failure", "code": code, "message": message}


FAILURES = {
    "expired token": (Answer(status=401, body=status(401, "Unauthorized")), AccessDenied, "401 Unauthorized; renew"),
    "missing right": (
        Answer(status=403, body=status(403, 'nodes is forbidden: User "x" cannot list')),
        AccessDenied,
        'nodes is forbidden: User "x" cannot list; grant',
    ),
    "quota of the namespace": (
        Answer(status=403, body=status(403, 'pods "x" is forbidden: exceeded quota: gpus')),
        ApiRefusal,
        'GET /version: 403 pods "x" is forbidden: exceeded quota: gpus',
    ),
    "server fault": (Answer(status=500, body=b"etcdserver: leader changed"), Unreachable, "500 etcdserver: leader"),
    "gateway": (Answer(status=503, body=b"<html>\n busy </html>"), Unreachable, "503 <html> busy </html>"),
    "load": (Answer(status=429, body=status(429, "too many requests")), Unreachable, "429 too many requests"),
    "connection closed": (Answer(status=0), Unreachable, "is unreachable: GET /version:"),
    "body cut off": (Answer(body={"a": "b" * 99}, cut=True), Unreachable, "is unreachable: GET /version:"),
    "no JSON": (Answer(body=b"<html>login</html>"), Unreachable, "was not answered with JSON: b'<html>login"),
    "redirect": (Answer(status=302, headers=(("Location", "http://login"),)), Unreachable, "302"),
    "bad request": (
        Answer(status=422, body=status(422, "Pod is invalid: spec.x")),
        ApiRefusal,
        "422 Pod is invalid: spec.x",
    ),
}


@pytest.mark.parametrize(("answer", "kind", "text"), FAILURES.values(), ids=FAILURES)
def test_every_failure_has_its_error(script: Script, answer: Answer, kind: type[SpillwayError], text: str) -> None:
    server = script(answer)
    with pytest.raises(kind) as caught:
        api_of(server).json("GET", "/version")
    assert type(caught.value) is kind
    assert str(caught.value).startswith("cluster 'cloud' ")
    assert text in str(caught.value)
    assert server.asked == ["GET /version"]


def test_a_server_that_is_not_there_is_unreachable() -> None:
    port = free_port()
    api = KubernetesApi(client_from_kubeconfig(kubeconfig(f"http://127.0.0.1:{port}")), endpoint="cluster 'cloud'")
    with pytest.raises(Unreachable, match="refused"):
        api.json("GET", "/version")


@pytest.mark.parametrize(("written", "seconds"), [("900", 900.0), ("soon", None), (None, None)])
def test_the_pause_that_is_asked_for_is_told_and_not_slept(
    script: Script, written: str | None, seconds: float | None
) -> None:
    headers = (("Retry-After", written),) if written else ()
    with pytest.raises(Unreachable) as caught:
        api_of(script(Answer(status=429, headers=headers))).json("GET", "/version")
    assert caught.value.retry_after_seconds == seconds


def test_a_list_is_read_to_its_last_page(script: Script) -> None:
    server = script(
        Answer(body={"metadata": {"continue": "p2"}, "items": [{"n": 1}]}), Answer(body={"items": [{"n": 2}]})
    )
    assert api_of(server).items("/api/v1/pods", {"labelSelector": "a=b"}) == [{"n": 1}, {"n": 2}]
    assert server.asked == [
        "GET /api/v1/pods?labelSelector=a%3Db&limit=500",
        "GET /api/v1/pods?labelSelector=a%3Db&limit=500&continue=p2",
    ]


def test_a_list_whose_pages_expired_is_read_anew_without_giving_anything_twice(script: Script) -> None:
    server = script(
        Answer(body={"metadata": {"continue": "p2"}, "items": [{"n": 1}]}),
        Answer(status=410, body=status(410, "The provided continue parameter is too old")),
        Answer(body={"items": [{"n": 1}, {"n": 2}]}),
    )
    assert api_of(server).items("/api/v1/pods") == [{"n": 1}, {"n": 2}]
    assert server.asked[-1] == "GET /api/v1/pods"


@pytest.mark.parametrize(
    ("config", "context", "text"),
    [
        ({}, None, "kubeconfig: "),
        (kubeconfig("http://x"), "elsewhere", "kubeconfig: context 'elsewhere': "),
        ({**kubeconfig("http://x"), "contexts": 7}, None, "kubeconfig: "),
    ],
    ids=["empty", "unknown context", "wrong shape"],
)
def test_a_kubeconfig_that_cannot_be_used_is_one_message(
    config: dict[str, object], context: str | None, text: str
) -> None:
    with pytest.raises(ConfigError) as caught:
        client_from_kubeconfig(config, context)
    assert str(caught.value).startswith(text)


SENT, RECEIVED = datetime(2026, 1, 5, 12, 0, 0, 900_000, tzinfo=UTC), datetime(2026, 1, 5, 12, 0, 30, tzinfo=UTC)


@pytest.mark.parametrize(
    ("date", "ahead_seconds"),
    [
        ("Mon, 05 Jan 2026 12:00:00 GMT", 0),
        ("Mon, 05 Jan 2026 12:00:30 GMT", 0),
        ("Mon, 05 Jan 2026 12:03:30 GMT", 180),
        ("Mon, 05 Jan 2026 11:56:59 GMT", -180.9),
        ("Mon, 05 Jan 2026 12:03:30 -0000", None),
        ("soon", None),
        (None, None),
    ],
    ids=["the second of the question", "of a slow answer", "ahead", "behind", "no zone", "no date", "none"],
)
def test_the_time_that_an_answer_took_is_no_difference_of_clocks(date: str | None, ahead_seconds: float | None) -> None:
    expected = None if ahead_seconds is None else timedelta(seconds=ahead_seconds)
    assert clock_ahead(date, SENT, RECEIVED) == expected
