"""``preflight`` tries what the identity of a remote read may do with checkpoints: those of its jobs, and no others."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import pytest
import yaml

from spillway.commands.remote_checkpoints import checkpoint_gaps
from spillway.commands.rights import PROBE
from spillway.errors import AccessDenied
from spillway.model import ImageUse, Tier
from spillway.preflight import Gap
from spillway.runs.services import Services
from spillway.stores.s3 import S3Store
from spillway.testing.command_line import Spillway
from spillway.testing.sandbox_server import Installation

DIGITS = {"name": "digits", "home": "onprem", "prefix": "digits/", "tier": "public"}
REMOTE = {"home": "onprem", "tier": "core", "remote_read": {"connection": "onprem_store_remote"}}
VAULT = REMOTE | {"name": "vault", "prefix": "remote/vault/"}
ALL = "list, read, overwrite, delete"


@pytest.fixture(autouse=True)
def vault(installation: Installation) -> Iterator[None]:
    """A core dataset that may be read from other sites; nothing that was tried is left at its home."""
    (installation.config / "datasets.yaml").write_text(yaml.safe_dump({"datasets": [DIGITS, VAULT]}))
    store = installation.services().site("onprem").checkpoints
    yield
    assert [entry.key for entry in store.list() if entry.size_bytes == len(PROBE)] == []


def uses(**datasets: str | None) -> list[ImageUse]:
    """Jobs by name, with underscores for dashes, and the datasets that they train on."""
    return [
        ImageUse(job=job.replace("_", "-"), image="train:v1", tier=Tier.CORE, dataset=dataset)
        for job, dataset in datasets.items()
    ]


def gaps(services: Services, jobs: Iterable[ImageUse]) -> list[Gap]:
    return list(checkpoint_gaps(services.configuration, list(jobs), services.connect))


def told(found: Iterable[Gap]) -> list[tuple[str, bool]]:
    who = "the identity of Connection 'onprem_store_remote' "
    return [(gap.problem.removeprefix(who), gap.checked) for gap in found]


def become(installation: Installation, like: str) -> None:
    written = json.loads(installation.connections.read_text())[like]
    installation.connection("onprem_store_remote", login=written["login"], password=written["password"])


def test_an_identity_that_is_limited_to_the_checkpoints_of_its_jobs_is_no_gap(services: Services) -> None:
    long = "remote_vault_with_a_name_that_no_run_has_room_for"
    assert gaps(services, uses(remote_vault="vault", **{long: "vault"}, digits="digits", alone=None)) == []


@pytest.mark.parametrize(
    ("like", "problem"),
    [
        pytest.param("onprem_store_pods", f"can {ALL} checkpoints of every run at onprem", id="all of them"),
        pytest.param(
            "onprem_store_public",
            "cannot read, overwrite checkpoints of job 'remote-vault': its launches elsewhere would fail once they "
            "hold GPUs",
            id="none",
        ),
    ],
)
def test_an_identity_that_may_use_all_checkpoints_or_none_is_a_gap(
    installation: Installation, like: str, problem: str
) -> None:
    become(installation, like)
    (gap,) = gaps(installation.services(), uses(remote_vault="vault", digits="digits"))
    assert (told([gap]), gap.cluster, gap.part) == ([(problem, True)], "onprem", "dataset vault (checkpoints)")
    assert "keys of bucket checkpoints that begin with 'remote-vault-'" in gap.fix


def test_a_job_of_other_data_whose_runs_begin_like_those_of_the_identity_is_a_gap(services: Services) -> None:
    (gap,) = gaps(services, uses(remote_vault="vault", remote_open="digits", digits="digits"))
    assert told([gap]) == [(f"can {ALL} checkpoints of job 'remote-open'", True)]
    assert gap.fix.endswith("rename job 'remote-open' where its runs begin so too")


def test_datasets_that_name_one_identity_share_its_jobs(installation: Installation) -> None:
    both = [VAULT, REMOTE | {"name": "voices", "prefix": "remote/voices/"}]
    (installation.config / "datasets.yaml").write_text(yaml.safe_dump({"datasets": both}))
    assert gaps(installation.services(), uses(remote_vault="vault", remote_voices="voices")) == []


def test_without_a_job_of_its_own_it_is_told_what_was_not_tried(services: Services) -> None:
    problem = "was not tried with checkpoints of its own jobs: no job file names vault"
    assert told(gaps(services, uses(digits="digits"))) == [(problem, False)]


@pytest.mark.parametrize("may", ["list every run", "not tell an absent one"])
def test_what_a_store_tells_by_listing_or_hides_is_told(
    services: Services, monkeypatch: pytest.MonkeyPatch, may: str
) -> None:
    def refuse(store: S3Store, *_: Any) -> None:
        raise AccessDenied(store.name, "403", fix="allow it")

    if may == "list every run":
        mine = services.site("onprem").checkpoints
        listing = S3Store.list
        monkeypatch.setattr(S3Store, "list", lambda _, prefix="": listing(mine, prefix))  # type: ignore[arg-type]
        expected = ("can list the checkpoints of every run at onprem: their names, not what is in them", False)
    else:
        monkeypatch.setattr(S3Store, "head", refuse)
        told_so = "is not told that a checkpoint of job 'remote-vault' is not there, but refused: its pods would fail"
        expected = (told_so, True)
    assert told(gaps(services, uses(remote_vault="vault"))) == [expected]


def test_a_store_that_cannot_be_asked_is_a_gap(installation: Installation) -> None:
    file = installation.config / "clusters.yaml"
    file.write_text(file.read_text().replace("checkpoint_bucket: checkpoints", "checkpoint_bucket: nowhere", 1))
    (gap,) = gaps(installation.services(), uses(remote_vault="vault"))
    assert "could not be tried: bucket 'nowhere' is not in" in gap.problem


def test_preflight_tries_the_jobs_of_the_job_files(
    spillway: Spillway, change_job: Callable[..., None], installation: Installation
) -> None:
    change_job(dataset="vault")
    answer = spillway("preflight", "--json")
    problems = [gap["problem"] for gap in json.loads(answer.out) if gap["part"] == "dataset vault (checkpoints)"]
    assert answer.code == 1
    assert len(problems) == 1 and "cannot read, overwrite checkpoints of job 'quick-" in problems[0]
