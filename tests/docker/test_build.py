"""Both Dockerfiles are built by a real engine, and what they give runs.

The base is made here and has the locked requirements already, so the step that installs them finds each of them
satisfied: the build is held to the lock without asking any package index.
"""

from __future__ import annotations

import importlib.metadata
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from spillway.sandbox import sample_image
from spillway.stores.local import LocalStore
from spillway.testing.training import TrainingSite, load_digits

ROOT = Path(__file__).resolve().parents[2]
UID = 65532
DAGS = "/opt/airflow/dags"

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1800)]


@pytest.fixture(scope="module")
def build(engine: Any, base_image: str) -> Callable[[str], str]:
    """Builds the Dockerfile of a folder below ``docker/`` and gives the image's name."""

    def built(folder: str) -> str:
        name = f"{folder}:built-here"
        engine.run(
            "build", "--network", "none", "--build-arg", f"BASE_IMAGE={base_image}",
            "--file", str(ROOT / "docker" / folder / "Dockerfile"), "--tag", name, str(ROOT),
        )  # fmt: skip
        return name

    return built


def test_the_airflow_image_is_the_locked_airflow_with_spillway(engine: Any, build: Callable[[str], str]) -> None:
    image = build("airflow")
    environment = ("--env-file", str(ROOT / "docker/airflow.env"))
    run = ("run", "--rm", "--network", "none", *environment)
    assert engine.run(*run, image).strip() == importlib.metadata.version("apache-airflow-core")
    check = (
        "import json, os, spillway, spillway_plugin, spillway_airflow.hooks; from airflow.configuration import conf; "
        "from spillway.config import configuration_directory, jobs_directory, load, load_image_uses; "
        "loaded = load(configuration_directory(os.environ)); "
        "jobs = load_image_uses(jobs_directory(os.environ), loaded.datasets); "
        "print(json.dumps([os.getuid(), spillway.__file__, conf.get('core', 'executor'), sorted(loaded.clusters), "
        "len(jobs), sorted(os.listdir(conf.get('core', 'dags_folder')))]))"
    )
    mounts = {"include/config": "/etc/spillway/config", "include/jobs": "/etc/spillway/jobs", "dags": DAGS}
    volumes = [word for here, there in mounts.items() for word in ("--volume", f"{ROOT / here}:{there}:ro")]
    path = ("--env", "PYTHONPATH=/opt/spillway/include:/opt/spillway/plugins")
    said = engine.run(*run, *volumes, *path, "--entrypoint", "python", image, "-c", check)
    uid, spillway, executor, clusters, jobs, dags = json.loads(said.splitlines()[-1])
    assert (uid, spillway, executor) == (50000, "/opt/spillway/include/spillway/__init__.py", "LocalExecutor")
    assert (clusters, jobs) == (["cloud", "onprem"], len(list((ROOT / "include/jobs").glob("*.yaml"))))
    assert set(dags) == {path.name for path in (ROOT / "dags").iterdir()}


def test_the_airflow_image_holds_no_configuration_and_no_dags(engine: Any, build: Callable[[str], str]) -> None:
    found = engine.run("run", "--rm", "--entrypoint", "ls", build("airflow"), "/opt/spillway/include", DAGS)
    assert found.split() == [f"{DAGS}:", "/opt/spillway/include:", "spillway"]


def test_the_trainers_image_trains_as_an_ordinary_user(
    engine: Any, build: Callable[[str], str], tmp_path: Path
) -> None:
    image = build("trainer")
    site = training_site(tmp_path)
    site.checkpoints.fence(1)
    for path in (tmp_path, *tmp_path.rglob("*")):
        path.chmod(0o777 if path.is_dir() else 0o666)
    given = site.environment() | {"PYTHONPATH": str(sample_image.LIBRARIES), "PATH": "/usr/local/bin:/bin"}
    variables = [part for name, value in given.items() for part in ("--env", f"{name}={value}")]
    engine.run("run", "--rm", "--network", "none", "--volume", f"{tmp_path}:/site", *variables, image, "digits")
    assert [step for step, _ in site.losses()] == list(range(1, 31))


def training_site(folder: Path) -> TrainingSite:
    """A site whose buckets are folders, as the container sees them below /site."""
    for bucket in ("data", "checkpoints"):
        (folder / bucket).mkdir()
    variables = {
        "SPILLWAY_STORE_ENDPOINT": "file:///site",
        "SPILLWAY_STORE_REGION": "here",
        "SPILLWAY_STORE_ACCESS_KEY": "none",
        "SPILLWAY_STORE_SECRET_KEY": "none",
        "SPILLWAY_DATASET_BUCKET": "data",
        "SPILLWAY_CHECKPOINT_BUCKET": "checkpoints",
    }
    data, checkpoints = LocalStore(folder / "data"), LocalStore(folder / "checkpoints")
    load_digits(data)
    return TrainingSite(data=data, bucket=checkpoints, variables=variables)
