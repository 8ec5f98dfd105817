"""Preflight of stores and registries: what each refuses or ignores is found by trying, and nothing is left behind."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from spillway.model import ObjectInfo
from spillway.preflight import SiteAccess, preflight
from spillway.registries.http import HttpRegistry
from spillway.stores.local import LocalStore
from spillway.stores.s3 import open_store
from spillway.testing import scripted_http
from spillway.testing.preflighted import the_gap, whole_site
from spillway.testing.registry_server import RegistryServer
from spillway.testing.s3_server import S3Server
from spillway.testing.scripted_http import ScriptedServer


@pytest.fixture
def site(tmp_path: Path) -> SiteAccess:
    return whole_site(tmp_path)


class StoreWithoutConditions(LocalStore):
    """A store that takes the conditions of a write and ignores them, as some do."""

    def put(self, key: str, body: bytes | Iterable[bytes], **fields: Any) -> ObjectInfo:
        return super().put(key, body, **(fields | {"if_absent": False, "if_match": None}))


class StoreWithoutDeletes(LocalStore):
    """A store that refuses every delete."""

    def delete(self, keys: Iterable[str]) -> Mapping[str, str]:
        return dict.fromkeys(keys, "AccessDenied")


@pytest.fixture
def scripted_registry() -> Iterator[ScriptedServer]:
    server = ScriptedServer()
    yield server
    server.close()


def test_a_store_that_ignores_conditions_is_found_by_trying(site: SiteAccess, tmp_path: Path) -> None:
    store = StoreWithoutConditions(tmp_path / "checkpoints")
    gaps = preflight([replace(site, checkpoints=store)])
    assert [(gap.part, gap.problem) for gap in gaps] == [
        ("bucket checkpoints", f"{store.name} ignores the condition If-None-Match of a write"),
        ("bucket checkpoints", f"{store.name} ignores the condition If-Match of a write"),
    ]
    assert list(store.list()) == []


@pytest.mark.parametrize("synced", [True, False])
def test_conditions_are_tried_where_datasets_are_copied_to_and_nowhere_else(
    site: SiteAccess, tmp_path: Path, synced: bool
) -> None:
    store = StoreWithoutConditions(tmp_path / "datasets")
    gaps = preflight([replace(site, datasets=store, synced=synced)])
    assert [gap.part for gap in gaps] == ["bucket datasets"] * 2 * synced
    assert all("put an older version in the place of a newer one" in gap.fix for gap in gaps)
    assert list(store.list()) == []


def test_a_store_that_keeps_everything_for_ever_is_a_gap(site: SiteAccess, tmp_path: Path) -> None:
    gap = the_gap(replace(site, checkpoints=StoreWithoutDeletes(tmp_path / "checkpoints")))
    assert gap.problem.endswith("be deleted: AccessDenied")


def test_a_real_store_and_registry_have_no_gaps(
    site: SiteAccess, s3_server: S3Server, registries: Mapping[str, RegistryServer]
) -> None:
    checkpoints = s3_server.store()
    registry = registries["onprem"].client()
    assert preflight([replace(site, datasets=s3_server.store(), checkpoints=checkpoints, registry=registry)]) == ()
    assert list(checkpoints.list()) == []


def test_a_registry_that_is_pushed_to_keeps_nothing_of_the_question(
    site: SiteAccess, registries: Mapping[str, RegistryServer]
) -> None:
    server = registries["cloud"]
    assert preflight([replace(site, registry=server.client(prefix="pushed"), mirrored=True)]) == ()
    uploads = server.state_dir / "images/docker/registry/v2/repositories/pushed/spillway/preflight/_uploads"
    assert len(list(uploads.iterdir())) == 1, "no upload was tried"
    assert list(uploads.rglob("startedat")) == [], "the upload is still open"


@pytest.mark.parametrize(
    ("status", "checked", "said"),
    [(403, True, "refused the credentials"), (404, False, "repository 'mirror/spillway/preflight' is not in")],
    ids=["may only pull", "makes no repositories"],
)
def test_a_registry_that_cannot_be_pushed_to_is_told_before_the_first_mirror(
    site: SiteAccess, scripted_registry: ScriptedServer, status: int, checked: bool, said: str
) -> None:
    scripted_registry.script = lambda call: scripted_http.Answer(
        status=404 if call.method == "GET" else status, body=b"{}"
    )
    registry = HttpRegistry(
        name="cloud", url=scripted_registry.url, username="mover", password="right", prefix="mirror"
    )
    gap = the_gap(replace(site, registry=registry, mirrored=True))
    assert (gap.part, gap.checked) == ("registry", checked)
    assert said in gap.problem
    assert "Connection 'onprem_registry' push" in gap.fix
    assert preflight([replace(site, registry=registry)]) == (), "it is only pulled from"


def test_missing_buckets_and_wrong_passwords_are_gaps(
    site: SiteAccess, s3_server: S3Server, registries: Mapping[str, RegistryServer]
) -> None:
    forged = open_store(
        name="onprem",
        bucket=s3_server.new_bucket(),
        endpoint_url=s3_server.endpoint_url,
        region=s3_server.region,
        access_key=s3_server.admin.access_key,
        secret_key="wrong",
        credentials="Connection 'onprem_store'",
    )
    gaps = preflight(
        [
            replace(
                site,
                datasets=s3_server.open("not-there-yet"),
                checkpoints=forged,
                registry=HttpRegistry(name="onprem", url=registries["onprem"].url, username="mover", password="wrong"),
            )
        ]
    )
    assert not any(gap.fix in gap.problem for gap in gaps), "nothing is said twice"
    assert [(gap.part, gap.fix) for gap in gaps] == [
        (
            "bucket datasets",
            "create the bucket, or correct its name in clusters.yaml (Connection 'onprem_store' was accepted)",
        ),
        (
            "bucket checkpoints",
            "check the access key and the secret key of Connection 'onprem_store', and what its identity may do",
        ),
        ("registry", "check login 'mover' and its password in its Connection (its Connection 'onprem_registry')"),
    ]
