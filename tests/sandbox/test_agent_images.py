"""What a container is made of: its image by digest, and nothing that the image does not bring."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from spillway.registries.digest import digest_of
from spillway.sandbox.image_layer import Layer
from spillway.testing.kube_server import KubeCluster
from spillway.testing.kube_space import Space
from spillway.testing.runnable_image import ImageSource

NOT_PULLED = ("ErrImagePull", "ImagePullBackOff")


def test_the_program_its_arguments_and_its_environment_come_from_the_image_and_the_pod(
    kube_space: Space, kube_images: ImageSource
) -> None:
    image = kube_images.put(
        "program",
        {"opt/app/bin/show": b"#!/bin/sh\npwd; echo $@; env | sort\n"},
        Entrypoint=["/opt/app/bin/show"],
        Cmd=["default"],
        WorkingDir="/opt/app/work",
        Env=["FROM_IMAGE=1", "BOTH=image"],
    )

    kube_space.create(kube_space.pod("program", image=image, env=[{"name": "BOTH", "value": "pod"}]))

    assert kube_space.ended("program").status.phase == "Succeeded"
    assert kube_space.log("program").splitlines() == [
        "/opt/app/work",
        "default",
        "BOTH=pod",
        "FROM_IMAGE=1",
        "HOME=/root",
        "HOSTNAME=program",
        "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
        "PWD=/opt/app/work",
    ]


def test_code_that_the_image_does_not_bring_is_not_there(kube_space: Space, kube_images: ImageSource) -> None:
    base, module = {"opt/x": b""}, {"opt/code/lib/answer.py": b"print('from the layer')\n"}
    run = {"Entrypoint": ["python3", "-m", "answer"], "Env": ["PYTHONPATH=/opt/code/lib"]}

    kube_space.create(kube_space.pod("whole", image=kube_images.put("code", base, module, **run)))
    kube_space.create(kube_space.pod("without", image=kube_images.put("code", base, **run)))

    assert kube_space.ended("whole").status.phase == "Succeeded"
    assert kube_space.log("whole") == "from the layer\n"
    assert kube_space.ended("without").status.phase == "Failed"
    assert "No module named answer" in kube_space.log("without")


def test_the_project_that_runs_the_agent_cannot_be_imported_in_a_container(kube_space: Space) -> None:
    kube_space.create(kube_space.pod("importer", "python3", "-c", "import spillway"))

    assert kube_space.ended("importer").status.phase == "Failed"
    assert "No module named 'spillway'" in kube_space.log("importer")


@pytest.fixture
def hidden() -> Iterator[Path]:
    """A directory of the host, outside of /tmp, which no container shares with it."""
    directory = Path.home() / f".spillway-masked-{os.getpid()}"
    directory.mkdir()
    (directory / "secret").write_text("x")
    yield directory
    (directory / "secret").unlink()
    directory.rmdir()


def test_a_masked_directory_is_empty_in_a_container_and_what_a_container_writes_is_not_on_the_host(
    kube_api: KubeCluster, kube_space: Space, hidden: Path
) -> None:
    kube_api.add_agent("masked", masks=(hidden,))
    try:
        on_masked = {"nodeSelector": {"kubernetes.io/hostname": "masked"}}
        elsewhere = {"nodeSelector": {"kubernetes.io/hostname": "node-1"}}
        kube_space.run("masked", f"ls -A {hidden}; touch {hidden}/written && echo done", spec=on_masked)
        kube_space.run("open", f"ls -A {hidden}; touch {hidden}/written && echo done", spec=elsewhere)

        assert [kube_space.ended(name).status.phase for name in ("masked", "open")] == ["Succeeded"] * 2
        assert (kube_space.log("masked"), kube_space.log("open")) == ("done\n", "secret\ndone\n")
        assert [path.name for path in hidden.iterdir()] == ["secret"]
    finally:
        kube_api.remove_agent("masked")


def test_an_image_that_the_registry_does_not_have_is_waited_for_and_runs_when_it_comes(
    kube_space: Space, kube_images: ImageSource
) -> None:
    layer = kube_images.layer({"opt/late/file": b"late"})
    command = ["cat", "/opt/late/file"]
    image = kube_images.put_layers("early", [layer], Cmd=command).replace("/early@", "/late@")

    kube_space.create(kube_space.pod("late", image=image))
    told = kube_space.waiting("late", *NOT_PULLED)
    assert image in told.message
    assert "not found" in told.message
    assert kube_space.find("late").status.phase == "Pending"

    kube_images.put_layers("late", [layer], Cmd=command)
    assert kube_space.ended("late").status.phase == "Succeeded"
    assert kube_space.log("late") == "late"


def test_an_image_that_was_taken_out_of_the_registry_is_not_started_from_the_cache(
    kube_space: Space, kube_images: ImageSource
) -> None:
    image = kube_images.put("withdrawn", {"opt/w/file": b"w"}, Cmd=["true"])
    same_node = {"nodeSelector": {"kubernetes.io/hostname": "node-1"}}
    kube_space.create(kube_space.pod("first", image=image, spec=same_node))
    assert kube_space.ended("first").status.phase == "Succeeded"

    digest = image.rpartition(":")[2]
    revision = f"repositories/withdrawn/_manifests/revisions/sha256/{digest}/link"
    next(kube_images.server.state_dir.rglob(revision)).unlink()
    kube_space.create(kube_space.pod("second", image=image, spec=same_node))

    assert "not found" in kube_space.waiting("second", *NOT_PULLED).message


@pytest.mark.parametrize(
    ("spec", "container", "words"),
    [
        pytest.param({"imagePullSecrets": []}, {}, "unauthorized", id="no pull secret"),
        pytest.param(
            {}, {"image": f"127.0.0.1:1/train@sha256:{'0' * 64}"}, "connection refused", id="nothing listens there"
        ),
        pytest.param({}, {"image": "127.0.0.1:5000/Upper@sha256:12"}, "expected a digest", id="no name of an image"),
    ],
)
def test_a_pull_that_fails_tells_why(
    kube_space: Space, spec: dict[str, object], container: dict[str, str], words: str
) -> None:
    kube_space.create(kube_space.pod("unlucky", "true", spec=spec, **container))

    assert words in kube_space.waiting("unlucky", *NOT_PULLED).message


def test_a_layer_whose_bytes_were_changed_in_the_registry_is_refused(
    kube_space: Space, kube_images: ImageSource
) -> None:
    layer = kube_images.layer({"opt/tampered/file": b"good"})
    image = kube_images.put_layers("tampered", [layer], Cmd=["cat", "/opt/tampered/file"])
    stored = next(kube_images.server.state_dir.rglob(f"{layer.digest.removeprefix('sha256:')}/data"))
    stored.write_bytes(kube_images.layer({"opt/tampered/file": b"evil"}).body)

    kube_space.create(kube_space.pod("tampered", image=image))

    assert f"expected digest {layer.digest}" in kube_space.waiting("tampered", *NOT_PULLED).message


def test_a_layer_that_is_not_what_the_configuration_says_is_refused(
    kube_space: Space, kube_images: ImageSource
) -> None:
    honest = kube_images.layer({"opt/liar/file": b"x"})
    liar = Layer(body=honest.body, diff_id=digest_of(b"something else"))

    kube_space.create(kube_space.pod("liar", image=kube_images.put_layers("liar", [liar], Cmd=["true"])))

    assert f"expected digest {liar.diff_id}" in kube_space.waiting("liar", *NOT_PULLED).message
