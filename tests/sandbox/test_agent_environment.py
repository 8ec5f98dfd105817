"""A container's environment, its command line, and where its image comes from."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from spillway.sandbox.agent.environment import BadContainerConfig, command, environment
from spillway.sandbox.agent.images import Image, login, url_of

IMAGE = Image(
    digest="sha256:1", root=Path("/"), config={"Env": ["A=image", "PATH=/opt/bin"], "Entrypoint": ["run"], "Cmd": ["x"]}
)
POD = {
    "metadata": {"name": "p", "namespace": "ns", "labels": {"app": "train"}},
    "spec": {"serviceAccountName": "worker"},
}
DATA = {("secrets", "s"): {"user": b"me", "key": b"k"}, ("configmaps", "c"): {"size": b"3"}}


def _environment(container: dict[str, Any]) -> dict[str, str]:
    async def fetch(kind: str, name: str) -> dict[str, bytes] | None:
        return DATA.get((kind, name))

    return asyncio.run(environment(container, IMAGE, POD, {"spec.nodeName": "n1"}, fetch))


def test_without_variables_of_its_own_a_container_has_its_images_and_a_runtimes_defaults() -> None:
    assert _environment({}) == {"A": "image", "PATH": "/opt/bin", "HOME": "/root", "HOSTNAME": "p"}


@pytest.mark.parametrize(
    ("container", "expected"),
    [
        pytest.param({"env": [{"name": "A", "value": "pod"}]}, {"A": "pod"}, id="the pod's value wins"),
        pytest.param({"env": [{"name": "B"}]}, {"B": ""}, id="no value is an empty one"),
        pytest.param(
            {"env": [{"name": "B", "value": "$(A)-$$(A)-$(NO)"}]}, {"B": "image-$(A)-$(NO)"}, id="references expand"
        ),
        pytest.param(
            {"env": [{"name": "B", "valueFrom": {"secretKeyRef": {"name": "s", "key": "user"}}}]},
            {"B": "me"},
            id="of a secret",
        ),
        pytest.param(
            {"env": [{"name": "B", "valueFrom": {"configMapKeyRef": {"name": "c", "key": "size"}}}]},
            {"B": "3"},
            id="of a ConfigMap",
        ),
        pytest.param(
            {"env": [{"name": "B", "valueFrom": {"secretKeyRef": {"name": "s", "key": "no", "optional": True}}}]},
            {},
            id="optional and absent",
        ),
        pytest.param(
            {"envFrom": [{"secretRef": {"name": "s"}, "prefix": "S_"}]}, {"S_user": "me", "S_key": "k"}, id="all of one"
        ),
        pytest.param({"envFrom": [{"configMapRef": {"name": "no", "optional": True}}]}, {}, id="all of an absent one"),
        pytest.param(
            {"env": [{"name": "B", "valueFrom": {"fieldRef": {"fieldPath": "metadata.labels['app']"}}}]},
            {"B": "train"},
            id="a label",
        ),
        pytest.param(
            {"env": [{"name": "B", "valueFrom": {"fieldRef": {"fieldPath": "spec.nodeName"}}}]}, {"B": "n1"}, id="node"
        ),
        pytest.param(
            {"env": [{"name": "B", "valueFrom": {"fieldRef": {"fieldPath": "metadata.namespace"}}}]},
            {"B": "ns"},
            id="a field of the pod",
        ),
    ],
)
def test_a_variable_of_the_pod(container: dict[str, Any], expected: dict[str, str]) -> None:
    defaults = {"A": "image", "PATH": "/opt/bin", "HOME": "/root", "HOSTNAME": "p"}

    assert _environment(container) == {**defaults, **expected}


@pytest.mark.parametrize(
    ("source", "problem"),
    [
        ({"secretKeyRef": {"name": "no", "key": "k"}}, 'secret "no" not found'),
        ({"secretKeyRef": {"name": "s", "key": "no"}}, 'couldn\'t find key no in secret "s"'),
        ({"configMapKeyRef": {"name": "no", "key": "k"}}, 'configmap "no" not found'),
        ({"resourceFieldRef": {"resource": "limits.cpu"}}, "expected a ConfigMap or a Secret as the source"),
    ],
    ids=["no secret", "no key", "no ConfigMap", "unknown source"],
)
def test_a_reference_to_nothing_is_told(source: dict[str, Any], problem: str) -> None:
    with pytest.raises(BadContainerConfig, match=problem):
        _environment({"env": [{"name": "B", "valueFrom": source}]})


@pytest.mark.parametrize(
    ("container", "words"),
    [
        pytest.param({}, ["run", "x"], id="the image's entrypoint and command"),
        pytest.param({"args": ["y"]}, ["run", "y"], id="arguments replace the image's command"),
        pytest.param({"command": ["go"]}, ["go"], id="a command replaces both"),
        pytest.param({"command": ["go"], "args": ["$(A)"]}, ["go", "image"], id="references expand"),
    ],
)
def test_a_command_line(container: dict[str, Any], words: list[str]) -> None:
    assert command(container, IMAGE, {"A": "image"}) == words


def test_an_image_without_a_command_needs_one_from_the_pod() -> None:
    with pytest.raises(BadContainerConfig, match="no command specified: image sha256:1 has neither"):
        command({}, Image(digest="sha256:1", root=Path("/"), config={}), {})


@pytest.mark.parametrize(
    ("host", "url"),
    [
        ("127.0.0.1:5000", "http://127.0.0.1:5000"),
        ("localhost:5000", "http://localhost:5000"),
        ("registry.example.com", "https://registry.example.com"),
    ],
)
def test_only_registries_on_loopback_are_spoken_to_without_tls(host: str, url: str) -> None:
    assert url_of(host) == url


def test_a_login_is_found_in_a_pull_secret() -> None:
    secret = {"auths": {"r:5000": {"username": "u", "password": "p"}}}

    assert login([{}, secret], "r:5000") == ("u", "p")
    assert login([secret], "other:5000") == (None, None)
