"""One blob on its way into a registry: in one piece where it is small, in parts that a cut does not undo where not."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain
from time import sleep
from urllib.parse import quote

from spillway.errors import DigestMismatch, RequestRefused, Unreachable
from spillway.errors.counts import counted
from spillway.registries.answers import error_text
from spillway.registries.transport import Request, Transport, resume_patience
from spillway.registries.wire import Answer

PART_BYTES = 16 * 2**20


class Upload:
    """An upload that a registry has begun; ``location`` is where it goes on, ``what`` how messages call the blob.

    A part stays in memory until the registry has acknowledged it, so it can be sent again without asking the source.
    """

    def __init__(self, transport: Transport, *, name: str, scope: str, what: str, digest: str, location: str) -> None:
        self._transport, self._name, self._scope = transport, name, scope
        self._what, self._digest, self._location = what, digest, location

    def send(self, chunks: Iterator[bytes], *, size_bytes: int, smallest_part_bytes: int = 0) -> None:
        """Send the bytes and have the registry check them.

        Raises:
            DigestMismatch: the registry found other bytes than the digest promises.
            Unreachable: it is gone, or no longer knows the upload; it can be begun again.
        """
        part_bytes = max(PART_BYTES, smallest_part_bytes)
        parts = _parts(chunks, part_bytes)
        first = next(parts, b"")
        if size_bytes <= part_bytes:
            return self._finish(first)
        try:
            self._send_part(first, 0)
        except RequestRefused:  # some registries take a blob in one piece only
            return self._finish(chain([first], parts), size_bytes=size_bytes)
        sent = len(first)
        for part in parts:
            self._send_part(part, sent)
            sent += len(part)
        return self._finish(b"")

    def _send_part(self, part: bytes, begins: int) -> None:
        uncertain, patience = False, resume_patience()
        while True:
            try:
                held = self._held_bytes() if uncertain else begins
                if not begins <= held <= begins + len(part):
                    raise _Forgotten(
                        self._name, f"it has {counted(held, 'byte')} of {self._what}, expected {begins} at least"
                    )
                if held < begins + len(part):
                    self._patch(part[held - begins :], held)
                patience.answered()
                return
            except _Forgotten:
                patience.answered()
                raise
            except Unreachable as problem:
                pause = patience.after_away(problem.endpoint, problem.problem)
                if pause is None:
                    patience.give_up(problem)
                uncertain = True
                sleep(max(pause, problem.retry_after_seconds or 0.0))

    def _patch(self, body: bytes, begins: int) -> None:
        content_range = f"{begins}-{begins + len(body) - 1}"
        answer = self._transport.send(
            Request(
                method="PATCH",
                url=self._location,
                scope=self._scope,
                headers={"Content-Type": "application/octet-stream", "Content-Range": content_range},
                body=body,
                once=True,
                accepted=(201, 202, 204, 404, 416),
            )
        )
        if answer.status == 416:
            raise Unreachable(self._name, f"it expects other bytes than {content_range} of {self._what}")
        self._go_on(answer)

    def _held_bytes(self) -> int:
        """How much of the upload the registry has."""
        request = Request(method="GET", url=self._location, scope=self._scope, accepted=(202, 204, 404))
        answer = self._transport.send(request)
        self._go_on(answer)
        last = answer.headers.get("range", "").rpartition("-")[2]
        # Nothing and a single byte are both told as "0-0"; no part is that small.
        return int(last) + 1 if last.isdecimal() and int(last) else 0

    def _go_on(self, answer: Answer) -> None:
        if answer.status == 404:
            raise _Forgotten(self._name, f"it no longer knows an upload that it began ({error_text(answer)})")
        answer.drain()
        self._location = answer.headers.get("location", self._location)

    def _finish(self, body: bytes | Iterator[bytes], *, size_bytes: int | None = None) -> None:
        answer = self._transport.send(
            Request(
                method="PUT",
                url=f"{self._location}{'&' if '?' in self._location else '?'}digest={quote(self._digest, safe='')}",
                scope=self._scope,
                headers={
                    "Content-Type": "application/octet-stream",
                    "Content-Length": str(len(body) if isinstance(body, bytes) else size_bytes),
                },
                body=body if isinstance(body, bytes) else None,
                stream=None if isinstance(body, bytes) else body,
                once=True,
                accepted=(201, 204, 400, 404),
            )
        )
        if answer.status == 404:
            self._go_on(answer)
        if answer.status == 400:
            problem = error_text(answer)
            if "DIGEST_INVALID" in problem or "SIZE_INVALID" in problem:
                said = f"other bytes, says the registry ({problem})"
                raise DigestMismatch(self._what, expected=self._digest, seen=said)
            raise RequestRefused(self._name, f"the upload of {self._what}", problem)
        answer.drain()


class _Forgotten(Unreachable):
    """The upload is lost: its blob is begun again."""


def _parts(chunks: Iterator[bytes], size_bytes: int) -> Iterator[bytes]:
    """The same bytes in pieces of that size, the last one shorter."""
    held = bytearray()
    for chunk in chunks:
        held += chunk
        while len(held) >= size_bytes:
            yield bytes(held[:size_bytes])
            del held[:size_bytes]
    if held:
        yield bytes(held)
