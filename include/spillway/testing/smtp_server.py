"""A real SMTP server that keeps what it was sent, and refuses it while a test says so."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from email import message_from_bytes
from email.message import Message
from threading import Thread

from aiosmtpd.smtp import SMTP, Envelope, Session


@dataclass(slots=True)
class Mailbox:
    """What arrived, oldest first, with its recipients; ``refuse`` is the answer to a message in place of taking it.

    ``refused`` are recipients for whom it takes none.
    """

    port: int = 0
    refuse: str | None = None
    refused: frozenset[str] = frozenset()
    received: list[tuple[tuple[str, ...], Message]] = field(default_factory=list)

    async def handle_RCPT(
        self, server: SMTP, session: Session, envelope: Envelope, address: str, options: list[str]
    ) -> str:
        if address in self.refused:
            return "451 try again later"
        envelope.rcpt_tos.append(address)
        return "250 OK"

    async def handle_DATA(self, server: SMTP, session: Session, envelope: Envelope) -> str:
        if self.refuse is not None:
            return self.refuse
        content = envelope.content
        assert isinstance(content, bytes)
        self.received.append((tuple(envelope.rcpt_tos), message_from_bytes(content)))
        return "250 OK"


@contextmanager
def smtp_server() -> Iterator[Mailbox]:
    """The server on a free port of this host, for as long as the block lasts."""
    mailbox, loop = Mailbox(), asyncio.new_event_loop()
    server = loop.run_until_complete(loop.create_server(lambda: SMTP(mailbox, loop=loop), "127.0.0.1", 0))
    mailbox.port = server.sockets[0].getsockname()[1]
    thread = Thread(target=loop.run_forever, daemon=True)
    thread.start()
    try:
        yield mailbox
    finally:
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        server.close()
        loop.run_until_complete(server.wait_closed())
        loop.close()
