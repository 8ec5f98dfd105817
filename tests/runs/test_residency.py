"""Where data of a tier may be stored: one rule, whoever asks, and every refusal on record."""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import pytest

from spillway.config import Configuration, load_image_uses
from spillway.errors import ConfigError, ResidencyRefused
from spillway.ledger import Ledger, TransferKind, TransferOutcome, open_ledger, upgrade
from spillway.model import Billing, DatasetUse, JobSpec, RunPolicy, Tier
from spillway.placement.policy import place
from spillway.registries.base import Manifest
from spillway.registries.digest import digest_of
from spillway.runs.distribution import dataset_routes, image_routes
from spillway.runs.moving_checkpoints import copy_checkpoints
from spillway.runs.moving_datasets import copy_dataset
from spillway.runs.moving_images import copy_image
from spillway.runs.planning import plan_image
from spillway.runs.replicating import replica_sites
from spillway.runs.residency import core_images, image_users
from spillway.runs.services import Services
from spillway.testing.builders import (
    NOW,
    attempt,
    candidate,
    cloud_cluster,
    cluster_state,
    dataset,
    image_use,
    job_spec,
    onprem_cluster,
    placement_policy,
    snapshot,
)
from spillway.testing.folder_sites import folder_sites
from spillway.testing.images import put_image

CORE, PUBLIC = Tier.CORE, Tier.PUBLIC
MAY_HOLD = {
    (CORE, frozenset[Tier]()): False,
    (CORE, frozenset({PUBLIC})): False,
    (CORE, frozenset({CORE})): True,
    (CORE, frozenset({CORE, PUBLIC})): True,
    (PUBLIC, frozenset[Tier]()): False,
    (PUBLIC, frozenset({PUBLIC})): True,
    (PUBLIC, frozenset({CORE})): True,
    (PUBLIC, frozenset({CORE, PUBLIC})): True,
}


@pytest.fixture(scope="module")
def ledger(tmp_path_factory: pytest.TempPathFactory) -> Ledger:
    url = f"sqlite:///{tmp_path_factory.mktemp('ledger')}/ledger.db"
    upgrade(url)
    return open_ledger(url)


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """Work of a tier, whose data and image are on premises, and a site with the residency of the case."""

    services: Services
    tier: Tier
    run: str

    @property
    def job(self) -> JobSpec:
        return job_spec(tier=self.tier, image="train:v1")

    def refused(self, act: Callable[[], object]) -> bool:
        try:
            act()
        except ResidencyRefused:
            return True
        return False


@pytest.fixture
def make_case(tmp_path: Path, ledger: Ledger) -> Callable[..., Case]:
    """Sites whose stores and registries are folders."""
    numbers = itertools.count(1)

    def make(tier: Tier, residency: frozenset[Tier]) -> Case:
        clusters = {"onprem": onprem_cluster(), "cloud": cloud_cluster(residency=residency)}
        configuration = Configuration(
            clusters=clusters,
            datasets={"digits": dataset(tier=tier)},
            policy=placement_policy(),
            runs=RunPolicy(),
        )
        services = Services(
            configuration=configuration,
            open_ledger=lambda: ledger,
            open_site=folder_sites(tmp_path),
            image_uses=lambda: [image_use(job_spec(tier=tier, image="train:v1"))],
            clock=lambda: NOW,
        )
        put_image(services.site("onprem").registry, "train", "v1")
        services.site("onprem").datasets.put("digits/a", b"1", size_bytes=1)
        return Case(services=services, tier=tier, run=f"digits-{tmp_path.name}-{next(numbers)}")

    return make


def placement(case: Case) -> bool:
    states = (cluster_state(cluster) for cluster in case.services.configuration.clusters.values())
    there = candidate(cluster="cloud", pool="h100", billing=Billing.ON_DEMAND)
    verdicts = place(case.job, snapshot(*states), placement_policy()).verdicts
    (verdict,) = (verdict for verdict in verdicts if verdict.candidate == there)
    return "residency" not in {rejection.rule for rejection in verdict.rejections}


def dataset_copy(case: Case) -> bool:
    digits = case.services.dataset("digits")
    return not case.refused(lambda: copy_dataset(case.services, digits, "cloud", run=case.run))


def image_copy(case: Case) -> bool:
    return not case.refused(lambda: copy_image(case.services, "train", "v1", "cloud", tier=case.tier, run=case.run))


def image_plan(case: Case) -> bool:
    return not case.refused(lambda: plan_image(case.services, "train:v1", "cloud", tier=case.tier))


def checkpoint_stores(case: Case) -> bool:
    case.services.ledger.open_run(case.run, case.job, {}, NOW)
    return "cloud" in case.services.checkpoint_stores(case.run)


ASKED: dict[str, Callable[[Case], bool]] = {
    "the cluster": lambda case: case.services.configuration.clusters["cloud"].may_hold(case.tier),
    "placement": placement,
    "copy of a dataset": dataset_copy,
    "copy of an image": image_copy,
    "plan of an image": image_plan,
    "routes of datasets": lambda case: [route.site for route in dataset_routes(case.services)] == ["cloud"],
    "routes of images": lambda case: [route.site for route in image_routes(case.services)] == ["cloud"],
    "replicas of checkpoints": lambda case: replica_sites(case.services, attempt(job=case.job)) == ("cloud",),
    "checkpoints of a run": checkpoint_stores,
}


def test_what_a_run_makes_is_core_once_its_data_is_though_it_was_public_when_the_run_was_asked_for(
    make_case: Callable[..., Case],
) -> None:
    case = make_case(PUBLIC, frozenset({PUBLIC}))
    asked_for = attempt(job=replace(case.job, datasets=(DatasetUse(name="digits"),)))
    assert replica_sites(case.services, asked_for) == ("cloud",)
    core = replace(case.services.configuration, datasets={"digits": dataset(tier=CORE)})
    later = replace(case.services, configuration=core)
    assert replica_sites(later, asked_for) == ()
    with pytest.raises(ResidencyRefused, match="checkpoint 'digits-7f3a' is of tier 'core'"):
        copy_checkpoints(later, asked_for, "onprem", "cloud", print)


@pytest.mark.parametrize("ask", ASKED.values(), ids=ASKED)
@pytest.mark.parametrize(
    ("tier", "residency", "allowed"),
    [
        pytest.param(*given, allowed, id=f"{given[0]} at a site of {'+'.join(sorted(given[1])) or 'nothing'}")
        for given, allowed in MAY_HOLD.items()
    ],
)
def test_everybody_answers_alike(
    make_case: Callable[..., Case], ask: Callable[[Case], bool], tier: Tier, residency: frozenset[Tier], allowed: bool
) -> None:
    assert ask(make_case(tier, residency)) is allowed


@pytest.mark.parametrize(
    ("copy", "kind", "name", "fix"),
    [
        pytest.param(
            dataset_copy,
            TransferKind.DATASET,
            "digits",
            "its owner can declare another tier in datasets.yaml",
            id="dataset",
        ),
        pytest.param(
            image_copy,
            TransferKind.IMAGE,
            "train:v1",
            "declare another tier in the job file that uses it, or with --tier where none does",
            id="image",
        ),
    ],
)
def test_a_refusal_is_a_line_of_the_transfer_log_and_nothing_was_stored(
    make_case: Callable[..., Case], copy: Callable[[Case], bool], kind: TransferKind, name: str, fix: str
) -> None:
    case = make_case(CORE, frozenset({PUBLIC}))
    assert not copy(case)
    (line,) = case.services.ledger.transfers(case.run)
    assert (line.kind, line.name, line.tier) == (kind, name, CORE)
    assert (line.source, line.destination, line.size_bytes) == ("onprem", "cloud", 0)
    assert line.outcome is TransferOutcome.REFUSED
    assert line.reason == (
        f"{kind} '{name}' is of tier 'core' and may not be stored at 'cloud' (its home is 'onprem'); {fix}"
    )
    cloud = case.services.site("cloud")
    assert (list(cloud.datasets.list()), cloud.registry.tags("train")) == ([], ())


def test_an_image_is_of_the_tier_of_every_job_that_uses_its_bytes_by_whatever_name(
    make_case: Callable[..., Case],
) -> None:
    services = make_case(PUBLIC, frozenset({PUBLIC})).services
    registry = services.site("onprem").registry
    digest = registry.resolve("train", "v1")
    registry.put_manifest("train", "latest", registry.manifest("train", "v1"))
    names = ["train:v1", "train:latest", f"train@{digest}"]
    core, public = job_spec(name="core", image="train:latest", tier=CORE), job_spec(image="train:v1", tier=PUBLIC)
    mixed = replace(services, image_uses=lambda: [image_use(core), image_use(public)])
    why = (
        "job 'core' of core data uses it; give the other job an image of its own (another tag is the same bytes), "
        "or run it where core may be stored"
    )
    assert core_images(mixed, names) == dict.fromkeys(names, why)
    assert image_routes(mixed) == ()
    for image in names:
        with pytest.raises(ResidencyRefused, match=re.escape(f"(its home is 'onprem'); {why}")):
            copy_image(mixed, *re.split("[:@]", image, maxsplit=1), "cloud", tier=PUBLIC)
    assert services.site("cloud").registry.tags("train") == ()
    apart = replace(services, image_uses=lambda: [image_use(public)])
    assert core_images(apart, names) == {}
    assert image_users(apart, ["train:latest", "train:other"], [public]) == {
        "train:latest": (public,),
        "train:other": (),
    }


def test_while_a_job_file_cannot_be_read_at_all_every_image_counts_as_core(
    make_case: Callable[..., Case], tmp_path: Path
) -> None:
    case = make_case(PUBLIC, frozenset({PUBLIC}))
    (tmp_path / "jobs").mkdir()
    (tmp_path / "jobs" / "broken.yaml").write_text("name: [")
    broken = replace(case, services=replace(case.services, image_uses=partial(load_image_uses, tmp_path / "jobs", {})))
    with pytest.raises(ResidencyRefused, match=r"until this is repaired: broken.yaml: line 1"):
        copy_image(broken.services, "train", "v1", "cloud", tier=PUBLIC)
    with pytest.raises(ConfigError, match=r"broken.yaml"):
        image_routes(broken.services)
    nowhere = replace(
        case, services=replace(case.services, image_uses=partial(load_image_uses, tmp_path / "nowhere", {}))
    )
    assert not image_copy(nowhere)
    (tmp_path / "jobs" / "broken.yaml").unlink()
    assert image_copy(broken)


SAYS_SO = "job 'broken' of core data uses it; "
SAYS_NOTHING = (
    "job 'broken' uses it, and its job file broken.yaml says neither `tier:` nor a declared dataset, so its data "
    "counts as core; add the line `tier: public` to it if none of its data is core, `tier: core` otherwise"
)

MISTAKEN = "job 'broken' uses it, and its job file broken.yaml has a mistake, so its data counts as core: "


@pytest.mark.parametrize(
    ("says", "why"),
    [
        ("dataset: digits", None),
        ("dataset: secrets", SAYS_SO),
        (
            "dataset: digit",
            f"{MISTAKEN}unknown dataset 'digit'; known: digits, secrets. Did you mean 'digits'?; correct it",
        ),
        (
            "datasets: [digits, unheard-of]",
            f"{MISTAKEN}unknown dataset 'unheard-of'; known: digits, secrets; correct it",
        ),
        ("dataset: digits\nimage_tier: publik\ndepartment: vision", MISTAKEN),
        ("tier: public", None),
        ("tier: core", SAYS_SO),
        ("tier: publik", SAYS_NOTHING),
        ("", SAYS_NOTHING),
    ],
)
def test_a_job_file_with_a_mistake_counts_with_the_image_and_the_tier_that_it_says(
    says: str, why: str | None, make_case: Callable[..., Case], tmp_path: Path
) -> None:
    case = make_case(PUBLIC, frozenset({PUBLIC}))
    (tmp_path / "broken.yaml").write_text(f"name: broken\nimage: train:v1\ngpus_per_node: 0\n{says}\n")
    datasets = {name: dataset(name=name, tier=tier) for name, tier in (("digits", PUBLIC), ("secrets", CORE))}
    services = replace(case.services, image_uses=partial(load_image_uses, tmp_path, datasets))
    found = core_images(services, ["train:v1", "other:v1"])
    assert set(found) == ({"train:v1"} if why else set())
    assert why is None or found["train:v1"].startswith(why)


USERS = (("does-not-say", "does-not-say.yaml"), ("says-so", None))


def test_an_image_is_core_for_a_job_that_says_so_before_one_that_does_not_say(make_case: Callable[..., Case]) -> None:
    uses = [replace(image_use(job_spec(name=name, tier=CORE)), unclear_in=file) for name, file in USERS]
    services = replace(make_case(PUBLIC, frozenset({PUBLIC})).services, image_uses=lambda: uses)
    assert core_images(services, ["train:v1"])["train:v1"].startswith("job 'says-so' of core data uses it")


def test_an_image_of_which_only_the_manifest_was_missing_is_recorded_as_copied(make_case: Callable[..., Case]) -> None:
    case = make_case(PUBLIC, frozenset({PUBLIC}))
    assert image_copy(case)
    home = case.services.site("onprem").registry
    first = home.manifest("train", "v1")
    body = first.body + b"\n"
    home.put_manifest("train", "v2", Manifest(digest=digest_of(body), media_type=first.media_type, body=body))
    copy_image(case.services, "train", "v2", "cloud", tier=PUBLIC, run=case.run)
    copy_image(case.services, "train", "v2", "cloud", tier=PUBLIC, run=case.run)
    lines = [(line.name, line.size_bytes, line.outcome) for line in case.services.ledger.transfers(case.run)[1:]]
    name = f"train@{digest_of(body)}"
    assert lines == [(name, 0, TransferOutcome.COPIED), (name, 0, TransferOutcome.UNCHANGED)]
