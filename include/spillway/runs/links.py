"""A transfer's share of its link: asked of the ledger every second while bytes move. No daemon hands them out."""

from __future__ import annotations

import logging
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import timedelta
from threading import Condition, Lock

from spillway.errors import SpillwayError
from spillway.ledger import LinkUse, TransferKind
from spillway.lines import BYTES_PER_GIGABIT, link_between
from spillway.model import Cluster
from spillway.runs.services import Services
from spillway.stores.rate import RateLimit

_log = logging.getLogger(__name__)

PERIOD = timedelta(seconds=1)
"""How old a share becomes before it is asked for again: for so long what goes first may find no room yet."""

UNDER_WAY_SECONDS = 0.25
"""What may be under way at once is what the share moves in so long: more than the round trip to the other side of the
earth, so no line falls idle, and whatever else is sent over it waits no longer behind that."""

_LOOK_SECONDS = 1.0


def link_name(services: Services, one: str, other: str) -> str:
    """As ``link_between``, of clusters by name; raises UnknownName."""
    return link_between(services.cluster(one), services.cluster(other)).name


def link_between_sites(services: Services, one: str, other: str) -> str | None:
    """As ``link_name``; None where both are the same site."""
    return None if one == other else link_name(services, one, other)


class LinkLeft(BaseException):
    """A thread that was left behind still reads for a transfer that has ended.

    No Exception: nobody should try again, count it as a fault of the store, or throw away what has arrived.
    """


class LinkShare:
    """The rate limit of one transfer, which follows what the ledger says of its link. Threads may share it.

    Whoever moves bytes asks, and whoever waits for a turn: so a share that grows holds for what waits, and the ledger
    knows that it is there. A transfer that moves nothing asks nothing; one that is about to ``claim``s its share, so
    that the others make room before its first byte. While the ledger does not answer, the last share holds; before the
    first answer that is the whole declared bandwidth. Nothing moves where it cannot even be opened: nobody could record
    it.
    """

    def __init__(self, services: Services, kind: TransferKind, link: Cluster) -> None:
        self._open_ledger = services.open_ledger
        self._bandwidth = link.link.bandwidth_gbps * BYTES_PER_GIGABIT
        self._use = LinkUse(link=link.name, mover=str(uuid.uuid4()), kind=kind)
        self._limit = RateLimit(self._bandwidth, clock=time.monotonic, sleep=self._wait)
        self._asking, self._counting = Lock(), Lock()
        self._moved = 0
        self._left = False
        self._asked_at: float | None = None
        self._measured_at: float | None = None
        self._passed_when_measured = 0.0
        self._turn, self._room = Lock(), Condition()
        self._under_way: list[int] = []

    def claim(self) -> None:
        """Bytes are about to move: others are to make room for them.

        Raises:
            SpillwayError: the ledger cannot be opened.
        """
        self._open_ledger()
        self._ask_if_due()

    def take(self, size_bytes: int) -> None:
        """Return when this many bytes may move.

        Raises:
            LinkLeft: the transfer has ended.
            SpillwayError: the ledger cannot be opened.
        """
        self._check()
        self._open_ledger()
        self._ask_if_due()
        if self._measured_at is None:
            self._measured_at = time.monotonic()
        self._limit.take(size_bytes)
        with self._counting:
            self._moved += size_bytes

    @contextmanager
    def under_way(self, size_bytes: int) -> Iterator[None]:
        """A block that moves so many bytes; it begins when there is room for them beside what is under way already.

        So no queue builds up on the line, in which others would wait. Two may go whatever their size: one is read while
        the other is sent.

        Raises:
            LinkLeft: the transfer has ended.
        """
        with self._turn, self._room:  # one after another, or the small ones would overtake a large one for ever
            while len(self._under_way) >= 2 and sum(self._under_way) + size_bytes > self._room_bytes:
                self._check()
                self._room.wait(_LOOK_SECONDS)
            self._under_way.append(size_bytes)
        try:
            yield
        finally:
            with self._room:
                self._under_way.remove(size_bytes)
                self._room.notify()

    @property
    def _room_bytes(self) -> float:
        return self._limit.bytes_per_second * UNDER_WAY_SECONDS

    @property
    def moved_bytes(self) -> int:
        """All that was read for the other site so far, whether or not it arrived."""
        return self._moved

    def _wait(self, seconds: float) -> None:
        time.sleep(seconds)
        self._check()
        self._ask_if_due()

    def _check(self) -> None:
        if self._left:
            raise LinkLeft

    def leave(self) -> None:
        """The transfer has ended, however it did; a thread of it that still reads is cut off at its next block."""
        self._left = True
        if self._asked_at is None:
            return
        try:
            self._open_ledger().leave_link(self._use.mover)
        except SpillwayError as problem:
            _log.info("the end of a transfer over the link of %s is noted later: %s", self._use.link, problem)

    def _ask_if_due(self) -> None:
        if self._asking.acquire(blocking=False):  # whoever comes meanwhile goes on with the share that holds
            try:
                now = time.monotonic()
                if self._asked_at is None or now - self._asked_at >= PERIOD.total_seconds():
                    self._ask(now)
            finally:
                self._asking.release()

    def _ask(self, now: float) -> None:
        use = replace(self._use, bytes_per_second=self._measured(now))
        self._asked_at = now
        try:
            self._limit.bytes_per_second = self._open_ledger().take_share(
                use, bandwidth_bytes_per_second=self._bandwidth
            )
        except SpillwayError as problem:
            _log.info("the share of the link of %s stays as it is: %s", self._use.link, problem)

    def _measured(self, now: float) -> float | None:
        """The bytes a second since the last time; None before the first ones: what will move was not measured yet."""
        began, before = self._measured_at, self._passed_when_measured
        if began is None:
            return None
        self._measured_at, self._passed_when_measured = now, self._limit.passed_bytes
        return (self._passed_when_measured - before) / (now - began) if now > began else None
