"""A restore to files whose newest step turns out to be damaged, or whose site falls silent, on the way."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from spillway.checkpoints.layout import part_key
from spillway.checkpoints.replicate import replicate
from spillway.checkpoints.store import CheckpointStore
from spillway.config import Configuration
from spillway.errors import ConfigError, NoValidCheckpoint
from spillway.ledger import ledger_opener
from spillway.model import Cluster, RunPolicy
from spillway.runs.restoring import restore_run
from spillway.runs.services import Services, Site
from spillway.testing.builders import cloud_cluster, onprem_cluster, placement_policy
from spillway.testing.checkpoints import WatchedStore, commit_step
from spillway.testing.folder_sites import folder_sites
from spillway.testing.ledger_files import new_ledger
from spillway.testing.ledger_values import reserved

RUN = "digits-1"


@pytest.fixture
def watched() -> dict[str, WatchedStore]:
    """The checkpoint stores of the sites, by name."""
    return {}


@pytest.fixture
def services(tmp_path: Path, watched: dict[str, WatchedStore]) -> Services:
    """Two sites with the steps 10 and 20, each with a folder of its own as frameworks write them."""

    def open_site(cluster: Cluster) -> Site:
        site = folder_sites(tmp_path / "sites")(cluster)
        return replace(site, checkpoints=watched.setdefault(cluster.name, WatchedStore(site.checkpoints)))

    url = new_ledger(tmp_path / "ledger.db")
    clusters = {"onprem": onprem_cluster(), "cloud": cloud_cluster()}
    made = Services(
        configuration=Configuration(clusters=clusters, datasets={}, policy=placement_policy(), runs=RunPolicy()),
        open_ledger=ledger_opener(lambda: url),
        open_site=open_site,
        image_uses=tuple,
    )
    reserved(made.ledger, RUN)
    here, there = (CheckpointStore(made.site(site).checkpoints, RUN) for site in clusters)
    here.fence(1)
    for step in (10, 20):
        commit_step(here, step, parts={f"step{step}/model": f"model {step}".encode(), "latest": f"{step}".encode()})
    replicate(here, there)
    return made


def damage(services: Services, site: str, name: str, *, step: int = 20) -> None:
    checkpoints = CheckpointStore(services.site(site).checkpoints, RUN)
    manifest = next(manifest for manifest in checkpoints.manifests() if manifest.step == step)
    (part,) = (part for part in manifest.parts if part.name == name)
    checkpoints.store.put(part_key(RUN, part.sha256), b"#" * part.size_bytes, size_bytes=part.size_bytes)


def written(folder: Path) -> dict[str, str]:
    """Files with their contents, and folders with none."""
    return {
        path.relative_to(folder).as_posix(): path.read_text() if path.is_file() else ""
        for path in folder.rglob("*")
        if path.is_file() or not any(path.iterdir())
    }


@pytest.mark.parametrize("part", ["latest", "step20/model"])
def test_what_a_damaged_step_had_written_makes_room_for_the_older_one(
    services: Services, tmp_path: Path, part: str
) -> None:
    for site in ("onprem", "cloud"):
        damage(services, site, part)
    done = restore_run(services, RUN, tmp_path / "out")
    assert (done.step, len(done.rejected)) == (10, 2)
    assert written(tmp_path / "out") == {"step10/model": "model 10", "latest": "10"}


def test_the_same_step_is_completed_from_another_site(services: Services, tmp_path: Path) -> None:
    damage(services, "onprem", "latest")
    done = restore_run(services, RUN, tmp_path / "out")
    assert (done.step, done.site, len(done.rejected)) == (20, "cloud", 1)
    assert written(tmp_path / "out") == {"step20/model": "model 20", "latest": "20"}


def test_where_no_step_is_valid_nothing_is_left_but_what_was_there(services: Services, tmp_path: Path) -> None:
    for site in ("onprem", "cloud"):
        for step in (10, 20):
            damage(services, site, "latest", step=step)
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "latest").write_text("mine")
    with pytest.raises(NoValidCheckpoint, match=r"step 20 of attempt 1.*step 10 of attempt 1"):
        restore_run(services, RUN, tmp_path / "out")
    assert written(tmp_path / "out") == {"latest": "mine"}


def test_a_site_that_falls_silent_is_left_out_and_what_it_gave_is_kept(
    services: Services, watched: dict[str, WatchedStore], tmp_path: Path
) -> None:
    watched["onprem"].unreadable = lambda key: "/parts/" in key
    done = restore_run(services, RUN, tmp_path / "out")
    assert (done.step, done.site, len(done.rejected)) == (20, "cloud", 1)
    watched["cloud"].unreadable = lambda key: "/parts/" in key
    (tmp_path / "out" / "latest").unlink()
    with pytest.raises(NoValidCheckpoint, match=r"onprem: .* is unreachable.*cloud: .* is unreachable"):
        restore_run(services, RUN, tmp_path / "out")
    assert written(tmp_path / "out") == {"step20/model": "model 20"}


def test_files_of_a_damaged_step_that_another_call_wrote_are_named_with_the_reason(
    services: Services, tmp_path: Path
) -> None:
    restore_run(services, RUN, tmp_path / "out")
    for site in ("onprem", "cloud"):
        damage(services, site, "latest")
    (tmp_path / "out" / "latest").unlink()
    with pytest.raises(ConfigError, match="earlier restore of step 10, it holds 'step20/model'; not used: onprem: "):
        restore_run(services, RUN, tmp_path / "out")
    assert written(tmp_path / "out") == {"step20/model": "model 20"}
