"""A mirroring whose registry is killed in the middle, and comes back or stays away, or takes another password."""

from __future__ import annotations

import random
import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack

import pytest

from spillway.images.report import RepositoryReport
from spillway.images.repository import mirror_tags, plan_repository
from spillway.model import MirroredRepository
from spillway.registries.http import HttpRegistry
from spillway.testing.faulty_proxy import Answer, FaultyProxy, faulty_proxy
from spillway.testing.images import put_image
from spillway.testing.outages import killed_in_mid_run, puts_of
from spillway.testing.registry_server import RegistryServer

TAGS = [f"v{number}" for number in range(12)]


@pytest.fixture
def proxies(registries: Mapping[str, RegistryServer]) -> Iterator[Mapping[str, FaultyProxy]]:
    with ExitStack() as running:
        yield {name: running.enter_context(faulty_proxy(server.url)) for name, server in registries.items()}


@pytest.fixture
def filled(registries: Mapping[str, RegistryServer], repository: str) -> str:
    """A repository with a small image for each of ``TAGS`` at home."""
    for tag in TAGS:
        put_image(registries["onprem"].client(), repository, tag, layer=random.Random(tag).randbytes(10_000))
    return repository


Mirrored = Callable[[], RepositoryReport]


@pytest.fixture
def mirrored(registries: Mapping[str, RegistryServer], proxies: Mapping[str, FaultyProxy], filled: str) -> Mirrored:
    """Mirrors the repository as a new process would."""

    def mirror() -> RepositoryReport:
        ends = [
            HttpRegistry(
                name=name,
                url=proxies[name].url,
                username=server.username,
                password=server.password,
                credentials=f"Connection '{name}_registry'",
            )
            for name, server in registries.items()
        ]
        return mirror_tags(*ends, plan_repository(*ends, MirroredRepository(repository=filled)), refused={})

    return mirror


@pytest.fixture
def whole(registries: Mapping[str, RegistryServer], proxies: Mapping[str, FaultyProxy], filled: str) -> Iterator[None]:
    """In the end the copy is the same to the byte, and no blob was acknowledged twice."""
    yield
    home, copy = (registries[name].client() for name in ("onprem", "cloud"))
    assert [copy.manifest(filled, tag) for tag in TAGS] == [home.manifest(filled, tag) for tag in TAGS]
    digests = Counter(put.rpartition("digest=")[2] for put in puts_of(proxies["cloud"], "digest="))
    assert [digest for digest, times in digests.items() if times > 1] == []


@pytest.mark.usefixtures("whole")
@pytest.mark.parametrize("site", ["onprem", "cloud"])
def test_a_mirroring_waits_for_a_killed_registry_says_so_and_sends_nothing_twice(
    registries: Mapping[str, RegistryServer],
    proxies: Mapping[str, FaultyProxy],
    mirrored: Mirrored,
    monkeypatch: pytest.MonkeyPatch,
    site: str,
) -> None:
    server = f"registry {site} ({proxies[site].url.removeprefix('http://')})"
    method, path = ("GET", "/blobs/sha256") if site == "onprem" else ("PUT", "digest=")
    request = (registries[site], proxies[site], method, path)
    monkeypatch.setattr("spillway.stores.waiting.TOLD_FROM_SECONDS", 0.0)
    with monkeypatch.context() as impatient:
        for module in ("images.patience", "registries.transport"):
            impatient.setattr(f"spillway.{module}.AWAY_SECONDS", 4.0)
        with killed_in_mid_run(*request, after=3, comes_back=False) as said:
            failures = mirrored().failures
    assert re.match(rf"waiting for {re.escape(server)}, for [0-4] s more at most: ", said[0])
    assert any(f"{server} is unreachable" in one and "it was waited for " in one for one in failures)

    monkeypatch.setattr("spillway.stores.waiting.TOLD_EVERY_SECONDS", 0.0)
    with killed_in_mid_run(*request, after=3, comes_back=True) as said:
        assert mirrored().failures == ()
    assert said[-1] == f"{server} answers again"


@pytest.mark.usefixtures("whole")
@pytest.mark.parametrize("site", ["onprem", "cloud"])
def test_a_password_that_is_changed_in_mid_run_is_told_with_its_connection_and_the_next_run_goes_on(
    registries: Mapping[str, RegistryServer], proxies: Mapping[str, FaultyProxy], mirrored: Mirrored, site: str
) -> None:
    def change(answer: Answer) -> Answer:
        registries[site].change_password()
        return answer

    method, path = ("GET", "/blobs/sha256") if site == "onprem" else ("PUT", "digest=")
    proxies[site].spoil(method, lambda answer: answer, times=3, path=path)
    proxies[site].spoil(method, change, path=path)
    failures = mirrored().failures
    refused = f"refused the credentials: 401 .*; check login 'mover' and its password in Connection '{site}_registry'"
    assert failures and all(re.search(refused, failure) for failure in failures), failures
    assert mirrored().failures == ()
