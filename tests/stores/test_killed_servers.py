"""Movers of datasets and checkpoints whose object store is killed in the middle: it comes back, or it stays away, or it
comes back with other keys.
"""

from __future__ import annotations

import hashlib
import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

import pytest

from spillway.checkpoints.replicate import replicate
from spillway.checkpoints.store import CheckpointStore
from spillway.errors import AccessDenied, Unreachable
from spillway.sandbox.objectstore import Identity
from spillway.stores.base import read_all
from spillway.stores.parts import MIB
from spillway.stores.patience import AWAY_SECONDS
from spillway.stores.s3 import S3Store
from spillway.sync.execute import sync_dataset
from spillway.testing.checkpoints import commit_step
from spillway.testing.faulty_proxy import FaultyProxy, faulty_proxy
from spillway.testing.outages import killed_in_mid_run, puts_of
from spillway.testing.s3_server import S3Server

LARGE = hashlib.shake_256(b"large").digest(20 * MIB)
CONTENTS = {"large": LARGE} | {f"{number:02}": b"content %d" % number for number in range(40)}
RUN = "llm-7b"


@pytest.fixture
def proxies(s3_sites: Mapping[str, S3Server]) -> Iterator[Mapping[str, FaultyProxy]]:
    with ExitStack() as running:
        yield {name: running.enter_context(faulty_proxy(server.endpoint_url)) for name, server in s3_sites.items()}


@pytest.fixture
def opened(s3_sites: Mapping[str, S3Server], proxies: Mapping[str, FaultyProxy]) -> Callable[[float], list[S3Store]]:
    """Opens a bucket at each site, through the proxies, for a mover that waits so long for a store that is away."""
    buckets = {name: server.new_bucket() for name, server in s3_sites.items()}

    def open_buckets(away_seconds: float) -> list[S3Store]:
        return [
            S3Store(
                name=f"s3://{bucket}@{name}",
                endpoint=s3_sites[name].endpoint(url=proxies[name].url, away_seconds=away_seconds),
                bucket=bucket,
            )
            for name, bucket in buckets.items()
        ]

    return open_buckets


Move = Callable[..., None]


def sync_digits(home: S3Store, cloud: S3Store) -> None:
    assert sync_dataset(source=home, destination=cloud, dataset="digits", prefix="digits/").ok


def replicate_run(home: S3Store, cloud: S3Store) -> None:
    replicate(CheckpointStore(home, RUN), CheckpointStore(cloud, RUN))


def in_spite_of_kills(
    move: Move,
    opened: Callable[[float], list[S3Store]],
    servers: Mapping[str, S3Server],
    proxies: Mapping[str, FaultyProxy],
    site: str,
    path: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Move while the store of the site stays away, then again while it is away for some seconds."""
    request = (servers[site], proxies[site], "GET" if site == "onprem" else "PUT", path)
    given_up = pytest.raises(Unreachable, match=rf"s3://.*@{site} is unreachable: .*; it was waited for \d+ s")
    with killed_in_mid_run(*request, after=3, comes_back=False) as said, given_up:
        move(*opened(4.0))
    assert re.match(rf"waiting for s3://.*@{site}, for [0-4] s more at most: ", said[0])

    monkeypatch.setattr("spillway.stores.waiting.TOLD_EVERY_SECONDS", 0.0)
    with killed_in_mid_run(*request, after=3, comes_back=True) as said:
        move(*opened(AWAY_SECONDS))
    assert said[-1].endswith(f"@{site} answers again")


def sent_twice(proxy: FaultyProxy, path: str) -> list[str]:
    return [put for put, times in Counter(puts_of(proxy, path)).items() if times > 1]


@pytest.mark.parametrize("site", [pytest.param("onprem", marks=pytest.mark.slow), "cloud"])
def test_a_sync_waits_for_a_killed_store_says_so_and_sends_nothing_twice(
    opened: Callable[[float], list[S3Store]],
    s3_sites: Mapping[str, S3Server],
    proxies: Mapping[str, FaultyProxy],
    monkeypatch: pytest.MonkeyPatch,
    site: str,
) -> None:
    monkeypatch.setattr("spillway.stores.waiting.TOLD_FROM_SECONDS", 0.0)
    home, cloud = opened(AWAY_SECONDS)
    for key, content in CONTENTS.items():
        home.put(f"digits/{key}", content, size_bytes=len(content))

    in_spite_of_kills(sync_digits, opened, s3_sites, proxies, site, "/digits/", monkeypatch)
    assert {key: read_all(cloud, f"digits/{key}") for key in CONTENTS} == CONTENTS
    assert sent_twice(proxies["cloud"], "/digits/") == []


@pytest.mark.slow
@pytest.mark.parametrize("site", ["onprem", "cloud"])
def test_a_replication_waits_for_a_killed_store_says_so_and_sends_nothing_twice(
    opened: Callable[[float], list[S3Store]],
    s3_sites: Mapping[str, S3Server],
    proxies: Mapping[str, FaultyProxy],
    monkeypatch: pytest.MonkeyPatch,
    site: str,
) -> None:
    monkeypatch.setattr("spillway.stores.waiting.TOLD_FROM_SECONDS", 0.0)
    home, cloud = (CheckpointStore(store, RUN) for store in opened(AWAY_SECONDS))
    home.fence(1)
    written = commit_step(home, 10, parts=CONTENTS)

    in_spite_of_kills(replicate_run, opened, s3_sites, proxies, site, "/parts/", monkeypatch)
    assert cloud.resume_point().manifest == written
    assert {name: cloud.load(written, name) for name in CONTENTS} == CONTENTS
    assert sent_twice(proxies["cloud"], "/parts/") == []


@pytest.mark.slow
def test_a_restore_waits_for_a_killed_store_says_so_and_reads_no_file_twice(
    opened: Callable[[float], list[S3Store]],
    s3_sites: Mapping[str, S3Server],
    proxies: Mapping[str, FaultyProxy],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    monkeypatch.setattr("spillway.stores.waiting.TOLD_FROM_SECONDS", 0.0)
    home = CheckpointStore(opened(AWAY_SECONDS)[0], RUN)
    home.fence(1)
    written = commit_step(home, 10, parts=CONTENTS)

    def restore(home: S3Store, _: S3Store) -> None:
        CheckpointStore(home, RUN).parts.write_files(written.parts, tmp_path)

    in_spite_of_kills(restore, opened, s3_sites, proxies, "onprem", "/parts/", monkeypatch)
    assert {file.name: file.read_bytes() for file in tmp_path.iterdir()} == CONTENTS


class WithNewKeys:
    """The server, whose identity ``trainer`` has another secret key when it starts again."""

    def __init__(self, server: S3Server, file: Path) -> None:
        self._server, self._file = server, file
        self.kill = server.kill

    def start(self) -> None:
        declared = self._file.read_text()
        self.trainer = replace(self._server.trainer, secret_key="another-secret-0123456789")
        self._file.write_text(declared.replace(self._server.trainer.secret_key, self.trainer.secret_key))
        self._server.start()


@pytest.mark.parametrize(
    ("move", "prefix"),
    [
        pytest.param(sync_digits, "digits/", id="dataset"),
        pytest.param(replicate_run, f"{RUN}/parts/", id="checkpoint", marks=pytest.mark.slow),
    ],
)
def test_a_key_that_is_revoked_in_mid_run_is_told_with_its_connection_and_the_next_run_goes_on(
    s3_server: S3Server,
    own_s3_server: S3Server,
    tmp_path: Path,
    move: Move,
    prefix: str,
) -> None:
    home, bucket = s3_server.store(), own_s3_server.new_bucket()
    for key, content in CONTENTS.items():
        home.put(f"digits/{key}", content, size_bytes=len(content))
    checkpoints = CheckpointStore(home, RUN)
    checkpoints.fence(1)
    commit_step(checkpoints, 10, parts=CONTENTS)
    rotating = WithNewKeys(own_s3_server, tmp_path / "s3" / "s3.json")

    def cloud(identity: Identity, url: str) -> S3Store:
        endpoint = own_s3_server.endpoint(url=url, identity=identity, away_seconds=AWAY_SECONDS)
        return S3Store(
            name=f"s3://{bucket}@cloud", endpoint=endpoint, bucket=bucket, credentials="Connection 'cloud_store'"
        )

    with faulty_proxy(own_s3_server.endpoint_url) as proxy:
        keys = r"refused the credentials: .*; check the access key and the secret key of Connection 'cloud_store'"
        refused = pytest.raises(AccessDenied, match=keys)
        with killed_in_mid_run(rotating, proxy, "PUT", f"/{prefix}", after=3, comes_back=True), refused:
            move(home, cloud(own_s3_server.trainer, proxy.url))
        move(home, cloud(rotating.trainer, proxy.url))
        assert sent_twice(proxy, f"/{prefix}") == []
    moved = cloud(rotating.trainer, own_s3_server.endpoint_url)
    assert {read_all(moved, entry.key) for entry in moved.list(prefix)} == {*CONTENTS.values()}
