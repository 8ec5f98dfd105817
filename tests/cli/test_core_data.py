"""``preflight`` proves that a site without core data stores none, and that who serves it cannot read any."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
import yaml

from spillway.commands.remote_reads import remote_gaps
from spillway.model import ObjectInfo
from spillway.stores.s3 import S3Store
from spillway.testing.command_line import Spillway
from spillway.testing.sandbox_server import Installation

CORE = {"name": "faces", "home": "onprem", "prefix": "faces/", "tier": "core"}
DIGITS = {"name": "digits", "home": "onprem", "prefix": "digits/", "tier": "public"}
KEY = "faces/secret/1"


@pytest.fixture
def core_object(installation: Installation) -> Iterator[None]:
    (installation.config / "datasets.yaml").write_text(yaml.safe_dump({"datasets": [DIGITS, CORE]}))
    store = installation.services().site("onprem").datasets
    store.put(KEY, b"core", size_bytes=4)
    yield
    store.delete([KEY])


def gaps(spillway: Spillway) -> tuple[int, list[tuple[str, str, str]]]:
    answer = spillway("preflight", "--json")
    found = [(gap["cluster"], gap["part"], gap["problem"]) for gap in json.loads(answer.out)]
    return answer.code, [gap for gap in found if not gap[1].endswith("(checkpoints)")]


def test_identities_that_are_refused_core_objects_are_no_gap(core_object: None, spillway: Spillway) -> None:
    assert gaps(spillway) == (0, [])


@pytest.mark.parametrize(
    ("conn_id", "like", "gap"),
    [
        ("onprem_store_public", "onprem_store", ("onprem", "identity of mover to cloud")),
        ("onprem_store_public_pods", "onprem_store_pods", ("onprem", "identity of pods of public parts")),
        ("cloud_store_pods", "onprem_store_pods", ("cloud", "identity of pods")),
        ("cloud_store", "onprem_store", ("cloud", "identity of mover")),
        ("cloud_store_cache", "onprem_store_pods", ("cloud", "identity of pods (cache)")),
    ],
)
def test_an_identity_that_can_read_a_core_object_is_a_gap(
    core_object: None, installation: Installation, spillway: Spillway, conn_id: str, like: str, gap: tuple[str, str]
) -> None:
    written = json.loads(installation.connections.read_text())
    installation.connection(conn_id, login=written[like]["login"], password=written[like]["password"])
    code, found = gaps(spillway)
    assert code == 1
    assert (*gap, f"the identity of Connection '{conn_id}' can read core data of onprem: faces") in found


OPEN_WITH_A_CORE_FOLDER = DIGITS | {"rules": [{"prefix": "secret/", "tier": "core"}]}
ALL_IN_ONE: dict[str, Any] = {
    "name": "digits",
    "home": "onprem",
    "prefix": "",
    "tier": "core",
    "rules": [
        {"prefix": "faces/", "tier": "core"},
        {"prefix": "digits/", "tier": "public"},
        {"prefix": "digits/secret/", "tier": "core"},
    ],
}


@pytest.mark.usefixtures("core_object")
@pytest.mark.parametrize(
    "declared",
    [
        pytest.param([OPEN_WITH_A_CORE_FOLDER], id="alone"),
        pytest.param([CORE, OPEN_WITH_A_CORE_FOLDER], id="beside a dataset that is refused"),
        pytest.param([ALL_IN_ONE], id="beside a folder that is refused"),
    ],
)
def test_each_core_folder_of_each_dataset_is_tried(
    installation: Installation, spillway: Spillway, declared: list[dict[str, Any]]
) -> None:
    (installation.config / "datasets.yaml").write_text(yaml.safe_dump({"datasets": declared}))
    store = installation.services().site("onprem").datasets
    store.put("digits/secret/1", b"core", size_bytes=4)
    try:
        # The sandbox's identity reads all of digits/: rules of a store cannot except a folder there.
        whose = {"onprem_store_public": "mover to cloud", "onprem_store_public_pods": "pods of public parts"}
        may = "the identity of Connection '{}' can read core data of onprem: digits"
        assert gaps(spillway) == (1, [("onprem", f"identity of {who}", may.format(c)) for c, who in whose.items()])
    finally:
        store.delete(["digits/secret/1"])


def test_what_cannot_be_tried_is_said_and_no_failure(installation: Installation, spillway: Spillway) -> None:
    (installation.config / "datasets.yaml").write_text(yaml.safe_dump({"datasets": [DIGITS, CORE]}))
    problem = "not checked who can read core data: there is no object of faces to try with"
    assert gaps(spillway) == (0, [("onprem", "identities", problem)])


def test_a_site_without_an_identity_for_public_data_is_told_what_its_mover_can_read(
    core_object: None, installation: Installation, spillway: Spillway
) -> None:
    file = installation.config / "clusters.yaml"
    written = yaml.safe_load(file.read_text())
    for cluster in written["clusters"]:
        del cluster["object_store"]["public_connection"]
    file.write_text(yaml.safe_dump(written))
    problem = "what goes to cloud is read with Connection 'onprem_store', which can read core data too"
    assert gaps(spillway) == (0, [("onprem", "identities", problem)])


def test_a_copy_of_what_became_core_is_found_where_it_may_not_be(
    installation: Installation, spillway: Spillway
) -> None:
    (installation.config / "datasets.yaml").write_text(yaml.safe_dump({"datasets": [DIGITS]}))
    assert spillway("sync", "digits", "cloud").code == 0
    became = [DIGITS | {"name": "one", "tier": "core", "prefix": "digits/shard-000.csv/"}, DIGITS | {"tier": "core"}]
    (installation.config / "datasets.yaml").write_text(yaml.safe_dump({"datasets": became}))
    code, found = gaps(spillway)
    problem = "it holds 8 core objects of dataset 'digits', which may not be there"
    assert (code, ("cloud", "bucket datasets", problem) in found) == (1, True)
    assert [gap for gap in found if "dataset 'one'" in gap[2]] == []


def test_an_identity_for_public_data_that_cannot_read_any_is_a_gap(
    installation: Installation, spillway: Spillway
) -> None:
    installation.connection("onprem_store_public", password="wrong")
    answer = spillway("preflight", "--json")
    (gap,) = json.loads(answer.out)
    assert (answer.code, gap["cluster"], gap["part"]) == (1, "onprem", "dataset digits (public)")
    assert "Connection 'onprem_store_public'" in gap["fix"]


CLEARED = {"home": "onprem", "rules": [{"tag": {"release": "cleared"}, "tier": "public"}]}


@pytest.mark.parametrize(
    ("prefix", "problem"),
    [
        pytest.param("public/labelled/", None, id="it may"),
        pytest.param("labelled/", "refused the credentials", id="it may not"),
        pytest.param("public/nothing/", "not checked whether tags can be read", id="there is no object"),
    ],
)
def test_whoever_reads_what_goes_to_the_cloud_is_tried_with_the_tags_that_decide_of_it(
    core_object: None, installation: Installation, spillway: Spillway, prefix: str, problem: str | None
) -> None:
    labelled = {"name": "labelled", "prefix": prefix} | CLEARED
    (installation.config / "datasets.yaml").write_text(yaml.safe_dump({"datasets": [DIGITS, CORE, labelled]}))
    store, keys = installation.services().site("onprem").datasets, ["public/labelled/1", "labelled/1"]
    for key in keys:
        store.put(key, b"1", size_bytes=1)
    try:
        code, found = gaps(spillway)
    finally:
        store.delete(keys)
    assert code == (prefix == "labelled/")
    assert [(gap[:2], problem is not None and problem in gap[2]) for gap in found] == (
        [(("onprem", "dataset labelled (tags)"), True)] if problem else []
    )


REMOTE = {"name": "vault", "home": "onprem", "prefix": "remote/vault/", "tier": "core"}


@pytest.fixture
def remote(installation: Installation, core_object: None) -> Iterator[None]:
    """A core dataset that may be read from other sites, beside one that may not."""
    let = REMOTE | {"remote_read": {"connection": "onprem_store_remote"}}
    (installation.config / "datasets.yaml").write_text(yaml.safe_dump({"datasets": [DIGITS, CORE, let]}))
    store = installation.services().site("onprem").datasets
    store.put("remote/vault/1", b"core", size_bytes=4)
    yield
    store.delete(["remote/vault/1"])


@pytest.mark.usefixtures("remote")
def test_an_identity_that_reads_its_remote_dataset_and_no_more_is_no_gap(spillway: Spillway) -> None:
    assert gaps(spillway) == (0, [])


@pytest.mark.usefixtures("remote")
@pytest.mark.parametrize(
    ("like", "problems"),
    [
        pytest.param("onprem_store_pods", ["read core data of dataset 'faces'"], id="reads too much"),
        pytest.param(
            "onprem_store", ["read core data of dataset 'faces'", "write to bucket datasets"], id="writes as well"
        ),
    ],
)
def test_an_identity_for_a_remote_dataset_that_can_do_more_is_a_gap(
    installation: Installation, spillway: Spillway, like: str, problems: list[str]
) -> None:
    written = json.loads(installation.connections.read_text())
    installation.connection("onprem_store_remote", login=written[like]["login"], password=written[like]["password"])
    may = "the identity of Connection 'onprem_store_remote' can"
    assert gaps(spillway) == (1, [("onprem", "dataset vault (remote)", f"{may} {problem}") for problem in problems])


@pytest.mark.usefixtures("remote")
def test_an_identity_that_cannot_read_its_remote_dataset_is_a_gap(
    installation: Installation, spillway: Spillway
) -> None:
    written = json.loads(installation.connections.read_text())["onprem_store_public"]
    installation.connection("onprem_store_remote", login=written["login"], password=written["password"])
    answer = spillway("preflight", "--json")
    (gap,) = [gap for gap in json.loads(answer.out) if gap["checked"]]
    assert (answer.code, gap["part"], "onprem_store_remote" in gap["fix"]) == (1, "dataset vault (remote)", True)


@pytest.mark.usefixtures("remote")
def test_what_is_not_known_of_a_remote_identity_is_told(installation: Installation) -> None:
    services = installation.services()
    services.site("onprem").datasets.delete(["remote/vault/1"])
    (gap,) = remote_gaps(services.dataset("vault"), services.configuration, services.connect)
    unread = (
        "not checked whether the identity of Connection 'onprem_store_remote' can read it: there is no object of it"
    )
    assert (gap.problem, gap.checked) == (unread, False)


@pytest.mark.usefixtures("remote")
def test_an_identity_that_reads_a_dataset_of_another_identity_is_a_gap(installation: Installation) -> None:
    mine = REMOTE | {"remote_read": {"connection": "onprem_store_remote"}}
    other = {"name": "voices", "home": "onprem", "prefix": "remote/voices/", "tier": "core"}
    other |= {"remote_read": {"connection": "onprem_store_pods"}}
    (installation.config / "datasets.yaml").write_text(yaml.safe_dump({"datasets": [mine, other]}))
    services = installation.services()
    store = services.site("onprem").datasets
    store.put("remote/voices/1", b"core", size_bytes=4)
    try:
        found = remote_gaps(services.dataset("vault"), services.configuration, services.connect)
        assert [gap.problem for gap in found] == [
            "the identity of Connection 'onprem_store_remote' can read core data of dataset 'voices'"
        ]
    finally:
        store.delete(["remote/voices/1"])


@pytest.mark.usefixtures("remote")
def test_an_identity_that_writes_among_its_data_only_is_a_gap_and_has_written_nothing(
    installation: Installation, monkeypatch: pytest.MonkeyPatch
) -> None:
    services = installation.services()
    mine, put = services.site("onprem").datasets, S3Store.put

    def put_among_the_data(store: S3Store, key: str, *args: Any, **wanted: Any) -> ObjectInfo:
        return put(mine if key.startswith("remote/vault/") else store, key, *args, **wanted)  # type: ignore[arg-type]

    before = [entry.key for entry in mine.list()]
    monkeypatch.setattr(S3Store, "put", put_among_the_data)
    (gap,) = remote_gaps(services.dataset("vault"), services.configuration, services.connect)
    assert gap.problem == "the identity of Connection 'onprem_store_remote' can write to bucket datasets"
    assert [entry.key for entry in mine.list()] == before
