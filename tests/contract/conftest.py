"""The clusters that the contract is held against: the sandbox's, the same nodes under a real control plane (marked
``real_k8s``), or in their place any cluster by ``SPILLWAY_CONTRACT_KUBECONFIG``.

A foreign cluster needs nodes with GPUs. ``SPILLWAY_CONTRACT_IMAGE`` names an image with a shell that its nodes can pull
without a secret; without it the image comes from a registry on this machine, for nodes that are this machine's too.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml
from kubernetes import client, config

from spillway.testing.kube_space import Image, Space
from spillway.testing.runnable_image import ImageSource


@dataclass(frozen=True, kw_only=True)
class Access:
    """A cluster from outside."""

    kubeconfig: Mapping[str, Any]
    file: Path


GIVEN = os.environ.get("SPILLWAY_CONTRACT_KUBECONFIG")
CLUSTERS = ["given"] if GIVEN else ["sandbox", pytest.param("real", marks=pytest.mark.real_k8s)]


@pytest.fixture(scope="session", params=CLUSTERS)
def access(request: pytest.FixtureRequest) -> Access:
    if GIVEN:
        return Access(kubeconfig=yaml.safe_load(Path(GIVEN).read_text()), file=Path(GIVEN))
    cluster = request.getfixturevalue("kube_api" if request.param == "sandbox" else "real_kube")
    return Access(kubeconfig=cluster.kubeconfig, file=cluster.kubeconfig_file)


@pytest.fixture(scope="session")
def api_client(access: Access) -> Iterator[client.ApiClient]:
    made = config.new_client_from_config(str(access.file))
    yield made
    made.close()


@pytest.fixture(scope="session")
def image(request: pytest.FixtureRequest) -> Image:
    given = os.environ.get("SPILLWAY_CONTRACT_IMAGE")
    if given:
        return Image(name=given, docker_config=None)
    source = ImageSource(server=request.getfixturevalue("registries")["onprem"])
    return Image(name=source.put("contract", {"opt/contract/here": b""}), docker_config=source.docker_config)


@pytest.fixture(scope="module")
def space(api_client: client.ApiClient, image: Image) -> Iterator[Space]:
    made = Space(api_client, image)
    made.open()
    yield made
    made.close()
