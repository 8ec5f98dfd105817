"""What both HTTP clients make of every way in which a server may send, or break off, an answer."""

from __future__ import annotations

import socket
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from threading import Thread

import pytest

from spillway.stores.http_pool import Broken, HttpPool, Origin
from spillway.stores.proxied import ProxiedSession

Session = HttpPool | ProxiedSession


def straight(port: int, silence_seconds: float = 60) -> HttpPool:
    """A session with that port of this machine."""
    origin = Origin(False, "127.0.0.1", port)
    return HttpPool(origin, tls=None, connect_seconds=5, silence_seconds=silence_seconds)


def proxied(port: int, silence_seconds: float = 60) -> ProxiedSession:
    """A session with a host that is behind a proxy at that port."""
    proxies = {"http": f"http://127.0.0.1:{port}"}
    return ProxiedSession("http://h", proxies, verify=True, timeouts=(5, silence_seconds))


Open = Callable[..., Session]
both = pytest.mark.parametrize("session", [straight, proxied])

Script = list[list[bytes]]
"""For each connection, what goes back for each of its requests; it is closed after the last."""


@contextmanager
def server(script: Script, session: Open = straight) -> Iterator[tuple[Session, list[bytes]]]:
    """A session before a server that says exactly this, and the heads of the requests that it got."""
    seen: list[bytes] = []

    def serve() -> None:
        for answers in script:
            connection, _ = listener.accept()
            with connection, connection.makefile("rb") as requests:
                for answer in answers:
                    head = b""
                    while not head.endswith(b"\r\n\r\n") and (line := requests.readline()):
                        head += line
                    if not head:
                        break
                    length = next(
                        (line for line in head.split(b"\r\n") if line.lower().startswith(b"content-length")), b":0"
                    )
                    requests.read(int(length.partition(b":")[2]))
                    seen.append(head)
                    connection.sendall(answer)

    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = Thread(target=serve, daemon=True)
        thread.start()
        yield session(listener.getsockname()[1]), seen
        thread.join(60)


def get(pool: Session, method: str = "GET") -> tuple[int, bytes]:
    reply = pool.send(method, "/x", {"host": "h"}, b"")
    return reply.status, b"".join(reply.chunks())


WHOLE = {
    "by its length": b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello",
    "in pieces": b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
    b"2\r\nhe\r\n3;x=y\r\nllo\r\n0\r\nTrailer: 1\r\n\r\n",
    "after a note that more comes": b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello",
}


@both
@pytest.mark.parametrize("answer", WHOLE.values(), ids=WHOLE.keys())
def test_a_body_is_read_whole_and_its_connection_serves_again(answer: bytes, session: Open) -> None:
    with server([[answer, answer]], session) as (pool, seen):
        assert [get(pool), get(pool)] == [(200, b"hello"), (200, b"hello")]
        assert seen[0].startswith((b"GET /x HTTP/1.1\r\n", b"GET http://h/x HTTP/1.1\r\n"))
        assert b"\r\nhost: h\r\n" in seen[0]


def test_a_body_that_ends_with_its_connection_is_read_whole() -> None:
    answer = b"HTTP/1.1 200 OK\r\n\r\nhello"
    with server([[answer], [answer]]) as (pool, _):
        assert [get(pool), get(pool)] == [(200, b"hello"), (200, b"hello")]


@pytest.mark.parametrize(("method", "status"), [("HEAD", 200), ("GET", 204), ("GET", 304)])
def test_an_answer_without_a_body_is_not_waited_for(method: str, status: int) -> None:
    answer = b"HTTP/1.1 %d Status\r\nContent-Length: 5\r\n\r\n" % status
    with server([[answer, answer]]) as (pool, _):
        assert [get(pool, method), get(pool, method)] == [(status, b""), (status, b"")]


def test_a_kept_connection_that_the_server_closed_is_replaced_without_a_word() -> None:
    answer = b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello"
    with server([[answer], [answer]]) as (pool, seen):
        assert [get(pool), get(pool)] == [(200, b"hello"), (200, b"hello")]
        assert len(seen) == 2


CUT = {
    "no answer": b"",
    "no HTTP": b"SSH-2.0-server\r\n",
    "in its headers": b"HTTP/1.1 200 OK\r\nContent-Le",
    "in its body": b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhel",
    "in a piece": b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhel",
    "before a piece": b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nhel\r\n",
    "a piece of no length": b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nhello\r\n",
}


def test_what_must_not_be_sent_twice_takes_no_connection_that_the_server_closed() -> None:
    answer = b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n"
    with server([[answer], [answer]]) as (pool, seen):
        assert isinstance(pool, HttpPool)
        get(pool)
        while all(kept.at_rest for kept in pool._idle):
            time.sleep(0.01)
        assert pool.send("PUT", "/x", {"content-length": "2"}, iter([b"o", b"k"]), again=False).status == 200
    assert [head.split()[0] for head in seen] == [b"GET", b"PUT"]


def test_what_must_not_be_sent_twice_is_broken_where_its_connection_is_closed_without_an_answer() -> None:
    answer = b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n"
    with server([[answer, b""], [answer]]) as (pool, seen):
        assert isinstance(pool, HttpPool)
        get(pool)
        with pytest.raises(Broken):
            pool.send("PUT", "/x", {"content-length": "0"}, b"", again=False)
        assert len(seen) == 2
        get(pool)


@both
@pytest.mark.parametrize("answer", CUT.values(), ids=CUT.keys())
def test_an_answer_that_is_cut_or_no_answer_is_broken_and_never_a_short_one(answer: bytes, session: Open) -> None:
    with server([[answer]], session) as (pool, _), pytest.raises(Broken):
        get(pool)


@both
def test_what_arrived_of_a_body_before_it_was_cut_is_not_lost(session: Open) -> None:
    with server([[CUT["in its body"]]], session) as (pool, _):
        chunks = pool.send("GET", "/x", {"host": "h"}, b"").chunks()
        assert next(chunks) == b"hel"
        with pytest.raises(Broken, match="2 bytes missing"):
            next(chunks)


@both
def test_a_reply_that_is_given_up_half_read_takes_its_connection_with_it(session: Open) -> None:
    answer = b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello"
    with server([[answer, answer], [answer]], session) as (pool, _):
        reply = pool.send("GET", "/x", {"host": "h"}, b"")
        assert next(reply.chunks(2)) == b"he"
        reply.close()
        assert get(pool) == (200, b"hello")


@both
def test_a_server_that_falls_silent_is_broken(session: Open) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener, pytest.raises(Broken, match=r"[Tt]ime.?.?out"):
        get(session(listener.getsockname()[1], 0.1))


@both
def test_nobody_there_is_broken(session: Open) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    with pytest.raises(Broken, match=r"Could not connect|Failed to connect"):
        get(session(port))


def test_behind_a_proxy_a_body_that_only_its_connection_ends_is_broken() -> None:
    with (
        server([[b"HTTP/1.1 200 OK\r\n\r\nhello"]], proxied) as (pool, _),
        pytest.raises(Broken, match="how long it is"),
    ):
        get(pool)


@pytest.mark.parametrize("url", ["", "not a url", "ftp://host", "http://", "http://host:port"])
def test_what_is_no_address_of_a_server_is_refused(url: str) -> None:
    with pytest.raises(ValueError, match=r"expected http|port"):
        Origin.of(url)


@pytest.mark.parametrize(
    ("url", "origin"),
    [
        ("http://host", Origin(False, "host", 80)),
        ("https://host/bucket", Origin(True, "host", 443)),
        ("http://[::1]:9000", Origin(False, "::1", 9000)),
    ],
)
def test_an_address_names_scheme_host_and_port(url: str, origin: Origin) -> None:
    assert Origin.of(url) == origin
