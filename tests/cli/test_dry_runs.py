"""``--dry-run`` of every command that has it: whatever it prints, nothing is other than before, to the byte."""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from spillway.__main__ import COMMANDS, parser
from spillway.runs.services import Services
from spillway.runs.sites import bucket
from spillway.stores.base import ObjectStore
from spillway.testing.command_line import RunWithSteps, Spillway
from spillway.testing.sandbox_server import Installation

IMAGE = "train:numpy2.4.6-py3.11"
FIRST_WORDS = 2
"""No command is a group of groups."""


def words_by_command(run: str, folder: Path) -> Mapping[str, tuple[str, ...]]:
    """What each command is asked to do, all of it possible."""
    return {
        "sync": ("digits", "cloud"),
        "images sync": (IMAGE, "cloud", "--tier", "public"),
        "checkpoints replicate": (run,),
        "checkpoints restore": (run, str(folder / "restored")),
        "checkpoints prune": (run, "--last", "1"),
        "cache purge": ("cloud",),
        "costs report": ("--into", str(folder / "reports")),
        "costs correct": (run, "--price", "1", "--reason", "the bill says so"),
        "history export": (str(folder / "jobs.csv"),),
        "history import": (str(folder.parent / "jobs.csv"), "--source", "slurm"),
        "ledger upgrade": (),
        "runs start": ("quick",),
        "runs cancel": (run,),
        "runs sweep": (),
        "runs migrate": (run, "cloud"),
        "scale add": ("cloud/gpu", "1"),
    }


def commands_with_a_dry_run() -> set[str]:
    return {" ".join(path) for name in COMMANDS for path in _with_a_dry_run(parser((name,)), ()) if path[0] == name}


def _with_a_dry_run(words: argparse.ArgumentParser, path: tuple[str, ...]) -> Iterator[tuple[str, ...]]:
    if any("--dry-run" in action.option_strings for action in words._actions):
        yield path
    for action in words._actions:
        if isinstance(action, argparse._SubParsersAction) and len(path) < FIRST_WORDS:
            for name, below in action.choices.items():
                yield from _with_a_dry_run(below, (*path, name))


@pytest.fixture
def stores(services: Services) -> Iterator[dict[str, ObjectStore]]:
    """Every bucket of both sites, with something in the cache and nothing of a dataset at the cloud."""
    found = {"cache": bucket(services.connect("cloud_store"), "cache", "cloud")}
    for name in ("onprem", "cloud"):
        site = services.site(name)
        found |= {f"{name} datasets": site.datasets, f"{name} checkpoints": site.checkpoints}
    found["cloud datasets"].delete([entry.key for entry in found["cloud datasets"].list()])
    found["cache"].put("kept", b"what was read", size_bytes=13)
    yield found
    found["cache"].delete(["kept"])


def everything(
    installation: Installation, services: Services, stores: Mapping[str, ObjectStore], folder: Path
) -> dict[str, Any]:
    """The ledger's bytes, every object of the clusters and the stores, every tag, and the files of a folder."""
    url = json.loads(json.loads(installation.connections.read_text())["spillway_ledger"]["extra"])["url"]
    registries = {name: services.site(name).registry for name in ("onprem", "cloud")}
    return {
        "ledger": Path(url.removeprefix("sqlite:///")).read_bytes(),
        "clusters": {name: installation.objects(name) for name in registries},
        "stores": {name: list(store.list()) for name, store in stores.items()},
        "tags": {n: {t: at.resolve("train", t) for t in at.tags("train")} for n, at in registries.items()},
        "files": {str(file): file.read_bytes() for file in folder.rglob("*") if file.is_file()},
    }


def test_every_command_that_has_a_dry_run_is_held_to_it() -> None:
    assert commands_with_a_dry_run() == set(words_by_command("run", Path("folder")))


def test_no_dry_run_changes_the_ledger_a_cluster_a_store_a_registry_or_a_file(
    spillway: Spillway,
    installation: Installation,
    services: Services,
    stores: Mapping[str, ObjectStore],
    run_with_steps: RunWithSteps,
    tmp_path: Path,
) -> None:
    folder = tmp_path / "written"
    folder.mkdir()
    (tmp_path / "jobs.csv").write_text("job,submitted_at,gpus,duration_seconds\na,0,1,60\n")
    run = run_with_steps(2, 4)
    before = everything(installation, services, stores, folder)
    assert all(before[what] for what in ("ledger", "clusters", "stores", "tags"))
    for command, words in words_by_command(run, folder).items():
        answer = spillway(*command.split(), *words, "--dry-run")
        assert "Traceback" not in answer.err
        after = everything(installation, services, stores, folder)
        changed = [what for what in before if before[what] != after[what]]
        assert (command, changed) == (command, [])

    for command in ("sync", "checkpoints restore", "runs cancel"):
        answer = spillway(*command.split(), *words_by_command(run, folder)[command])
        assert answer.code == 0, answer.err
    after = everything(installation, services, stores, folder)
    assert [what for what in before if before[what] != after[what]] == ["ledger", "stores", "files"]
