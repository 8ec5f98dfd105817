"""A dataset with public and core folders: what goes where, and what the transfer log says of the rest."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from spillway.config import Configuration
from spillway.errors import ResidencyRefused, Unreachable
from spillway.ledger import TransferKind, TransferOutcome, ledger_opener
from spillway.model import Cluster, Dataset, DatasetUse, RunPolicy, Tier, TierRule
from spillway.runs.distribution import Route, dataset_routes
from spillway.runs.moving_datasets import copy_dataset
from spillway.runs.services import Services, Site
from spillway.runs.sharing import divide_dataset
from spillway.runs.staging import stage_datasets
from spillway.stores.entries import read_copy
from spillway.sync.manifest import manifest_key, verified_copies
from spillway.testing.builders import NOW, cloud_cluster, dataset, job_spec, onprem_cluster, placement_policy
from spillway.testing.folder_sites import folder_sites
from spillway.testing.ledger_files import new_ledger

CORE, PUBLIC = Tier.CORE, Tier.PUBLIC
MIXED = dataset(tier=CORE, rules=(TierRule(prefix="digits/open/", tier=PUBLIC),))
OPEN = {"digits/open/a": b"1", "digits/open/b": b"22"}
SECRET = {"digits/a": b"core", "digits/opened": b"core"}


@pytest.fixture
def services_of(tmp_path: Path) -> Callable[..., Services]:
    """Two sites whose stores are folders, the second one with some residency; data on premises."""
    url = new_ledger(tmp_path / "ledger.db")

    def make(residency: frozenset[Tier], declared: Dataset = MIXED) -> Services:
        configuration = Configuration(
            clusters={"onprem": onprem_cluster(), "cloud": cloud_cluster(residency=residency)},
            datasets={declared.name: declared},
            policy=placement_policy(),
            runs=RunPolicy(),
        )
        services = Services(
            configuration=configuration,
            open_ledger=ledger_opener(lambda: url),
            open_site=folder_sites(tmp_path),
            image_uses=tuple,
            clock=lambda: NOW,
        )
        for key, body in (OPEN | SECRET).items():
            services.site("onprem").datasets.put(key, body, size_bytes=len(body))
        return services

    return make


def keys(services: Services, site: str) -> set[str]:
    return {entry.key for entry in services.site(site).datasets.list("digits/")}


def lines(services: Services) -> list[tuple[Tier, TransferOutcome, int, str | None]]:
    return [(line.tier, line.outcome, line.size_bytes, line.reason) for line in services.ledger.transfers()]


def test_only_the_public_folder_goes_to_a_public_site_and_the_rest_is_a_counted_refusal(
    services_of: Callable[..., Services],
) -> None:
    services = services_of(frozenset({PUBLIC}))
    assert dataset_routes(services) == (Route(name="digits", site="cloud", tier=PUBLIC),)
    report = copy_dataset(services, MIXED, "cloud")
    assert (report.objects_copied, report.objects_withheld) == (2, 2)
    assert keys(services, "cloud") == set(OPEN)
    assert lines(services) == [
        (
            CORE,
            TransferOutcome.REFUSED,
            0,
            "2 objects of tier 'core' kept at 'onprem', 'cloud' may not store that tier",
        ),
        (PUBLIC, TransferOutcome.COPIED, 3, None),
    ]


def test_all_of_it_goes_to_a_site_that_may_store_core(services_of: Callable[..., Services]) -> None:
    services = services_of(frozenset({CORE}))
    assert dataset_routes(services) == (Route(name="digits", site="cloud", tier=CORE),)
    copy_dataset(services, MIXED, "cloud")
    assert keys(services, "cloud") == {*OPEN, *SECRET}
    assert lines(services) == [(CORE, TransferOutcome.COPIED, 11, None)]


def test_a_job_needs_all_of_its_dataset_and_is_refused_where_a_part_may_not_be(
    services_of: Callable[..., Services],
) -> None:
    services = services_of(frozenset({PUBLIC}))
    with pytest.raises(ResidencyRefused, match=r"dataset 'digits' is of tier 'core'"):
        stage_datasets(services, job_spec(dataset="digits", tier=CORE), "cloud", print)
    assert keys(services, "cloud") == set()


@pytest.mark.parametrize(("residency", "record"), [(CORE, "digits@public"), (PUBLIC, "digits")])
def test_of_a_part_nothing_else_is_brought_whatever_the_site_may_store(
    services_of: Callable[..., Services], residency: Tier, record: str
) -> None:
    services = services_of(frozenset({residency}))
    cloud = services.cluster("cloud")
    named = replace(cloud, object_store=replace(cloud.object_store, public_pod_connection="cloud_store_public_pods"))
    clusters = {**services.configuration.clusters, "cloud": named}
    services = replace(services, configuration=replace(services.configuration, clusters=clusters), _opened={})
    job = job_spec(datasets=(DatasetUse(name="digits", part=PUBLIC),))
    (report,) = stage_datasets(services, job, "cloud", print)
    assert (report.dataset, report.objects_copied, keys(services, "cloud")) == (record, 2, set(OPEN))
    assert dict(verified_copies(services.site("cloud").datasets)) == {record: 3}
    refused = 0 if residency is CORE else 1  # what a site may store and nobody asked for was refused to nobody
    assert [line[1] for line in lines(services)].count(TransferOutcome.REFUSED) == refused


@pytest.mark.parametrize(
    ("record", "part", "change"),
    [
        pytest.param("digits", None, partial(copy_dataset, part=PUBLIC), id="the whole"),
        pytest.param("digits@public", PUBLIC, copy_dataset, id="its part"),
        pytest.param("digits@public", PUBLIC, partial(divide_dataset, workers=2, share_bytes=1), id="by several"),
    ],
)
def test_a_copy_is_not_called_whole_once_another_record_replaced_what_they_share(
    services_of: Callable[..., Services], record: str, part: Tier | None, change: Callable[..., Any]
) -> None:
    services = services_of(frozenset({CORE}))
    home, cloud = (services.site(site).datasets for site in ("onprem", "cloud"))
    copy_dataset(services, MIXED, "cloud", part=part)
    for key in OPEN:
        home.put(key, b"new one", size_bytes=7)
    change(services, MIXED, "cloud")
    assert record not in verified_copies(cloud)
    copy_dataset(services, MIXED, "cloud", part=part)
    assert record in verified_copies(cloud)
    there = {entry.key: entry.etag for entry in cloud.list("digits/")}
    assert {synced.destination_etag == there[key] for key, synced in read_copy(cloud, manifest_key(record))} == {True}


def test_of_a_lost_home_no_copy_of_a_part_is_used_in_which_objects_became_core(
    services_of: Callable[..., Services], monkeypatch: pytest.MonkeyPatch
) -> None:
    job = job_spec(datasets=(DatasetUse(name="digits", part=PUBLIC),))
    before = services_of(frozenset({PUBLIC}))
    before.site("onprem").datasets.put("digits/open/shut/1", b"core by now", size_bytes=11)
    stage_datasets(before, job, "cloud", print)
    shut = replace(MIXED, rules=(*MIXED.rules, TierRule(prefix="digits/open/shut/", tier=CORE)))
    for declared in (MIXED, shut):
        services = services_of(frozenset({PUBLIC}), declared)

        def silent(_prefix: str = "") -> Any:
            raise Unreachable("onprem", "connection refused")

        monkeypatch.setattr(services.site("onprem").datasets, "list", silent)
        if declared is MIXED:
            stage_datasets(services, job, "cloud", print)
        else:
            with pytest.raises(ResidencyRefused, match="1 object of it left public by its rules"):
                stage_datasets(services, job, "cloud", print)
            assert lines(services)[-1][1] is TransferOutcome.REFUSED


def test_a_dry_run_withholds_too_and_writes_no_line(services_of: Callable[..., Services]) -> None:
    services = services_of(frozenset({PUBLIC}))
    report = copy_dataset(services, MIXED, "cloud", dry_run=True)
    assert (report.objects_copied, report.objects_withheld) == (2, 2)
    assert (keys(services, "cloud"), lines(services)) == (set(), [])


def test_a_transfer_that_breaks_off_is_a_line_too(
    services_of: Callable[..., Services], monkeypatch: pytest.MonkeyPatch
) -> None:
    services = services_of(frozenset({PUBLIC}))

    def silent(_prefix: str = "") -> Any:
        raise Unreachable("cloud", "connection refused")

    monkeypatch.setattr(services.site("cloud").datasets, "list", silent)
    with pytest.raises(Unreachable):
        copy_dataset(services, MIXED, "cloud")
    (line,) = services.ledger.transfers()
    assert (line.kind, line.outcome) == (TransferKind.DATASET, TransferOutcome.FAILED)
    assert line.reason == "cloud is unreachable: connection refused"


@pytest.mark.parametrize("tls", [True, False, None])
def test_a_line_says_whether_both_ends_are_encrypted_where_that_is_known(
    services_of: Callable[..., Services], tmp_path: Path, tls: bool | None
) -> None:
    plain = services_of(frozenset({PUBLIC}))
    sites = folder_sites(tmp_path, store_tls=tls, registry_tls=not tls)
    services = replace(plain, open_site=sites, actor="someone@here", _opened={})
    copy_dataset(services, MIXED, "cloud")
    assert {(line.tls, line.actor) for line in services.ledger.transfers()} == {(tls, "someone@here")}


def test_one_end_in_the_clear_is_not_encrypted(services_of: Callable[..., Services], tmp_path: Path) -> None:
    def half(cluster: Cluster) -> Site:
        return folder_sites(tmp_path, store_tls=cluster.name == "cloud")(cluster)

    services = replace(services_of(frozenset({CORE})), open_site=half, _opened={})
    copy_dataset(services, MIXED, "cloud")
    assert [line.tls for line in services.ledger.transfers()] == [False]


def test_the_patterns_of_a_dataset_hold_for_what_is_copied_and_deleted(services_of: Callable[..., Services]) -> None:
    patterned = replace(MIXED, include=("open/*", "a"), exclude=("*/b",))
    services = services_of(frozenset({CORE}), patterned)
    cloud = services.site("cloud").datasets
    for key in ("digits/open/old", "digits/tmp"):
        cloud.put(key, b"x", size_bytes=1)
    copy_dataset(services, patterned, "cloud", delete=True, delete_share_max=1.0)
    assert keys(services, "cloud") == {"digits/open/a", "digits/a", "digits/tmp"}
