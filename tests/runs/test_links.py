"""A dataset gives way to a checkpoint on the link of both; what counts is who moved how much, not how fast."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from spillway.checkpoints.store import CheckpointStore
from spillway.config import Configuration
from spillway.errors import Unreachable
from spillway.ledger import Ledger, LinkUse, TransferKind, open_ledger
from spillway.lines import BYTES_PER_GIGABIT, link_between
from spillway.model import Cluster, Link, ObjectInfo, RunPolicy, SiteKind
from spillway.runs import links
from spillway.runs.links import UNDER_WAY_SECONDS, LinkShare
from spillway.runs.moving_checkpoints import copy_checkpoints
from spillway.runs.moving_datasets import copy_dataset
from spillway.runs.services import Services, Site
from spillway.stores.base import ObjectStore
from spillway.stores.limited import LimitedStore
from spillway.stores.s3 import S3Store
from spillway.testing.builders import attempt, cloud_cluster, dataset, onprem_cluster, placement_policy
from spillway.testing.checkpoints import commit_step
from spillway.testing.folder_sites import folder_sites
from spillway.testing.ledger_files import new_ledger
from spillway.testing.polling import eventually
from spillway.testing.s3_server import S3Server
from spillway.testing.slept_time import SleptTime
from spillway.testing.slow_link import slow_link

BYTES_PER_SECOND = 1_000_000
PREFIX, OBJECT_BYTES, OBJECTS = "digits/", 10_000, 400
CHECKPOINT_BYTES = 4_000_000


@pytest.fixture
def ledger(tmp_path: Path) -> Ledger:
    url = new_ledger(tmp_path / "ledger.db")
    return open_ledger(url)


def line(cluster: Cluster, gbps: float) -> Cluster:
    return replace(cluster, link=Link(bandwidth_gbps=gbps))


class CountingStore(LimitedStore):
    """Counts the bytes of a dataset that have arrived, and those that are being put."""

    def __init__(self, store: ObjectStore) -> None:
        super().__init__(store, lambda size_bytes: None)
        self.arrived_bytes = self.under_way_bytes = self.most_under_way_bytes = 0
        self._lock = threading.Lock()

    def put(self, key: str, body: bytes | Iterable[bytes], **wanted: Any) -> ObjectInfo:
        size_bytes = wanted["size_bytes"] if key.startswith(PREFIX) else 0
        with self._lock:
            self.under_way_bytes += size_bytes
            self.most_under_way_bytes = max(self.most_under_way_bytes, self.under_way_bytes)
        stored = super().put(key, body, **wanted)
        with self._lock:
            self.under_way_bytes -= size_bytes
            self.arrived_bytes += size_bytes
        return stored


@pytest.fixture
def cloud(s3_sites: Mapping[str, S3Server]) -> Iterator[CountingStore]:
    """A real store at the other end of a line that carries the declared bandwidth and no more."""
    server = s3_sites["cloud"]
    bucket = server.new_bucket()
    with ExitStack() as stack:
        url = stack.enter_context(
            slow_link(server.endpoint_url, round_trip_seconds=0, bytes_per_second=BYTES_PER_SECOND)
        )
        yield CountingStore(S3Store(name="s3://b@cloud", endpoint=server.endpoint(url=url), bucket=bucket))


@pytest.fixture
def services(tmp_path: Path, ledger: Ledger, cloud: CountingStore) -> Services:
    """Folders on premises, and the far store in the cloud."""
    gbps = BYTES_PER_SECOND / BYTES_PER_GIGABIT
    clusters = {"onprem": line(onprem_cluster(), gbps), "cloud": line(cloud_cluster(), gbps)}

    def open_site(cluster: Cluster) -> Site:
        site = folder_sites(tmp_path)(cluster)
        return replace(site, datasets=cloud, checkpoints=cloud) if cluster.kind is SiteKind.CLOUD else site

    configuration = Configuration(
        clusters=clusters, datasets={"digits": dataset()}, policy=placement_policy(), runs=RunPolicy()
    )
    return Services(configuration=configuration, open_ledger=lambda: ledger, open_site=open_site, image_uses=tuple)


def test_a_dataset_on_its_way_does_not_delay_a_checkpoint(
    services: Services, cloud: CountingStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """While the checkpoint was under way, its first requests included, the line carried little else."""
    monkeypatch.setattr(links, "PERIOD", timedelta(seconds=0.1))
    home = services.site("onprem")
    for number in range(OBJECTS):
        home.datasets.put(f"{PREFIX}{number}", bytes(OBJECT_BYTES), size_bytes=OBJECT_BYTES)
    trained = attempt()
    checkpoints = CheckpointStore(home.checkpoints, trained.run)
    checkpoints.fence(1)
    commit_step(checkpoints, 2)
    copy_checkpoints(services, trained, "onprem", "cloud", print)  # so that what is loaded for the first is
    commit_step(checkpoints, 4, parts={"weights.npy": bytes(CHECKPOINT_BYTES)})

    sync = threading.Thread(target=lambda: copy_dataset(services, services.dataset("digits"), "cloud"))
    sync.start()
    eventually(lambda: cloud.arrived_bytes > BYTES_PER_SECOND // 4)
    before = cloud.arrived_bytes
    report = copy_checkpoints(services, trained, "onprem", "cloud", print)
    meanwhile, still_under_way = cloud.arrived_bytes - before, sync.is_alive()
    sync.join()
    assert report.bytes_copied == CHECKPOINT_BYTES
    assert still_under_way
    assert meanwhile < CHECKPOINT_BYTES * 3 / 8, "side by side they would have moved alike"
    assert OBJECT_BYTES < cloud.most_under_way_bytes <= BYTES_PER_SECOND * UNDER_WAY_SECONDS
    assert cloud.arrived_bytes == OBJECTS * OBJECT_BYTES
    assert services.ledger.link_rates()["cloud"] > 0
    use = LinkUse(link="cloud", mover="next", kind=TransferKind.DATASET)
    share = services.ledger.take_share(use, bandwidth_bytes_per_second=1.0)
    assert share == 1.0, "both have given theirs back"


def test_what_is_about_to_move_has_its_share_before_its_first_byte_and_until_it_was_measured(
    services: Services, ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    slept = SleptTime()
    monkeypatch.setattr(links, "time", slept)
    dataset = LinkUse(link="cloud", mover="dataset", kind=TransferKind.DATASET)

    def left() -> float:
        return ledger.take_share(dataset, bandwidth_bytes_per_second=101.0)

    share = LinkShare(services, TransferKind.CHECKPOINT, services.cluster("cloud"))
    assert left() == 101.0
    share.claim()
    assert left() == 1.0
    slept.sleep(20)  # for its first requests
    share.take(1)
    assert left() == 1.0
    slept.sleep(20)
    share.take(1)
    assert left() > 100.0, "it was measured to want next to nothing"


def test_two_objects_go_at_once_whatever_their_size_and_the_next_when_there_is_room(services: Services) -> None:
    share = LinkShare(services, TransferKind.DATASET, services.cluster("cloud"))
    room = int(BYTES_PER_SECOND * UNDER_WAY_SECONDS)
    begun = threading.Event()

    def move() -> None:
        with share.under_way(1):
            begun.set()

    with share.under_way(100 * room):
        with share.under_way(room):
            thread = threading.Thread(target=move)
            thread.start()
            assert not begun.wait(0.2)
        assert begun.wait(60)
    thread.join()


def test_a_dataset_that_waits_beside_a_checkpoint_is_known_to_the_ledger_and_goes_on_when_the_checkpoint_is_there(
    tmp_path: Path, ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    slept, began = SleptTime(), datetime(2026, 1, 1, tzinfo=UTC)
    monkeypatch.setattr(links, "time", slept)
    monkeypatch.setattr("spillway.ledger.links.shared_time", lambda connection: began + timedelta(seconds=slept.now))
    cloud = line(cloud_cluster(), BYTES_PER_SECOND / BYTES_PER_GIGABIT)
    services = Services(
        configuration=Configuration(
            clusters={"cloud": cloud}, datasets={}, policy=placement_policy(), runs=RunPolicy()
        ),
        open_ledger=lambda: ledger,
        open_site=folder_sites(tmp_path),
        image_uses=tuple,
    )
    checkpoint = LinkUse(link="cloud", mover="checkpoint", kind=TransferKind.CHECKPOINT)
    beside: list[float] = []

    def move_a_checkpoint_for_a_while() -> None:
        if slept.now < 150:
            beside.append(ledger.take_share(checkpoint, bandwidth_bytes_per_second=101.0))
        else:
            ledger.leave_link("checkpoint")

    slept.after_sleep = move_a_checkpoint_for_a_while
    slept.after_sleep()
    share = LinkShare(services, TransferKind.DATASET, cloud)
    share.take(4 * BYTES_PER_SECOND)
    share.take(1)
    assert set(beside[1:]) == {100.0}, "the dataset's mover never lapsed"
    assert 150 < slept.now < 160, "it waited for minutes that were booked at the rate of before"


@pytest.mark.parametrize(
    ("onprem_gbps", "cloud_gbps", "slower"), [(10, 1, "cloud"), (1, 10, "onprem"), (10, 10, "cloud")]
)
def test_the_slower_line_is_the_one_that_is_shared(onprem_gbps: float, cloud_gbps: float, slower: str) -> None:
    onprem, cloud = line(onprem_cluster(), onprem_gbps), line(cloud_cluster(), cloud_gbps)
    assert link_between(onprem, cloud).name == link_between(cloud, onprem).name == slower


def test_a_ledger_that_does_not_answer_stops_no_bytes(services: Services, monkeypatch: pytest.MonkeyPatch) -> None:
    def silent(*_words: object, **_named: object) -> float:
        raise Unreachable("ledger", "no answer")

    monkeypatch.setattr(services.ledger, "take_share", silent)
    monkeypatch.setattr(services.ledger, "leave_link", silent)
    share = LinkShare(services, TransferKind.DATASET, services.cluster("cloud"))
    share.take(1)
    share.leave()
