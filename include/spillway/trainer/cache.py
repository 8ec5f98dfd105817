"""The encrypted cache of an attempt's data, where it has one, and what it says of itself."""

from __future__ import annotations

from spillway.errors import ConfigError
from spillway.stores.base import ObjectStore
from spillway.stores.cached import CachedStore
from spillway.stores.encrypted_cache import EncryptedCache, key_of
from spillway.trainer.contract import Contract
from spillway.trainer.progress import say

SILENCE_SECONDS = 5.0
"""How long the cache's store may be silent: its data comes from its home then, and the step that waits for it too."""


def open_cache(contract: Contract) -> EncryptedCache | None:
    """The cache that the contract names; None where it names none, or the image cannot encrypt, which is said.

    Raises:
        ConfigError: its key is none.
    """
    access = contract.cache
    if access is None:
        return None
    key = key_of(access.key)
    store = access.store.bucket(access.bucket, attempts=1, timeout_seconds=SILENCE_SECONDS)
    try:
        return EncryptedCache(store, prefix=access.prefix, key=key, limit_bytes=access.limit_bytes)
    except ConfigError as problem:
        say("cache-left-out", error=str(problem))
        return None


def through(cache: EncryptedCache | None, data: ObjectStore) -> ObjectStore:
    """The data, read through the cache where there is one."""
    return data if cache is None else CachedStore(data, cache)


def tell(cache: EncryptedCache | None) -> None:
    """Say how many blocks and bytes came from the cache this time, and let other pods know which of them were used."""
    if cache is None:
        return
    counts = cache.settle()
    say(
        "cache",
        hits=counts.hits,
        misses=counts.misses,
        damaged=counts.damaged,
        hit_rate=None if counts.hit_rate is None else round(counts.hit_rate, 4),
        bytes_from_cache=counts.hit_bytes,
        bytes_from_home=counts.missed_bytes,
    )
