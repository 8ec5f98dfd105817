"""The trainer's image: reproducible, accepted by registries and other tools, and sufficient to train."""

from __future__ import annotations

import importlib.metadata
import json
import os
import subprocess
import sys
import tarfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from spillway.errors import SandboxError
from spillway.images.gate import require_image
from spillway.images.mirror import mirror
from spillway.registries.layout import LayoutRegistry
from spillway.sandbox import debian, sample_image
from spillway.sandbox.sample_image import REPOSITORY, TAG, build_trainer_image
from spillway.sandbox.settings import cache_directory
from spillway.testing.registry_server import RegistryServer
from spillway.testing.training import TrainingSite, folder_site


@pytest.fixture(scope="module")
def layout(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A layout with the image in it."""
    root = tmp_path_factory.mktemp("layout")
    build_trainer_image(root)
    return root


def blob(layout: Path, digest: str) -> Path:
    return layout / REPOSITORY / "blobs/sha256" / digest.removeprefix("sha256:")


def manifest(layout: Path) -> dict[str, Any]:
    document: dict[str, Any] = json.loads(LayoutRegistry(layout).manifest(REPOSITORY, TAG).body)
    return document


def config(layout: Path) -> dict[str, Any]:
    document: dict[str, Any] = json.loads(blob(layout, manifest(layout)["config"]["digest"]).read_bytes())
    return document


def names(layout: Path, number: int) -> list[str]:
    with tarfile.open(blob(layout, manifest(layout)["layers"][number]["digest"])) as archive:
        return archive.getnames()


# -- reproducible -----------------------------------------------------------------------------------------------------


def test_building_again_elsewhere_and_in_another_process_gives_the_same_digest(layout: Path, tmp_path: Path) -> None:
    program = "import sys, pathlib; from spillway.sandbox.sample_image import *; "
    program += "print(build_trainer_image(pathlib.Path(sys.argv[1])))"
    done = subprocess.run(
        [sys.executable, "-c", program, str(tmp_path)],
        env={**os.environ, "PYTHONPATH": str(Path(sample_image.__file__).parents[2]), "PYTHONHASHSEED": "7"},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.strip() == LayoutRegistry(layout).resolve(REPOSITORY, TAG)


def test_building_again_in_place_gives_the_same_digest_and_takes_over_the_libraries(
    layout: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sample_image, "_library_files", lambda: pytest.fail("the libraries were packed again"))
    assert build_trainer_image(layout) == LayoutRegistry(layout).resolve(REPOSITORY, TAG)


def test_another_version_of_a_library_is_another_image(layout: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sample_image, "_library_files", lambda: iter([(sample_image.LIBRARIES / "new.py", b"new = 1")]))
    monkeypatch.setattr(importlib.metadata, "version", lambda name: "99.0")
    assert build_trainer_image(layout, tag="other") != LayoutRegistry(layout).resolve(REPOSITORY, TAG)


def test_a_library_that_is_not_installed_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sample_image, "DISTRIBUTIONS", ("numpy", "no-such-library"))
    with pytest.raises(SandboxError, match=r"needs the library 'no-such-library', .*install requirements\.txt"):
        build_trainer_image(tmp_path)


# -- content ----------------------------------------------------------------------------------------------------------


def test_the_tag_names_the_environment(layout: Path) -> None:
    version = importlib.metadata.version("numpy")
    assert f"numpy{version}-py{sys.version_info.major}.{sys.version_info.minor}" == TAG
    assert config(layout)["config"]["Labels"]["dev.spillway.library.numpy"] == version


def test_the_sample_job_names_an_image_that_is_built() -> None:
    job = (Path(sample_image.__file__).parents[2] / "jobs/digits.yaml").read_text()
    assert f"\nimage: {REPOSITORY}:{TAG}\n" in job


def test_the_interpreter_is_the_hosts_own_and_isolated(layout: Path) -> None:
    entrypoint = config(layout)["config"]["Entrypoint"]
    program = Path(entrypoint[0])
    assert program.is_file()
    assert not program.is_symlink()
    assert not program.is_relative_to(sys.prefix) or sys.prefix == sys.base_prefix
    assert entrypoint[1:3] == ["-I", "-S"]


def test_the_layers_hold_the_libraries_and_the_part_of_spillway_that_runs_inside(layout: Path) -> None:
    libraries, own = names(layout, 0), names(layout, 1)
    assert all(name == "opt" or name.startswith("opt/spillway") for name in libraries + own)
    assert "opt/spillway/lib/numpy/__init__.py" in libraries
    assert any(name.startswith("opt/spillway/lib/numpy.libs/") for name in libraries)
    assert {"opt/spillway/bin/train", "opt/spillway/lib/spillway/trainer/__main__.py"} <= set(own)
    inside = {name.split("/")[4] for name in own if name.startswith("opt/spillway/lib/spillway/")}
    assert inside - {"__pycache__"} == {
        "__init__.py", "codec.py", "threads.py", "errors", "model", "checkpoints", "stores", "trainer",
    }  # fmt: skip


# -- registries and other tools ---------------------------------------------------------------------------------------


def test_the_image_is_pushed_whole_with_its_digest(layout: Path, registries: Mapping[str, RegistryServer]) -> None:
    registry, source = registries["onprem"].client(prefix=uuid4().hex), LayoutRegistry(layout)
    report = mirror(source, registry, repository=REPOSITORY, reference=TAG)
    require_image(registry, REPOSITORY, report.digest)
    assert registry.manifest(REPOSITORY, TAG) == source.manifest(REPOSITORY, TAG)


def test_skopeo_pushes_the_layout_as_the_mirror_does(layout: Path, registries: Mapping[str, RegistryServer]) -> None:
    server, corner = registries["onprem"], uuid4().hex
    root = debian.unpack(["skopeo"], cache=cache_directory())
    subprocess.run(
        [
            root / "usr/bin/skopeo", "--insecure-policy", "copy", "--preserve-digests", "--dest-tls-verify=false",
            f"--dest-creds={server.username}:{server.password}",
            f"oci:{layout / REPOSITORY}:{TAG}", f"docker://127.0.0.1:{server.port}/{corner}/{REPOSITORY}:{TAG}",
        ],
        env={**debian.environment(root), "HOME": str(layout), "TMPDIR": str(layout)},
        check=True,
        capture_output=True,
    )  # fmt: skip
    registry, source = server.client(prefix=corner), LayoutRegistry(layout)
    assert registry.manifest(REPOSITORY, TAG) == source.manifest(REPOSITORY, TAG)
    report = mirror(source, registry, repository=REPOSITORY, reference=TAG)
    assert (report.bytes_copied, report.manifests_copied) == (0, 0)


# -- it trains --------------------------------------------------------------------------------------------------------


@pytest.fixture
def site(tmp_path: Path) -> TrainingSite:
    """A site whose buckets are folders."""
    return folder_site(tmp_path)


def run_image(
    layout: Path, root: Path, environment: Mapping[str, str], *, layers: tuple[int, ...]
) -> subprocess.CompletedProcess[str]:
    """Run the entrypoint with the image's /opt over the host's, in a mount namespace of its own."""
    (root / "opt").mkdir()
    for number in layers:
        with tarfile.open(blob(layout, manifest(layout)["layers"][number]["digest"])) as archive:
            archive.extractall(root, filter="tar")
    described = config(layout)["config"]
    own = dict(entry.split("=", 1) for entry in described["Env"])
    namespace = ["unshare", "--mount", *([] if os.getuid() == 0 else ["--map-root-user"])]
    inside = ["sh", "-c", 'mount --bind "$0" /opt && exec "$@"', str(root / "opt"), *described["Entrypoint"], "digits"]
    return subprocess.run(
        [*namespace, *inside], env={**environment, **own}, capture_output=True, text=True, check=False, timeout=120
    )


def test_the_trainer_runs_from_the_image_alone(layout: Path, tmp_path: Path, site: TrainingSite) -> None:
    site.checkpoints.fence(1)
    poison = tmp_path / "poison"
    poison.mkdir()
    (poison / "numpy.py").write_text("raise SystemExit('the environment leaked into the container')")
    environment = site.environment() | {
        "PATH": debian.SYSTEM_PATH,
        "PYTHONPATH": str(poison),
        "PYTHONHOME": str(poison),
    }
    (tmp_path / "root").mkdir()
    done = run_image(layout, tmp_path / "root", environment, layers=(0, 1))
    assert done.returncode == 0, done.stderr
    assert [step for step, _ in site.losses()] == list(range(1, 31))


def test_without_the_layer_of_libraries_nothing_of_the_host_takes_their_place(
    layout: Path, tmp_path: Path, site: TrainingSite
) -> None:
    site.checkpoints.fence(1)
    (tmp_path / "root").mkdir()
    done = run_image(layout, tmp_path / "root", site.environment() | {"PATH": debian.SYSTEM_PATH}, layers=(1,))
    assert done.returncode != 0
    assert "No module named 'numpy'" in done.stdout + done.stderr
