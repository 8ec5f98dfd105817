"""Log lines in order, each shown once however often they are asked for."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta

import pytest

from spillway.clouds import kubernetes
from spillway.clouds.base import LogLines
from spillway.clouds.kubernetes import KubernetesCluster
from spillway.errors import Unreachable
from spillway.testing.builders import onprem_cluster
from spillway.testing.scripted_api import Answer, ScriptedApi

Script = Callable[..., ScriptedApi]
NOON = datetime(2026, 11, 30, 12, tzinfo=UTC)


def client_of(server: ScriptedApi) -> KubernetesCluster:
    return KubernetesCluster(cluster=onprem_cluster(), api_client=server.client())


def written(*lines: tuple[float, str], end: str = "\n") -> bytes:
    """The lines as an API gives them: each with its time, to the nanosecond."""
    stamps = [(NOON + timedelta(seconds=seconds)).strftime("%Y-%m-%dT%H:%M:%S.%f") for seconds, _ in lines]
    return (
        "\n".join(f"{stamp}789Z {text}" for stamp, (_, text) in zip(stamps, lines, strict=True)).encode() + end.encode()
    )


def test_a_second_look_shows_only_what_is_new(script: Script) -> None:
    first = written((0.1, "a"), (0.2, "b"))
    again = written((0.1, "a"), (0.2, "b"), (0.200001, "c"), (1, ""), (1.5, "d"))
    server = script(Answer(body=first), Answer(body=again), Answer(body=again))
    client = client_of(server)

    one = client.logs("digits-1")
    two = client.logs("digits-1", since=one.until)
    three = client.logs("digits-1", since=two.until)

    assert one == LogLines(lines=("a", "b"), until=NOON + timedelta(seconds=0.2))
    assert two == LogLines(lines=("c", "", "d"), until=NOON + timedelta(seconds=1.5))
    assert three == LogLines(lines=(), until=two.until)
    path = "GET /api/v1/namespaces/training/pods/digits-1/log?container=trainer&timestamps=true"
    assert server.asked == [
        f"{path}&limitBytes=4194304",
        f"{path}&sinceTime=2026-11-30T12%3A00%3A00.200000Z&limitBytes=4194304",
        f"{path}&sinceTime=2026-11-30T12%3A00%3A01.500000Z&limitBytes=4194304",
    ]


def test_only_the_last_lines_are_asked_for(script: Script) -> None:
    server = script(Answer(body=written((0, "end"), end="")))
    assert client_of(server).logs("digits-1", tail=40).lines == ("end",)
    assert server.asked[0].endswith("&tailLines=40&limitBytes=4194304")


ODD_LINES: dict[str, tuple[bytes, tuple[str, ...]]] = {
    "nothing": (b"", ()),
    "carriage returns of a progress bar": (written((0, "1%\r2%\r3%")), ("1%\r2%\r3%",)),
    "separators that are no line ends": (written((0, "a\x0bb\x85\u2028c")), ("a\x0bb\x85\u2028c",)),
    "bytes that are no text": (written((0, "x")) + b"2026-11-30T12:00:01.0Z \xff\xfe\n", ("x", "\ufffd\ufffd")),
    "what the node says itself": (b"unable to retrieve container logs for x\n", ()),
    "an empty line": (written((0, "")), ("",)),
}


@pytest.mark.parametrize(("body", "lines"), ODD_LINES.values(), ids=ODD_LINES)
def test_lines_are_what_the_trainer_wrote(script: Script, body: bytes, lines: tuple[str, ...]) -> None:
    assert client_of(script(Answer(body=body))).logs("digits-1").lines == lines


def test_a_line_cut_by_the_limit_comes_whole_with_the_next_call(
    script: Script, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = written((0, "first"), (1, "second line"))
    monkeypatch.setattr(kubernetes, "LOG_BYTES", len(whole) - 6)
    client = client_of(script(Answer(body=whole[:-6]), Answer(body=whole)))
    one = client.logs("digits-1")
    assert one.lines == ("first",)
    assert client.logs("digits-1", since=one.until).lines == ("second line",)


def test_a_second_that_holds_more_than_the_limit_does_not_stop_the_log(
    script: Script, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen = written(*((0, "x" * 50) for _ in range(9)))
    monkeypatch.setattr(kubernetes, "LOG_BYTES", len(seen) - 3)
    server = script(Answer(body=seen[:-3]), Answer(body=seen + written((0.5, "new"))))
    assert client_of(server).logs("digits-1", since=NOON).lines == ("new",)
    assert len(server.asked) == 2


def test_a_single_line_beyond_the_limit_is_shown_as_far_as_it_came(
    script: Script, monkeypatch: pytest.MonkeyPatch
) -> None:
    body = written((0, "x" * 99), end="")
    monkeypatch.setattr(kubernetes, "LOG_BYTES", len(body))
    assert client_of(script(Answer(body=body))).logs("digits-1").lines == ("x" * 99,)


@pytest.mark.parametrize("status", [400, 404], ids=["not started", "gone"])
def test_a_pod_without_a_log_has_no_lines(script: Script, status: int) -> None:
    server = script(Answer(status=status), Answer(body={"items": []}))
    assert client_of(server).logs("digits-1", since=NOON) == LogLines(lines=(), until=NOON)


def test_a_node_that_does_not_answer_is_no_empty_log(script: Script) -> None:
    with pytest.raises(Unreachable, match="dial tcp"):
        client_of(script(Answer(status=500, body={"message": "Get https://n1: dial tcp: refused"}))).logs("digits-1")
