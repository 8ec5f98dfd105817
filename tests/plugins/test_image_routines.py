"""The mapped tasks of ``sync_images``: a repository that fails, fails alone."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import pytest
from airflow.sdk.exceptions import AirflowFailException

from spillway.codec import encode
from spillway.config import Configuration
from spillway.ledger import ledger_opener, upgrade
from spillway.model import MirroredRepository, RunPolicy, Tier
from spillway.registries.digest import digest_of
from spillway.runs.distribution import Route
from spillway.runs.services import Services
from spillway.testing.builders import cloud_cluster, onprem_cluster, placement_policy
from spillway.testing.folder_sites import folder_sites
from spillway.testing.images import put_image
from spillway_airflow import routines

REPOSITORIES = ("whole", "broken")


def states(**_: object) -> dict[str, dict[str, None]]:
    """The tasks of a DAG run that knows no pools of links."""
    return {"monday": {"repositories": None}}


@pytest.fixture
def services(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Services:
    """Two repositories of one tag each at home."""
    declared = {name: MirroredRepository(repository=name, tier=Tier.PUBLIC) for name in REPOSITORIES}
    configuration = Configuration(
        clusters={"onprem": onprem_cluster(), "cloud": cloud_cluster()},
        datasets={},
        policy=placement_policy(),
        runs=RunPolicy(),
        repositories=declared,
    )
    url = f"sqlite:///{tmp_path / 'ledger.sqlite'}"
    upgrade(url)
    made = Services(
        configuration=configuration,
        open_ledger=ledger_opener(lambda: url),
        open_site=folder_sites(tmp_path),
        image_uses=list,
    )
    for name in REPOSITORIES:
        put_image(made.site("onprem").registry, name, "v1", layer=name.encode())
    monkeypatch.setattr(routines, "worker_services", lambda: made)
    ti = SimpleNamespace(dag_id="sync_images", run_id="monday", task_id="repositories", get_task_states=states)
    context = {"dag": SimpleNamespace(params={}), "dag_run": SimpleNamespace(conf=None), "ti": ti}
    monkeypatch.setattr(routines, "get_current_context", lambda: context)
    return made


def mirror(name: str, *, dry_run: bool = False, verify: bool = False) -> object:
    route = encode(Route(name=name, site="cloud", tier=Tier.PUBLIC))
    return routines.run_repository_route(route, dry_run=dry_run, verify=verify, say=lambda *words: None)


@pytest.mark.usefixtures("services")
def test_every_declared_repository_has_a_task_for_each_of_its_sites() -> None:
    assert [(route["name"], route["site"]) for route in routines.find_repository_routes(None)] == [
        ("broken", "cloud"),
        ("whole", "cloud"),
    ]


def test_a_repository_with_a_broken_tag_fails_its_own_task_by_name(services: Services, tmp_path: Path) -> None:
    lost = digest_of(b"broken")
    (tmp_path / "onprem/images/broken/blobs/sha256" / lost.removeprefix("sha256:")).unlink()
    with pytest.raises(AirflowFailException, match=f"1 tag of repository 'broken' not at .*v1: .*{lost}"):
        mirror("broken")
    found = mirror("whole")
    assert isinstance(found, dict)
    assert (found["tags_copied"], found["failures"]) == (1, [])
    assert services.site("cloud").registry.tags("whole") == ("v1",)


@pytest.mark.usefixtures("services")
def test_a_verification_brings_a_layer_that_the_site_has_lost(tmp_path: Path) -> None:
    mirror("whole")
    (tmp_path / "cloud/images/whole/blobs/sha256" / digest_of(b"whole").removeprefix("sha256:")).unlink()
    unseen, found = mirror("whole"), mirror("whole", verify=True)
    assert isinstance(unseen, dict) and isinstance(found, dict)
    assert (unseen["tags_copied"], found["tags_copied"]) == (0, 1)


def test_a_dry_run_moves_nothing(services: Services) -> None:
    mirror("whole", dry_run=True)
    assert services.site("cloud").registry.tags("whole") == ()
