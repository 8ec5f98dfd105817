"""The cache of a trainer whose store is busy or gone; the proxy before it answers as no store does on demand."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from spillway.testing.faulty_proxy import Answer, faulty_proxy, xml_error
from spillway.trainer.cache import open_cache
from spillway.trainer.contract import read_contract

STORE = {"REGION": "here", "ACCESS_KEY": "a", "SECRET_KEY": "b"}
CACHE = {"BUCKET": "cache", "PREFIX": "0123456789abcdef/", "KEY": "00" * 32, "BYTES": "1000000"}
JOB = {"RUN": "digits-1", "ATTEMPT": "1", "CHECKPOINT_BUCKET": "c", "DATASET_BUCKET": "d", "STEPS": "1"}


def environment(cache_url: str) -> Mapping[str, str]:
    stores = {"STORE": STORE | {"ENDPOINT": "http://home"}, "CACHE": STORE | CACHE | {"ENDPOINT": cache_url}}
    named = {f"{what}_{name}": value for what, values in stores.items() for name, value in values.items()}
    return {f"SPILLWAY_{name}": value for name, value in (named | JOB | {"CHECKPOINT_EVERY": "1"}).items()}


@pytest.mark.parametrize("answer", [xml_error(503, "SlowDown"), None], ids=["busy", "hangs up"])
def test_a_cache_that_fails_is_asked_once_for_its_data_is_at_home_too(answer: Answer | None) -> None:
    with faulty_proxy("http://127.0.0.1:1") as proxy:
        proxy.refuse("GET", answer, times=100)
        cache = open_cache(read_contract(environment(proxy.url)))
        assert cache is not None
        assert [cache.get("a"), cache.get("b")] == [None, None]
        assert len(proxy.requests) == 1
