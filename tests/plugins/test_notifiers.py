"""Notices reach a real mail server and what apprise posts to, once; what they did not take is sent again."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import pytest

from spillway.config import Configuration
from spillway.config.money import TargetEntry
from spillway.ledger import open_ledger
from spillway.model import Billing, Budget, NoticeTarget, RunPolicy
from spillway.runs.notices import Message, watch_budgets
from spillway.runs.services import Services
from spillway.testing.builders import job_spec, placement_policy
from spillway.testing.ledger_files import new_ledger
from spillway.testing.ledger_values import a_cost
from spillway.testing.smtp_server import Mailbox, smtp_server
from spillway_airflow.notifiers import NotDelivered, deliver

NOW = datetime(2026, 3, 16, 12, tzinfo=UTC)
MAIL = NoticeTarget(name="platform/ops@example.org", email="ops@example.org", connection="mail")
CHAT = NoticeTarget(name="on-call", apprise="chat")
MESSAGE = Message(title="research has spent 80 %", text="80 of 100 <now>", identity="id-1-platform/ops@example.org")


@pytest.fixture
def mailbox(monkeypatch: pytest.MonkeyPatch) -> Iterator[Mailbox]:
    """A mail server that the Connection ``mail`` names."""
    with smtp_server() as mailbox:
        extra = {"from_email": "spillway@example.org", "disable_ssl": True, "disable_tls": True, "retry_limit": 0}
        connection = {"conn_type": "smtp", "host": "127.0.0.1", "port": mailbox.port, "extra": extra}
        monkeypatch.setenv("AIRFLOW_CONN_MAIL", json.dumps(connection))
        yield mailbox


class Chat(HTTPServer):
    """Takes what apprise posts; ``status`` is its answer."""

    status = 200

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Post)
        self.received: list[Any] = []


class Post(BaseHTTPRequestHandler):
    server: Chat

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        if self.server.status == 200:
            self.server.received.append(body)
        self.send_response(self.server.status)
        self.end_headers()

    def log_message(self, format: str, *args: Any) -> None:
        pass


@pytest.fixture
def chat(monkeypatch: pytest.MonkeyPatch) -> Iterator[Chat]:
    """A service that the Connection ``chat`` names, in the manner of apprise."""
    with Chat() as server:
        thread = Thread(target=server.serve_forever, daemon=True)
        thread.start()
        path = f"json://127.0.0.1:{server.server_address[1]}"
        connection = {"conn_type": "apprise", "extra": {"config": {"path": path, "tag": "all"}}}
        monkeypatch.setenv("AIRFLOW_CONN_CHAT", json.dumps(connection))
        yield server
        server.shutdown()
        thread.join()


@pytest.fixture
def services(tmp_path: Path) -> Services:
    """Research has spent 85 of 100, and both targets are to know."""
    url = new_ledger(tmp_path / "ledger.db")
    ledger = open_ledger(url)
    ledger.open_run("r", job_spec(), {}, NOW)
    spent = {"amount": Decimal(85), "billing": Billing.SPOT, "started_at": NOW, "ended_at": NOW}
    ledger.book(a_cost("r-1", department="research", **spent))
    policy = replace(placement_policy(), budgets=(Budget(department="research", limit=Decimal(100)),))
    return Services(
        configuration=Configuration(clusters={}, datasets={}, policy=policy, runs=RunPolicy(), notices=(MAIL, CHAT)),
        open_ledger=lambda: ledger,
        open_site=lambda cluster: pytest.fail("no site is needed"),
        image_uses=tuple,
        clock=lambda: NOW,
    )


def test_a_mail_arrives_with_its_text_and_one_identity(mailbox: Mailbox) -> None:
    deliver(MAIL, MESSAGE)
    ((recipients, mail),) = mailbox.received
    assert recipients == ("ops@example.org",)
    assert (mail["Subject"], mail["From"]) == (MESSAGE.title, "spillway@example.org")
    assert mail["Message-ID"] == "<id-1-platform/ops.example.org@example.org>"
    (part,) = mail.walk() if not mail.is_multipart() else list(mail.walk())[1:]
    assert part.get_payload(decode=True) == b"<p>80 of 100 &lt;now&gt;</p>"


def test_a_post_reaches_what_apprise_knows(chat: Chat) -> None:
    deliver(CHAT, MESSAGE)
    (post,) = chat.received
    assert (post["title"], post["message"], post["type"]) == (MESSAGE.title, MESSAGE.text, "warning")


def test_what_the_servers_do_not_take_has_not_arrived(mailbox: Mailbox, chat: Chat) -> None:
    mailbox.refuse, chat.status = "451 try again later", 503
    with pytest.raises(NotDelivered, match="451"):
        deliver(MAIL, MESSAGE)
    with pytest.raises(NotDelivered, match="the service of the Connection 'chat' did not take the message"):
        deliver(CHAT, MESSAGE)


@pytest.mark.parametrize("target", [replace(MAIL, connection="nowhere"), replace(CHAT, apprise="nowhere")])
def test_a_connection_that_is_missing_is_named(target: NoticeTarget, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(NotDelivered, match="nowhere"):
        deliver(target, MESSAGE)


def test_of_a_crossing_everybody_is_told_once_and_who_could_not_be_is_told_later(
    services: Services, mailbox: Mailbox, chat: Chat
) -> None:
    mailbox.refuse = "451 try again later"
    said: list[str] = []
    assert watch_budgets(services, deliver, said.append, dry_run=True).crossings
    assert said == ["would tell platform/ops@example.org, on-call: research has spent 80 % of its budget for 2026-03"]

    first = watch_budgets(services, deliver, said.append)
    assert ([n.target for n in first.delivered], [n.target for n in first.failed]) == (["on-call"], [MAIL.name])
    mailbox.refuse = None
    second = watch_budgets(services, deliver, said.append)
    assert (second.crossings, [n.target for n in second.delivered]) == ((), [MAIL.name])
    third = watch_budgets(services, deliver, said.append)
    assert (third.delivered, third.failed) == ((), ())
    assert (len(mailbox.received), len(chat.received)) == (1, 1)
    assert chat.received[0]["message"] == (
        "research has spent 80 % of its budget for 2026-03: 85.00 of 100.00, as of 2026-03-16 12:00 UTC. "
        "At this pace the month ends at 170.00. Nothing is held back yet."
    )


def test_what_a_chat_did_not_take_is_posted_by_the_next_look_and_by_no_later_one(
    services: Services, mailbox: Mailbox, chat: Chat
) -> None:
    chat.status = 503
    first = watch_budgets(services, deliver, print)
    assert ([n.target for n in first.delivered], [n.target for n in first.failed]) == ([MAIL.name], [CHAT.name])
    chat.status = 200
    for _ in range(2):
        watch_budgets(services, deliver, print)
    assert (len(mailbox.received), len(chat.received)) == (1, 1)


def test_of_a_run_that_can_no_longer_meet_its_deadline_everybody_is_told_once(
    services: Services, mailbox: Mailbox, chat: Chat
) -> None:
    hour = timedelta(hours=1)
    for name, asked_ago, within in (("late", 2, 5), ("in-time", 2, 6), ("long-over", 90, 5)):
        job = job_spec(name=name, department="research", expected_duration=4 * hour, finish_within=within * hour)
        services.ledger.open_run(name, job, {}, NOW - asked_ago * hour)
    said: list[str] = []
    told = "late of research cannot meet its deadline 2026-03-16 15:00 UTC"
    assert [late.run for late in watch_budgets(services, deliver, said.append, dry_run=True).late] == ["late"]
    assert f"would tell platform/ops@example.org, on-call: {told}" in said

    first = watch_budgets(services, deliver, said.append)
    assert ([late.run for late in first.late], len(first.delivered)) == (["late"], 4), "and the crossing of its budget"
    again = watch_budgets(services, deliver, said.append)
    assert (again.late, again.delivered) == ((), ())
    assert chat.received[1]["title"] == told
    assert chat.received[1]["message"] == (
        f"{told}: job late is thought to be done about 2026-03-16 16:00 UTC, as of 2026-03-16 12:00 UTC. "
        "`runs show late` tells whether it goes on, and how far it is. This is told once."
    )


def test_of_two_addresses_the_one_that_the_server_refuses_is_told_later_and_the_other_one_once(
    services: Services, mailbox: Mailbox
) -> None:
    cfo = "cfo@example.org"
    (ops, chief) = TargetEntry(name="platform", email=("ops@example.org", cfo), connection="mail").targets()
    services = replace(services, configuration=replace(services.configuration, notices=(ops, chief)))
    mailbox.refused = frozenset({cfo})
    first = watch_budgets(services, deliver, print)
    assert ([n.target for n in first.delivered], [n.target for n in first.failed]) == ([ops.name], [chief.name])
    mailbox.refused = frozenset()
    watch_budgets(services, deliver, print)
    assert [recipients for recipients, _ in mailbox.received] == [("ops@example.org",), (cfo,)]


@pytest.mark.parametrize("paths", [(), ("json://127.0.0.1:9", "json://127.0.0.1:9")], ids=["none", "two"])
def test_a_connection_that_does_not_name_one_service_is_refused_before_any_is_told(
    paths: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    connection = {"conn_type": "apprise", "extra": {"config": [{"path": path, "tag": "all"} for path in paths]}}
    monkeypatch.setenv("AIRFLOW_CONN_CHAT", json.dumps(connection))
    with pytest.raises(NotDelivered, match=r"the Connection 'chat' names (no service|2 services) that apprise knows"):
        deliver(CHAT, MESSAGE)


def test_who_is_not_declared_any_more_is_not_told_which_is_said_once_and_stops_no_other(
    services: Services, mailbox: Mailbox, chat: Chat
) -> None:
    services.ledger.note_crossings(services.configuration.policy, NOW, lambda department: ["gone", MAIL.name])
    said: list[str] = []
    told = watch_budgets(services, deliver, said.append)
    assert ([n.target for n in told.delivered], told.failed) == ([MAIL.name], ())
    assert "gone is not told, budgets.yaml does not declare it any more: research has spent 80 %" in said[0]
    assert services.ledger.undelivered() == ()
