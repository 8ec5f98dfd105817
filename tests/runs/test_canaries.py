"""Core objects with strings that nothing else has, in names and contents: every mover runs, and none is found outside.

The stores and registries are the sandbox's; the positive control is that the same search finds them at home.
"""

from __future__ import annotations

import json
import logging
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace

import pytest
import yaml

from spillway.codec import encode
from spillway.errors import AccessDenied, ResidencyRefused
from spillway.images.report import TagFate
from spillway.ledger import TransferOutcome
from spillway.model import DatasetUse, ImageUse, JobSpec, MirroredRepository, Tier
from spillway.runs.distribution import dataset_routes, image_routes
from spillway.runs.moving_checkpoints import copy_checkpoints
from spillway.runs.moving_datasets import copy_dataset
from spillway.runs.moving_images import copy_image, copy_repository
from spillway.runs.replicating import replicate_run, upload_checkpoints
from spillway.runs.services import Services
from spillway.runs.sharing import copy_dataset_share, divide_dataset, merge_dataset
from spillway.runs.staging import stage, stage_datasets
from spillway.sandbox.configuration import DATASET_BUCKET
from spillway.stores.base import read_all
from spillway.stores.s3 import S3Store
from spillway.sync.execute import sync_dataset
from spillway.sync.report import summary
from spillway.testing.carried_run import Carried
from spillway.testing.checkpoints import commit_step
from spillway.testing.images import put_image
from spillway.testing.sandbox_server import Installation

CLEARED = "release=cleared"

MakeJob = Callable[..., JobSpec]
Carry = Callable[[JobSpec], Carried]

DATASETS = [
    {"name": "digits", "home": "onprem", "prefix": "digits/", "tier": "public"},
    {"name": "vault", "home": "onprem", "prefix": "digits/vault/", "tier": "core"},
    {"name": "faces", "home": "onprem", "prefix": "faces/", "tier": "core"},
    {
        "name": "voices",
        "home": "onprem",
        "prefix": "remote/voices/",
        "tier": "core",
        "remote_read": {"connection": "onprem_store_remote"},
    },
    {
        "name": "labelled",
        "home": "onprem",
        "prefix": "public/labelled/",
        "tier": "core",
        "rules": [{"tag": {"release": "cleared"}, "tier": "public"}],
    },
]


@dataclass(slots=True)
class Scene:
    """Services whose on-premises site holds canaries, and all that was said, returned and raised."""

    services: Services
    canary: str
    told: list[str] = field(default_factory=list)

    @property
    def repository(self) -> str:
        return f"train-{self.canary}"

    def do(self, act: Callable[[], object]) -> bool:
        """Do it and keep what it gives, as XCom would; whether it was refused by residency."""
        try:
            self.told.append(json.dumps(encode(act())).replace(self.repository, "the image that was asked for"))
        except ResidencyRefused as refusal:
            # Its subject is what somebody asked for by name; everything else would be a leak.
            self.told.append(str(refusal).replace(self.repository, "the image that was asked for"))
            return True
        return False

    def stored(self, site: str) -> Iterator[str]:
        """All that a site's stores hold: keys, attributes and bytes, Spillway's own records included."""
        opened = self.services.site(site)
        for store in (opened.datasets, opened.checkpoints):
            for entry in store.list():
                known = store.head(entry.key)
                body = read_all(store, entry.key).decode(errors="replace")
                yield f"{entry.key} {known.metadata if known else ''} {body}"
        for tag in opened.registry.tags(self.repository):
            yield f"{self.repository}:{tag}"


@pytest.fixture
def scene(installation: Installation) -> Iterator[Scene]:
    (installation.config / "datasets.yaml").write_text(yaml.safe_dump({"datasets": DATASETS}))
    canary = f"canary-{uuid.uuid4().hex}"
    services = installation.services()
    home = services.site("onprem")
    keys = [f"digits/vault/{canary}", f"faces/{canary}/1", f"remote/voices/{canary}"]
    for key in keys:
        home.datasets.put(key, f"content {canary}".encode(), size_bytes=len(f"content {canary}"))
    use = ImageUse(job="core-job", image=f"train-{canary}:v1", tier=Tier.CORE)
    put_image(home.registry, f"train-{canary}", "v1", layer=canary.encode())
    yield Scene(services=replace(services, image_uses=lambda: [use]), canary=canary)
    home.datasets.delete(keys)


def core_run(scene: Scene, job: JobSpec) -> Carried:
    """A run of core data on premises that has committed a step full of canaries."""
    run = f"{job.name}-{uuid.uuid4().hex[:8]}"
    scene.services.ledger.open_run(run, job, {}, scene.services.clock())
    carried = Carried(services=scene.services, run=run, job=job)
    carried.place()
    carried.checkpoints("onprem").fence(1)
    commit_step(carried.checkpoints("onprem"), 2, parts={f"{scene.canary}.npy": scene.canary.encode()})
    return carried


def test_no_mover_takes_a_canary_out(scene: Scene, make_job: MakeJob, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG, logger="spillway")
    services, datasets = scene.services, scene.services.configuration.datasets
    run = core_run(scene, make_job(dataset="faces", tier=Tier.CORE))
    (attempt,) = run.attempts
    in_the_cloud = replace(attempt, candidate=replace(attempt.candidate, cluster="cloud"))

    def copied(name: str, *, dry_run: bool = False) -> Callable[[], object]:
        return lambda: summary(copy_dataset(services, datasets[name], "cloud", dry_run=dry_run))

    assert [scene.do(copied("digits", dry_run=dry)) for dry in (True, False)] == [False, False]
    refused = [
        copied("faces"),
        copied("vault"),
        lambda: (
            stage_datasets(services, make_job(dataset="digits"), "onprem", scene.told.append)
            or stage_datasets(services, make_job(dataset="faces"), "cloud", scene.told.append)
        ),
        lambda: copy_image(services, scene.repository, "v1", "cloud", tier=Tier.PUBLIC),
        lambda: copy_checkpoints(services, in_the_cloud, "onprem", "cloud", scene.told.append),
        lambda: stage(
            services,
            replace(in_the_cloud, job=replace(run.job, datasets=(DatasetUse(name="faces"),))),
            scene.told.append,
        ),
    ]
    assert [scene.do(act) for act in refused] == [True] * len(refused)
    for act in (
        lambda: dataset_routes(services),
        lambda: upload_checkpoints(services, scene.told.append),
        lambda: replicate_run(services, attempt, scene.told.append),
    ):
        assert not scene.do(act)
    assert image_routes(services) == ()

    assert [text for text in scene.stored("onprem") if scene.canary in text], "the search finds what there is"
    assert [text for text in scene.stored("cloud") if scene.canary in text] == []
    assert [text for text in [*scene.told, caplog.text.replace(scene.repository, "")] if scene.canary in text] == []
    outcomes = [line.outcome for line in services.ledger.transfers() if line.tier is Tier.CORE]
    assert outcomes == [TransferOutcome.REFUSED] * (len(refused) + 1)


def test_no_share_of_a_sync_takes_a_canary_out_nor_does_its_draft(
    scene: Scene, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG, logger="spillway")
    services, digits = scene.services, scene.services.configuration.datasets["digits"]
    home, cloud = services.site("onprem").datasets, services.site("cloud").datasets
    fresh = [f"digits/{uuid.uuid4().hex}" for _ in range(4)]
    for key in fresh:
        home.put(key, b"open", size_bytes=4)
    try:
        report, shares = divide_dataset(services, digits, "cloud", workers=2, share_bytes=1)
        assert (len(shares), report.objects_withheld) == (2, 1)
        for share in shares:
            assert not scene.do(lambda share=share: copy_dataset_share(services, digits, "cloud", share))  # type: ignore[misc]
        assert not scene.do(lambda: summary(merge_dataset(services, digits, "cloud", shares[0].draft)))
        assert {key for key in fresh if cloud.head(key)} == set(fresh)
        assert [text for text in scene.stored("cloud") if scene.canary in text] == []
        assert [text for text in [*scene.told, caplog.text, *map(str, shares)] if scene.canary in text] == []
        with pytest.raises(ResidencyRefused):
            divide_dataset(services, services.configuration.datasets["faces"], "cloud", workers=2, share_bytes=1)
    finally:
        for store in (home, cloud):
            store.delete(fresh)


def test_no_mover_takes_out_a_canary_that_lacks_its_tag(scene: Scene, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG, logger="spillway")
    services, labelled = scene.services, scene.services.configuration.datasets["labelled"]
    home, cloud = services.site("onprem").datasets, services.site("cloud").datasets
    assert isinstance(home, S3Store)
    tags = {f"{scene.canary}": "", f"{scene.canary}-other": "release=no", "open-1": CLEARED, "open-2": CLEARED}
    for name, tagging in tags.items():
        body = b"open" if tagging == CLEARED else f"content {scene.canary}".encode()
        home._client.put_object(Bucket=DATASET_BUCKET, Key=labelled.prefix + name, Body=body, Tagging=tagging)
    try:
        for wish in ({"dry_run": True}, {"dry_run": False}, {"verify": True}, {"delete": True}):
            assert not scene.do(lambda wish=wish: summary(copy_dataset(services, labelled, "cloud", **wish)))  # type: ignore[misc]
        cloud.delete([labelled.prefix + "open-1", labelled.prefix + "open-2"])
        report, shares = divide_dataset(services, labelled, "cloud", workers=2, verify=True, share_bytes=1)
        assert (len(shares), report.objects_withheld) == (2, 2)
        for share in shares:
            assert not scene.do(lambda share=share: copy_dataset_share(services, labelled, "cloud", share))  # type: ignore[misc]
        assert not scene.do(lambda: summary(merge_dataset(services, labelled, "cloud", shares[0].draft)))
        assert scene.do(lambda: summary(copy_dataset(services, labelled, "cloud", whole=True)))
        assert [cloud.head(f"{labelled.prefix}open-{number}") is not None for number in (1, 2)] == [True, True]
        assert [text for text in scene.stored("onprem") if scene.canary in text], "the search finds what there is"
        assert [text for text in scene.stored("cloud") if scene.canary in text] == []
        assert [text for text in [*scene.told, caplog.text, *map(str, shares)] if scene.canary in text] == []
        lines = [line for line in services.ledger.transfers() if line.outcome is TransferOutcome.REFUSED]
        assert {(line.name, line.tier) for line in lines} == {("labelled", Tier.CORE)}
        assert [line.objects_withheld for line in lines if line.objects_withheld] == [2, 2, 2, 2]
    finally:
        for store in (home, cloud):
            store.delete([labelled.prefix + name for name in tags])


def test_a_mirrored_repository_leaves_the_canaries_tag_at_home(scene: Scene) -> None:
    wanted = MirroredRepository(repository=scene.repository, tier=Tier.PUBLIC)
    report = copy_repository(scene.services, wanted, "cloud")
    assert [(outcome.tag, outcome.fate) for outcome in report.outcomes] == [("v1", TagFate.REFUSED)]
    assert list(scene.services.site("cloud").registry.tags(scene.repository)) == []
    digest = scene.services.site("onprem").registry.resolve(scene.repository, "v1")
    assert digest is not None
    assert scene.services.site("cloud").registry.resolve(scene.repository, digest) is None
    lines = [line for line in scene.services.ledger.transfers() if line.outcome is TransferOutcome.REFUSED]
    assert [(line.tier, line.destination) for line in lines] == [(Tier.CORE, "cloud")]


def test_data_that_may_be_read_from_the_cloud_is_not_stored_there(scene: Scene, make_job: MakeJob) -> None:
    job = make_job(dataset="voices", tier=Tier.CORE)
    assert not scene.do(lambda: stage_datasets(scene.services, job, "cloud", scene.told.append))
    assert scene.do(lambda: summary(copy_dataset(scene.services, scene.services.dataset("voices"), "cloud")))
    assert [text for text in scene.stored("cloud") if scene.canary in text] == []
    assert [text for text in scene.told if scene.canary in text] == []


def test_the_identity_that_reads_what_goes_to_the_cloud_cannot_read_core_data_whoever_asks(scene: Scene) -> None:
    home, cloud = scene.services.site("onprem"), scene.services.site("cloud")
    assert home.public_datasets is not None
    with pytest.raises(AccessDenied):
        home.public_datasets.head(f"faces/{scene.canary}/1")
    past_the_gate = sync_dataset(
        source=home.public_datasets, destination=cloud.datasets, dataset="faces", prefix="faces/"
    )
    assert (past_the_gate.objects_copied, len(past_the_gate.failures)) == (0, 1)
    assert [text for text in scene.stored("cloud") if f"content {scene.canary}" in text] == []
