"""Blocks of core data kept at a site that may not store it in the clear: encrypted, bounded, and found by keyed names.

Any ``ObjectStore`` holds them. Who lacks the key learns how many blocks there are, how large, and when they were used.
"""

from __future__ import annotations

import hashlib
import hmac
import logging
import os
import time
from collections.abc import Callable
from dataclasses import dataclass
from threading import Lock
from typing import TypeVar

from spillway.errors import ConfigError, Missing, SpillwayError
from spillway.stores.base import ObjectStore, read_all
from spillway.stores.cache_room import BLOCKS, evict, note_uses

KEY_BYTES = 32
NONCE_BYTES = 12
SEAL_BYTES = NONCE_BYTES + 16
"""How much larger a block is when it is sealed."""
ROOM = 0.9
"""Evicted is down to this share of the limit, so that not every block that comes has to list all that are there."""
RELIST = 1 / 16
"""Of the limit: so much one pod writes before it looks again at what all of them have written."""
REST_SECONDS = 60.0
"""How long a cache that did not answer is left alone, and one that took no block is given none; the data comes from its
home meanwhile.
"""

_T = TypeVar("_T")
_log = logging.getLogger(__name__)


@dataclass(slots=True)
class CacheCounts:
    """What became of the blocks that were asked for; of ``misses`` so many were there and ``damaged``."""

    hits: int = 0
    misses: int = 0
    damaged: int = 0
    hit_bytes: int = 0
    missed_bytes: int = 0

    @property
    def hit_rate(self) -> float | None:
        """In [0, 1]; None where nothing was asked for."""
        asked = self.hits + self.misses
        return self.hits / asked if asked else None


class EncryptedCache:
    """Safe to share between threads, and between pods that have the same key.

    A block that is damaged, cut off, or was sealed with another key or for another name counts as not there, and so
    does every block of a store that fails: reading becomes slower, never wrong. Pods make room each for itself: each
    may add a sixteenth of the limit before it sees what the others have added.
    """

    def __init__(
        self, store: ObjectStore, *, prefix: str, key: bytes, limit_bytes: int, clock: Callable[[], float] = time.time
    ) -> None:
        """``prefix`` ends with a slash; ``limit_bytes`` is of all that is below it, as it is stored.

        Raises:
            ConfigError: the library that encrypts is not installed, or the key is not of ``KEY_BYTES`` bytes.
        """
        if len(key) != KEY_BYTES:
            raise ConfigError("cache", "key", f"expected {KEY_BYTES} bytes, got {len(key)}")
        try:
            from cryptography.exceptions import InvalidTag
            from cryptography.hazmat.primitives.ciphers.aead import AESGCM
        except ImportError as absent:
            problem = f"the image lacks the Python package 'cryptography' ({absent}); add it, or leave the cache out"
            raise ConfigError("cache", "", problem) from absent
        self.counts = CacheCounts()
        self._store, self._prefix, self._limit_bytes, self._clock = store, prefix, limit_bytes, clock
        self._naming_key = hmac.digest(key, b"names", "sha256")
        self._cipher, self._invalid = AESGCM(hmac.digest(key, b"contents", "sha256")), (InvalidTag, ValueError)
        self._used: dict[str, float] = {}
        self._listed_bytes: int | None = None
        self._written_bytes = 0
        self._rests_until = self._full_until = 0.0
        self._counting, self._making_room = Lock(), Lock()

    def get(self, what: str) -> bytes | None:
        """The block that was put for ``what`` by somebody with the key; None where there is none to be trusted."""
        name = self._name(what)
        sealed = self._try(lambda: read_all(self._store, self._prefix + BLOCKS + name))
        block = None if sealed is None else self._opened(name, sealed)
        with self._counting:
            if block is None:
                self.counts.misses += 1
                self.counts.damaged += sealed is not None
            else:
                self.counts.hits += 1
                self.counts.hit_bytes += len(block)
                self._used[name] = self._clock()
        return block

    def put(self, what: str, block: bytes) -> None:
        """Keep a block; what was used least recently makes room for it. A store that does not take it changes nothing.

        One that is larger than a sixteenth of the limit is not kept.
        """
        name, nonce = self._name(what), os.urandom(NONCE_BYTES)
        with self._counting:
            self.counts.missed_bytes += len(block)
        size_bytes = len(block) + SEAL_BYTES
        if size_bytes > self._limit_bytes * RELIST or not self._write(lambda: self._make_room(size_bytes)):
            return
        sealed = nonce + self._cipher.encrypt(nonce, block, name.encode())
        self._write(lambda: self._store.put(self._prefix + BLOCKS + name, sealed, size_bytes=size_bytes))

    def settle(self) -> CacheCounts:
        """Tell the other pods which blocks this one has used since it last told, so that they evict others first.

        Gives what became of what was asked for since then.
        """
        with self._counting:
            used, self._used = self._used, {}
            counts, self.counts = self.counts, CacheCounts()
        if used:
            self._write(lambda: note_uses(self._store, self._prefix, used))
        return counts

    def _name(self, what: str) -> str:
        return hmac.digest(self._naming_key, what.encode(), "sha256").hex()

    def _opened(self, name: str, sealed: bytes) -> bytes | None:
        try:
            return self._cipher.decrypt(sealed[:NONCE_BYTES], sealed[NONCE_BYTES:], name.encode())
        except self._invalid:
            return None

    def _make_room(self, size_bytes: int) -> bool:
        """True once a block of that size fits."""
        with self._making_room:
            present = None if self._listed_bytes is None else self._listed_bytes + self._written_bytes + size_bytes
            if present is None or present > self._limit_bytes or self._written_bytes > self._limit_bytes * RELIST:
                limit, room = self._limit_bytes - size_bytes, self._limit_bytes * ROOM - size_bytes
                self._listed_bytes = evict(self._store, self._prefix, limit_bytes=limit, room_bytes=room)
                self._written_bytes = 0
            self._written_bytes += size_bytes
            fits = self._listed_bytes is not None and self._listed_bytes + self._written_bytes <= self._limit_bytes
            if not fits:
                self._take_no_more("no room could be made, its store deletes nothing")
            return fits

    def _try(self, act: Callable[[], _T]) -> _T | None:
        """What it gives; None where the store fails or has just failed."""
        if time.monotonic() < self._rests_until:
            return None
        try:
            return act()
        except Missing as absent:
            if absent.kind != "bucket":
                return None
            problem: SpillwayError = absent
        except SpillwayError as failed:
            problem = failed
        self._rests_until = time.monotonic() + REST_SECONDS
        _log.warning("the cache is left alone for %.0f s: %s", REST_SECONDS, problem)
        return None

    def _write(self, act: Callable[[], _T]) -> _T | None:
        """The same for what changes the cache: what it has is read on, whether or not it takes more."""
        if time.monotonic() < max(self._rests_until, self._full_until):
            return None
        try:
            return act()
        except SpillwayError as problem:
            self._take_no_more(str(problem))
            return None

    def _take_no_more(self, why: str) -> None:
        self._full_until = time.monotonic() + REST_SECONDS
        _log.warning("nothing more is cached for %.0f s: %s", REST_SECONDS, why)


def key_of(text: str) -> bytes:
    """The key that is written so; raises ConfigError, without the text, where it is not 64 hexadecimal digits."""
    try:
        key = bytes.fromhex(text)
    except ValueError:
        key = b""
    if len(key) != KEY_BYTES:
        raise ConfigError(
            "cache", "key", f"expected {2 * KEY_BYTES} hexadecimal digits (openssl rand -hex {KEY_BYTES})"
        )
    return key


def prefix_of(key: bytes, dataset: str) -> str:
    """Where a dataset's blocks are; its name tells nothing to who lacks the key."""
    return hmac.digest(hmac.digest(key, b"prefix", hashlib.sha256), dataset.encode(), hashlib.sha256).hex()[:16] + "/"
